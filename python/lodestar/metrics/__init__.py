"""Keras metrics."""

from lodestar.metrics.batch_auc import BatchAUC

__all__ = ["BatchAUC"]
__dir__ = __all__.copy
