"""Ops on sequences of variable length: RaggedTensor or LoDTensor in."""

from lodestar.sequence.expand import expand, expand_as
from lodestar.sequence.pad import pad, unpad
from lodestar.sequence.pool import pool
from lodestar.sequence.reverse import reverse
from lodestar.sequence.softmax import softmax
from lodestar.sequence.windows import conv, enumerate

__all__ = [
    "conv",
    "enumerate",
    "expand",
    "expand_as",
    "pad",
    "pool",
    "reverse",
    "softmax",
    "unpad",
]
