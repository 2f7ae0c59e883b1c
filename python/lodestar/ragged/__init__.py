"""Nested sequences of variable length, and conversions."""

from lodestar.ragged.lod_tensor import LoDTensor

__all__ = ["LoDTensor"]
