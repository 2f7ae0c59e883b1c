"""Conversions of levels: int64 offset vectors, outermost level first."""

from collections.abc import Sequence

import tensorflow as tf

from lodestar._checks import after, assert_none
from lodestar.ops import lod_ops

Levels = tuple[tf.Tensor, ...]


def validated(num_rows: tf.Tensor, levels: Sequence[tf.Tensor]) -> Levels:
    """Returns levels of `num_rows` rows after a check at run time."""
    return tuple(lod_ops.lod_validate(num_rows, levels)) if levels else ()


def after_levels(levels: Levels, tensor: tf.Tensor) -> tf.Tensor:
    """Returns `tensor`, which a graph computes after the check of `validated` levels.

    Even if nothing uses the levels. The check itself is not stateful, so that
    iterators of data sets have checkpoints: they allow `Assert` alone.
    """
    if tf.executing_eagerly() or not levels:
        return tensor
    start = levels[0][0]
    return after(
        tf.raw_ops.Assert(condition=tf.equal(start, 0), data=[start]), tensor
    )


def offsets(lengths: tf.Tensor) -> tf.Tensor:
    """Returns the offsets of units with these lengths."""
    return tf.concat([[0], tf.cumsum(lengths)], 0)


def from_lengths(lengths: Sequence[tf.Tensor]) -> Levels:
    """Returns the offsets of units with lengths, which are at least 0."""

    def of_level(k: int, level: tf.Tensor) -> tf.Tensor:
        check = assert_none(
            level < 0,
            lambda i: [
                *(f"`lengths[{k}][", i, "]` must be at least 0, got "),
                *(tf.gather(level, i), "."),
            ],
        )
        return offsets(after(check, level))

    return tuple(of_level(k, level) for k, level in enumerate(lengths))


def absolute(levels: Sequence[tf.Tensor]) -> Levels:
    """Returns levels that index the next one as levels that all index rows.

    The last level may end anywhere.
    """
    found = validated(tf.reduce_sum(levels[-1][-1:]), levels)[-1:]
    for level in reversed(levels[:-1]):
        found = (tf.gather(found[0], level), *found)
    return found


def from_absolute(levels: Sequence[tf.Tensor]) -> Levels:
    """Returns levels that all index rows as levels that index the next one.

    An empty unit belongs to the unit after it, at the end to the last one. The result
    nests only if the last level is valid.

    Raises:
        tf.errors.InvalidArgumentError: An offset is not one of the next level, or a
            level does not ascend from 0 to the end of the last one (names level,
            value and index).
    """

    def relative(k: int) -> tf.Tensor:
        level, below = levels[k], levels[k + 1]
        units = tf.size(below, tf.int64) - 1
        first = tf.searchsorted(below, level[:-1], out_type=tf.int64)
        # An empty level stays empty, which is an error.
        last = units + tf.zeros_like(level[-1:])
        found = tf.concat([tf.minimum(first, units), last], 0)
        # With both checks, it starts at 0 and ascends if `below` does.
        wrong = tf.not_equal(tf.gather(below, found), level)
        wrong |= level < tf.concat([[0], level[:-1]], 0)
        check = assert_none(
            wrong,
            lambda i: [
                *(f"`lod[{k}][", i, "]`=", tf.gather(level, i)),
                f" must be an offset of `lod[{k + 1}]`. Offsets must ascend from 0 "
                "to the number of rows.",
            ],
        )
        return after(check, found)

    return (*(relative(k) for k in range(len(levels) - 1)), levels[-1])


def cut(
    num_rows: tf.Tensor,
    levels: Sequence[tf.Tensor],
    begin: tf.Tensor,
    end: tf.Tensor,
) -> tuple[tf.Tensor, Levels]:
    """Returns the row range `[2]` of units [begin, end) of the first level.

    And the levels of these units, which begin at 0. Other offsets are not read.

    Raises:
        tf.errors.InvalidArgumentError: Not 0 <= begin <= end <= units, or the offsets
            of the units do not nest.
    """
    units = tf.size(levels[0], tf.int64) - 1
    check = assert_none(
        (begin < 0) | (begin > end) | (end > units),
        lambda _: [
            *("`begin` and `end` must ascend in [0, ", units, "], got ", begin),
            *(" and ", end, "."),
        ],
    )
    begin = after(check, begin)
    found = []
    for level in levels:
        # Too short if a bound is outside of the level.
        part = level[begin : end + 1]
        begin, end = part[0], part[-1]
        found.append(part - begin)
    rows = tf.stack([begin, end])
    inside = tf.clip_by_value(rows, 0, num_rows)
    cut_levels = validated(inside[1] - inside[0], found)
    return after_levels(cut_levels, rows), cut_levels


def from_sparse(
    indices: tf.Tensor, dense_shape: tf.Tensor, rank: int, drop_columns: bool
) -> Levels:
    """Returns the rank - 1 levels of a sparse tensor, as `LoDTensor.from_sparse`."""
    check = assert_none(
        dense_shape < 0,
        lambda d: [
            *("`dense_shape[", d, "]` must be at least 0, got "),
            *(tf.gather(dense_shape, d), "."),
        ],
    )
    outside = tf.reduce_any((indices < 0) | (indices >= dense_shape), 1)
    checks = [
        check,
        assert_none(
            outside,
            lambda i: [
                *(
                    "`indices[",
                    i,
                    "]` must be at least 0 and below `dense_shape` [",
                ),
                *(dense_shape, "], got [", tf.gather(indices, i), "]."),
            ],
        ),
    ]
    inside = after(checks, indices)
    steps = inside[1:] - inside[:-1]
    # The first dimension in which indices differ decides.
    moved = tf.argmax(tf.not_equal(steps, 0), 1)
    check = assert_none(
        tf.gather(steps, moved, batch_dims=1) <= 0,
        lambda i: [
            *(
                "`indices[",
                i + 1,
                "]` is [",
                tf.gather(indices, i + 1),
                "] after [",
            ),
            *(
                tf.gather(indices, i),
                "]. Indices must be in row-major order, and ",
            ),
            "none may repeat.",
        ],
    )
    inside = after(check, inside)
    # The unit of each value, level by level.
    unit, count = inside[:, 0], dense_shape[0]
    levels = []
    for d in range(1, rank - 1):
        lengths = tf.math.unsorted_segment_max(inside[:, d] + 1, unit, count)
        levels.append(offsets(tf.maximum(lengths, 0)))
        unit = tf.gather(levels[-1], unit) + inside[:, d]
        count = levels[-1][-1]
    last = tf.searchsorted(unit, tf.range(count + 1), out_type=tf.int64)
    if not drop_columns:
        column = tf.range(tf.size(unit, tf.int64)) - tf.gather(last, unit)
        check = assert_none(
            tf.not_equal(column, inside[:, -1]),
            lambda i: [
                *(
                    "`indices[",
                    i,
                    f"][{rank - 1}]` must be ",
                    tf.gather(column, i),
                ),
                *(
                    ", got ",
                    tf.gather(inside[:, -1], i),
                    ". The values of a unit ",
                ),
                "must be contiguous.",
            ],
        )
        last = after(check, last)
    return (*levels, last)
