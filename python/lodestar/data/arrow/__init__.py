"""Datasets over files and tables that pyarrow reads."""
