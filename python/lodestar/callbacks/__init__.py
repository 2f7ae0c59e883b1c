"""Keras callbacks."""

from lodestar.callbacks.table_stats import TableStats

__all__ = ["TableStats"]
