"""Keras layers."""

from lodestar.layers.id_lookup import IdLookup
from lodestar.layers.sequence_pool import SequencePool

__all__ = [
    "IdLookup",
    "SequencePool",
]
