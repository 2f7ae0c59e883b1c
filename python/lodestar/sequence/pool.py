"""Pooling of sequences."""

from typing import Any, Literal, get_args, overload

import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import FLOAT_DTYPES, INT_DTYPES, as_dtype_of, did_you_mean
from lodestar._typing import Combiner, TensorLike
from lodestar.ops import sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged import LoDTensor
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested

_COMBINERS: tuple[Combiner, ...] = get_args(Combiner)
_DTYPES = FLOAT_DTYPES + INT_DTYPES
_PADDLE_NAMES = {"average": "mean", "sqrt": "sqrtn"}


def check_combiner(combiner: str) -> None:
    """Raises ValueError unless `combiner` is one of Lodestar's."""
    if combiner in _PADDLE_NAMES:
        raise ValueError(
            f"`combiner` is {combiner!r}, which is called "
            f"{_PADDLE_NAMES[combiner]!r} here."
        )
    if combiner not in _COMBINERS:
        raise ValueError(
            f"`combiner` must be one of {', '.join(_COMBINERS)}, got "
            f"{combiner!r}.{did_you_mean(combiner, _COMBINERS)}"
        )


@overload
def pool(
    x: Nested,
    combiner: Combiner = "sum",
    level: int = -1,
    *,
    pad_value: TensorLike = 0.0,
    with_index: Literal[False] = False,
    name: str | None = None,
) -> Any: ...


@overload
def pool(
    x: Nested,
    combiner: Combiner = "sum",
    level: int = -1,
    *,
    pad_value: TensorLike = 0.0,
    with_index: Literal[True],
    name: str | None = None,
) -> tuple[Any, tf.Tensor]: ...


@explained()
@takes_keras_tensors
def pool(
    x: tf.RaggedTensor | LoDTensor,
    combiner: Combiner = "sum",
    level: int = -1,
    *,
    pad_value: TensorLike = 0.0,
    with_index: bool = False,
    name: str | None = None,
) -> Any:
    """Pools each sequence of a level to one row, like Paddle's `sequence_pool`.

    Paddle's `average` and `sqrt` are called mean and sqrtn (the sum divided by the
    square root of the length).

    >>> pool(tf.ragged.constant([[1., 3.], [], [2., 4., 6.]]), "mean").numpy()
    array([2., 0., 4.], dtype=float32)
    >>> paragraphs = tf.ragged.constant([[[1., 3.], [8.]], [[5.]]])
    >>> pool(paragraphs, "mean", level=0).numpy()   # of words, not of means
    array([4., 5.], dtype=float32)

    Args:
        x: RaggedTensor or LoDTensor of float16, bfloat16, float32, float64,
            int32 or int64, with rows `[N, ...]`. 16-bit floats are summed in
            float32. Integer means are truncated toward zero.
        combiner: "sum", "mean", "sqrtn", "max", "first" or "last".
        level: The level whose units are pooled, from all of their rows: 0 for
            the outermost; -1 is the last.
        pad_value: Result of an empty sequence: a Python number, or a scalar
            tensor of the dtype of x, which gets no gradient (nor does a
            Variable).
        with_index: For "max", whether to also return the index of the maximum.
        name: Name of the op.

    Returns:
        `[B, ...]`, a Tensor if there is no level above `level`, else the kind of
        x with the levels above. Differentiable in x. With `with_index`, a pair
        of it and the int64 row indices of the first maxima, -1 for empty
        sequences.

    Raises:
        TypeError: x has another type or dtype, or `pad_value` another dtype.
        ValueError: `combiner` is unknown, `with_index` is used without "max",
            x has no such level, or `pad_value` does not fit its dtype.
        tf.errors.InvalidArgumentError: Splits are invalid.
    """
    check_combiner(combiner)
    if with_index and combiner != "max":
        raise ValueError(
            f"`with_index` requires combiner 'max', got {combiner!r}."
        )
    values, splits = nesting.flatten("x", x, _DTYPES)
    row_splits, level = nesting.rows_of_units(splits, level)
    with tf.name_scope(name or "sequence_pool"):
        above = splits[:level]
        pooled, index = sequence_ops.sequence_pool(
            values,
            row_splits,
            as_dtype_of("pad_value", pad_value, values.dtype, "`x`"),
            combiner,
        )
        pooled = nesting.pack_like(x, pooled, above)
        if not with_index:
            return pooled
        return pooled, nesting.pack_like(x, index, above)
