"""Keras optimizers for models with dynamic embeddings."""

from lodestar.optimizers.dynamic_embedding_optimizer import (
    DynamicEmbeddingOptimizer as DynamicEmbeddingOptimizer,
)
from lodestar.optimizers.gradients import (
    clip_by_global_norm as clip_by_global_norm,
)
from lodestar.optimizers.gradients import global_norm as global_norm
from lodestar.optimizers.gradients import merge_duplicates as merge_duplicates
from lodestar.optimizers.loss_scale_optimizer import (
    LossScaleOptimizer as LossScaleOptimizer,
)

__all__ = [
    "DynamicEmbeddingOptimizer",
    "LossScaleOptimizer",
    "clip_by_global_norm",
    "global_norm",
    "merge_duplicates",
]
