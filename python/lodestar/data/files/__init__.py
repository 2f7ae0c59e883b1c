"""Formats of files: which there are, and how they are found."""
