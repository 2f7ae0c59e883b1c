"""Rows of files and tables that pyarrow reads, as datasets."""
