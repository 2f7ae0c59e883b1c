"""Nested sequences of variable length."""

from lodestar.ragged.lod_tensor import LoDTensor

__all__ = ["LoDTensor"]
