"""Keras callbacks."""

from lodestar.callbacks.early_stopping import EarlyStopping
from lodestar.callbacks.snapshot import Snapshot
from lodestar.callbacks.table_stats import TableStats

__all__ = ["EarlyStopping", "Snapshot", "TableStats"]
