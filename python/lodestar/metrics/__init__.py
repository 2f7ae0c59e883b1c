"""Keras metrics, and the AUC of arrays."""

from lodestar.metrics.batch_auc import BatchAUC
from lodestar.metrics.exact_auc import exact_auc

__all__ = ["BatchAUC", "exact_auc"]
