"""Keras callbacks."""

from lodestar.callbacks.early_stopping import EarlyStopping
from lodestar.callbacks.evict import Evict
from lodestar.callbacks.snapshot import Snapshot
from lodestar.callbacks.table_stats import TableStats
from lodestar.callbacks.tensorboard import TensorBoard

__all__ = ["EarlyStopping", "Evict", "Snapshot", "TableStats", "TensorBoard"]
__dir__ = __all__.copy
