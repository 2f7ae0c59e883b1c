"""Ops on sequences of variable length: RaggedTensor or LoDTensor in."""

from lodestar.sequence.pool import pool

__all__ = ["pool"]
