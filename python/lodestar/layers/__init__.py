"""Keras 3 layers."""

from lodestar.layers.cloning import clone_scope
from lodestar.layers.dynamic_embedding import DynamicEmbedding
from lodestar.layers.embedding_collection import EmbeddingCollection
from lodestar.layers.id_lookup import IdLookup
from lodestar.layers.per_step import PerStep
from lodestar.layers.sequence_attention import SequenceAttention
from lodestar.layers.sequence_conv import SequenceConv
from lodestar.layers.target_attention import TargetAttention

__all__ = [
    "DynamicEmbedding",
    "EmbeddingCollection",
    "IdLookup",
    "PerStep",
    "SequenceAttention",
    "SequenceConv",
    "TargetAttention",
    "clone_scope",
]
__dir__ = __all__.copy
