"""The op that says where numbers of sequences go in a matrix."""

from collections.abc import Sequence

import tensorflow as tf

from lodestar._library import gen_ops


def sequence_scatter_places(
    index: tf.Tensor,
    index_lod: Sequence[tf.Tensor],
    updates_lod: Sequence[tf.Tensor],
    updates_shape: tf.Tensor,
    x_shape: tf.Tensor,
) -> tf.Tensor:
    """Returns the flat place `[P]` of each index in the first two dimensions.

    All are int64; the levels, outermost first, must be the same. Checks that
    updates of `[P, ...]` go into rows of x, `[B, width, ...]`.
    """
    return gen_ops.lodestar_sequence_scatter_places(
        index=index,
        index_lod=index_lod,
        updates_lod=updates_lod,
        updates_shape=updates_shape,
        x_shape=x_shape,
    )


tf.no_gradient("Lodestar>SequenceScatterPlaces")
