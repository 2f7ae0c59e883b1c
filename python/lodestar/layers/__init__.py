"""Keras 3 layers."""

from lodestar.layers.cloning import clone_scope
from lodestar.layers.dynamic_embedding import DynamicEmbedding
from lodestar.layers.embedding_collection import EmbeddingCollection
from lodestar.layers.id_lookup import IdLookup
from lodestar.layers.sequence_conv import SequenceConv

__all__ = [
    "DynamicEmbedding",
    "EmbeddingCollection",
    "IdLookup",
    "SequenceConv",
    "clone_scope",
]
