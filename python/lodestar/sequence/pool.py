"""Pooling of sequences."""

import tensorflow as tf

from lodestar.ops import sequence_pool_ops
from lodestar.ragged import LoDTensor
from lodestar.ragged.arguments import as_dtype_of
from lodestar.sequence import nesting

_COMBINERS = ("sum", "mean", "sqrtn", "max", "first", "last")
_DTYPES = nesting.FLOAT_DTYPES + nesting.INT_DTYPES
_PADDLE_NAMES = {"average": "mean", "sqrt": "sqrtn"}


def check_combiner(combiner: str) -> None:
    """Raises ValueError unless `combiner` is one of ours."""
    if combiner in _PADDLE_NAMES:
        raise ValueError(
            f"`combiner` is {combiner!r}, which is called "
            f"{_PADDLE_NAMES[combiner]!r} here"
        )
    if combiner not in _COMBINERS:
        raise ValueError(
            f"`combiner` is {combiner!r}, wanted one of {', '.join(_COMBINERS)}"
        )


def pool(
    x: tf.RaggedTensor | LoDTensor,
    combiner: str = "sum",
    *,
    pad_value: float = 0.0,
    with_index: bool = False,
    name: str | None = None,
):
    """Pools the innermost sequences to one row each.

    The semantics of Paddle's `sequence_pool`, whose `average` is mean here and
    whose `sqrt` is sqrtn (the sum over the root of the length).

    >>> pool(tf.ragged.constant([[1., 3.], [], [2., 4., 6.]]), "mean").numpy()
    array([2., 0., 4.], dtype=float32)

    Args:
      x: RaggedTensor or LoDTensor of float16, bfloat16, float32, float64,
        int32 or int64; `flat_values` (or `values`) `[N, ...]`. 16-bit floats
        are summed in float32. Integer means are cut toward zero.
      combiner: "sum", "mean", "sqrtn", "max", "first" or "last".
      pad_value: What an empty sequence gives: a Python number, or a scalar
        tensor of the dtype of x, which gets no gradient (nor does a Variable).
      with_index: For "max", also returns which row won.
      name: A name for the op.

    Returns:
      `[B, ...]`, a Tensor if x has one level, else a RaggedTensor or LoDTensor
      (as x is) with the levels above. Differentiable in x. With `with_index` a
      pair of it and the int64 row indices of the first maxima, -1 in empty
      sequences.

    Raises:
      TypeError: x is neither, or of another dtype; a `pad_value` tensor of
        another dtype than x.
      ValueError: another combiner; `with_index` without "max"; x has no
        level; a `pad_value` that is none of x's integers.
      tf.errors.InvalidArgumentError: splits that are no splits of the rows.
    """
    check_combiner(combiner)
    if with_index and combiner != "max":
        raise ValueError(f"`with_index` goes with 'max', not {combiner!r}")
    values, splits = nesting.flatten("x", x, _DTYPES)
    with tf.name_scope(name or "sequence_pool"):
        pooled, index = sequence_pool_ops.sequence_pool(
            values,
            splits[-1],
            combiner,
            as_dtype_of("pad_value", pad_value, values.dtype, "`x`"),
        )
        pooled = nesting.pack_like(x, pooled, splits[:-1])
        if not with_index:
            return pooled
        return pooled, nesting.pack_like(x, index, splits[:-1])


def first_step(x: tf.RaggedTensor | LoDTensor, *, name: str | None = None):
    """Returns the first row of each innermost sequence, 0 for an empty one.

    Paddle's `sequence_first_step`: `pool(x, "first")`.
    """
    return pool(x, "first", name=name or "sequence_first_step")


def last_step(x: tf.RaggedTensor | LoDTensor, *, name: str | None = None):
    """Returns the last row of each innermost sequence, 0 for an empty one.

    Paddle's `sequence_last_step`: `pool(x, "last")`.
    """
    return pool(x, "last", name=name or "sequence_last_step")
