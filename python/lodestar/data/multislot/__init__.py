"""MultiSlot text, Paddle's format, and the samples kept in memory."""
