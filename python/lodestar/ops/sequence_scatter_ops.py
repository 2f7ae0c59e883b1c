"""The op that says where numbers of sequences go in a matrix."""

from collections.abc import Sequence

import tensorflow as tf

from lodestar._library import gen_ops


def sequence_scatter_places(
    index: tf.Tensor,
    index_lod: Sequence[tf.Tensor],
    updates_lod: Sequence[tf.Tensor],
    num_updates: tf.Tensor,
    num_rows: tf.Tensor,
    width: tf.Tensor,
) -> tf.Tensor:
    """Returns the flat place `[P]` of each index in `[num_rows, width]`.

    All are int64; the levels, outermost first, must be the same.
    """
    return gen_ops.lodestar_sequence_scatter_places(
        index=index,
        index_lod=index_lod,
        updates_lod=updates_lod,
        num_updates=num_updates,
        num_rows=num_rows,
        width=width,
    )


tf.no_gradient("Lodestar>SequenceScatterPlaces")
