"""Keras optimizers for models with dynamic embeddings."""

from lodestar.optimizers.dynamic_embedding_optimizer import (
    DynamicEmbeddingOptimizer,
)
from lodestar.optimizers.gradients import (
    clip_by_global_norm,
    global_norm,
    merge_duplicates,
)
from lodestar.optimizers.loss_scale_optimizer import LossScaleOptimizer

__all__ = [
    "DynamicEmbeddingOptimizer",
    "LossScaleOptimizer",
    "clip_by_global_norm",
    "global_norm",
    "merge_duplicates",
]
