"""Ops of level-of-detail offsets.

A level is an int64 vector of offsets; levels come outermost first.
"""

from collections.abc import Sequence

import tensorflow as tf

from lodestar._library import gen_ops


def lod_validate(num_rows: tf.Tensor, levels: Sequence[tf.Tensor]):
    """Returns the levels themselves, checked by the op at run time."""
    return list(gen_ops.lodestar_lod_validate(num_rows=num_rows, levels=levels))


def lod_from_lengths(lengths: Sequence[tf.Tensor]):
    """Returns the offsets of units of these lengths, level by level."""
    return list(gen_ops.lodestar_lod_from_lengths(lengths=lengths))


def lod_to_absolute(levels: Sequence[tf.Tensor]):
    """Returns the levels in row offsets."""
    return list(gen_ops.lodestar_lod_to_absolute(levels=levels))


def lod_from_absolute(absolute: Sequence[tf.Tensor]):
    """Returns levels that index the next one, from levels in row offsets."""
    return list(gen_ops.lodestar_lod_from_absolute(absolute=absolute))
