"""CSV and TSV, and the ids of their text."""
