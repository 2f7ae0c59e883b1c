"""Keras 3 layers."""

from lodestar.layers.dynamic_embedding import (
    DynamicEmbedding as DynamicEmbedding,
)
from lodestar.layers.embedding_collection import (
    EmbeddingCollection as EmbeddingCollection,
)

__all__ = [
    "DynamicEmbedding",
    "EmbeddingCollection",
]
