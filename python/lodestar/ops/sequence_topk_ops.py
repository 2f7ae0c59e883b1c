"""The op that finds the largest numbers of rows of uneven matrices."""

import tensorflow as tf

from lodestar._library import gen_ops


def sequence_topk(
    values: tf.Tensor,
    x_splits: tf.Tensor,
    row_splits: tf.Tensor,
    col_splits: tf.Tensor,
    channels: int,
    k: int,
) -> tf.Tensor:
    """Returns the places `[R, channels, k]` in `values`, -1 for none.

    Sequence b of `values` `[N]` holds `channels` matrices of as many rows and
    columns as its sequences in `row_splits` and `col_splits` are long.
    """
    return gen_ops.lodestar_sequence_topk(
        values=values,
        x_splits=x_splits,
        row_splits=row_splits,
        col_splits=col_splits,
        channels=channels,
        k=k,
    )


tf.no_gradient("Lodestar>SequenceTopk")
