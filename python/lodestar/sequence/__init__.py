"""Ops on sequences of variable length, which take RaggedTensors or LoDTensors.

Every function also accepts KerasTensors, as `keras.ops` do, and then adds itself to
a functional model. Declare such an input with `ragged=True`:

>>> history = keras.Input((None, 8), ragged=True)
>>> mean = lodestar.sequence.pool(history, "mean")
>>> model = keras.Model(history, keras.layers.Dense(1)(mean))
>>> model.output_shape
(None, 1)
"""

from lodestar.sequence import arithmetic as _arithmetic  # noqa: F401  # for operators
from lodestar.sequence.attention import attention
from lodestar.sequence.concat import concat
from lodestar.sequence.erase import erase
from lodestar.sequence.expand import expand, expand_as
from lodestar.sequence.pad import pad, unpad
from lodestar.sequence.pool import pool
from lodestar.sequence.positions import positions
from lodestar.sequence.reshape import reshape
from lodestar.sequence.reverse import reverse
from lodestar.sequence.scatter import scatter
from lodestar.sequence.slice import slice
from lodestar.sequence.softmax import softmax
from lodestar.sequence.topk_avg_pooling import topk_avg_pooling
from lodestar.sequence.windows import conv, enumerate

__all__ = [
    "attention",
    "concat",
    "conv",
    "enumerate",
    "erase",
    "expand",
    "expand_as",
    "pad",
    "pool",
    "positions",
    "reshape",
    "reverse",
    "scatter",
    "slice",
    "softmax",
    "topk_avg_pooling",
    "unpad",
]
__dir__ = __all__.copy
