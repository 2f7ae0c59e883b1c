"""Nested sequences of variable length, and what they are converted to."""

from lodestar.ragged.lod_tensor import LoDTensor

__all__ = ["LoDTensor"]
