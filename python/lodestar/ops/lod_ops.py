"""Ops of level-of-detail offsets.

A level is an int64 vector of offsets; levels come outermost first.
"""

from collections.abc import Sequence

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.ops.stand_ins import replaceable


def lod_validate(num_rows: tf.Tensor, levels: Sequence[tf.Tensor]):
    """Returns the levels themselves, checked by the op at run time."""
    return list(gen_ops.lodestar_lod_validate(num_rows=num_rows, levels=levels))


def lod_from_lengths(lengths: Sequence[tf.Tensor]):
    """Returns the offsets of units of these lengths, level by level."""
    return list(gen_ops.lodestar_lod_from_lengths(lengths=lengths))


@replaceable
def lod_to_absolute(levels: Sequence[tf.Tensor]):
    """Returns the levels in row offsets."""
    return list(gen_ops.lodestar_lod_to_absolute(levels=levels))


def lod_from_absolute(absolute: Sequence[tf.Tensor]):
    """Returns levels that index the next one, from levels in row offsets."""
    return list(gen_ops.lodestar_lod_from_absolute(absolute=absolute))


def lod_slice(
    num_rows: tf.Tensor,
    levels: Sequence[tf.Tensor],
    level: int,
    begin: tf.Tensor,
    end: tf.Tensor,
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Returns the row range `[2]` of units, and their levels from `level` on."""
    row_range, sliced = gen_ops.lodestar_lod_slice(
        num_rows=num_rows,
        begin=begin,
        end=end,
        levels=levels,
        num_sliced=len(levels) - level,
    )
    return row_range, list(sliced)


def lod_from_sparse(
    indices: tf.Tensor,
    dense_shape: tf.Tensor,
    num_levels: int,
    drop_columns: bool,
) -> list[tf.Tensor]:
    """Returns the levels of a sparse tensor of `num_levels + 1` dimensions."""
    return list(
        gen_ops.lodestar_lod_from_sparse(
            indices=indices,
            dense_shape=dense_shape,
            num_levels=num_levels,
            drop_columns=drop_columns,
        )
    )
