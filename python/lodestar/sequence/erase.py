"""Removal of tokens from sequences."""

import tensorflow as tf

from lodestar._checks import INT_DTYPES, as_dtype_of
from lodestar._typing import TensorLike
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged.arguments import validated
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested

_DTYPES = (*INT_DTYPES, tf.string)


@takes_keras_tensors
def erase(
    x: Nested,
    tokens: TensorLike,
    *,
    name: str | None = None,
) -> Nested:
    """Removes every token in `tokens`, like Paddle's `sequence_erase`.

    A sequence may become empty. There is no `level`: a row that is removed from its
    innermost sequence is removed from the sequences of all levels.

    >>> erase(tf.ragged.constant([[2, 1, 0], [0, 0], [3]]), [0, 2]).to_list()
    [[1], [], [3]]

    Args:
        x: RaggedTensor or LoDTensor of int32, int64 or string, with rows `[N]`
            or `[N, 1]`.
        tokens: `[T]`, of the dtype of x. May be empty.
        name: Name of the op.

    Returns:
        The kind and upper levels of x. No gradient.

    Raises:
        TypeError: x has another type or dtype, or `tokens` another dtype.
        ValueError: x has no level or other rows, or `tokens` is not a vector of
            integers that fit the dtype of x.
        tf.errors.InvalidArgumentError: Splits are invalid.
    """
    rows, splits = nesting.flatten("x", x, _DTYPES)
    nesting.check_one_a_row("x", rows, "token")
    tokens = as_dtype_of("tokens", tokens, rows.dtype, "`x`")
    if tokens.shape.rank not in (None, 1):
        raise ValueError(
            f"`tokens` must have rank 1, got shape {tokens.shape}."
        )
    with tf.name_scope(name or "sequence_erase"):
        rows, splits = validated(rows, splits)
        left, places = tf.raw_ops.ListDiff(
            x=nesting.one_a_row("x", rows, "token"), y=tokens, out_idx=tf.int64
        )
        left_splits = tf.searchsorted(places, splits[-1], out_type=tf.int64)
        left = tf.reshape(left, tf.concat([[-1], tf.shape(rows)[1:]], 0))
        left = tf.ensure_shape(left, [None, *rows.shape[1:]])
        return nesting.pack_like(x, left, (*splits[:-1], left_splits))
