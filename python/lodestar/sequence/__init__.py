"""Ops on sequences of variable length: RaggedTensor or LoDTensor in."""

from lodestar.sequence.pool import pool
from lodestar.sequence.windows import conv, enumerate

__all__ = ["conv", "enumerate", "pool"]
