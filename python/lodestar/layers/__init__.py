"""Keras layers."""

from lodestar.layers.sequence_pool import SequencePool

__all__ = [
    "SequencePool",
]
