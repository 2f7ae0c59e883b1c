"""File formats and how to detect them."""
