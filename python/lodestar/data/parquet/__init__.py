"""Parquet, with HugeCTR's `_metadata.json`."""
