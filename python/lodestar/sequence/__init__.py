"""Ops on sequences of variable length: RaggedTensor or LoDTensor in."""

from lodestar.sequence.concat import concat
from lodestar.sequence.erase import erase
from lodestar.sequence.expand import expand, expand_as
from lodestar.sequence.mask import mask
from lodestar.sequence.pad import pad, unpad
from lodestar.sequence.pool import first_step, last_step, pool
from lodestar.sequence.reshape import reshape
from lodestar.sequence.reverse import reverse
from lodestar.sequence.scatter import scatter
from lodestar.sequence.slice import slice
from lodestar.sequence.softmax import softmax
from lodestar.sequence.topk_avg_pooling import topk_avg_pooling
from lodestar.sequence.windows import conv, enumerate

__all__ = [
    "concat",
    "conv",
    "enumerate",
    "erase",
    "expand",
    "expand_as",
    "first_step",
    "last_step",
    "mask",
    "pad",
    "pool",
    "reshape",
    "reverse",
    "scatter",
    "slice",
    "softmax",
    "topk_avg_pooling",
    "unpad",
]
