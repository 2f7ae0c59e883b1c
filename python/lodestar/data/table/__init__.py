"""Tables in memory: data frames, and Arrow tables."""
