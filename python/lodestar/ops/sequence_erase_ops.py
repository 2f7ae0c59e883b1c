"""The op that drops tokens of sequences."""

import tensorflow as tf

from lodestar._library import gen_ops


def sequence_erase(
    values: tf.Tensor, row_splits: tf.Tensor, tokens: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the rows that are not in `tokens`, and their splits.

    `values` is `[N]` or `[N, 1]`, `row_splits` int64 `[B + 1]`, and `tokens`
    `[T]` of the dtype of `values`.
    """
    return gen_ops.lodestar_sequence_erase(
        values=values, row_splits=row_splits, tokens=tokens
    )


tf.no_gradient("Lodestar>SequenceErase")
