"""Replaces the sequence ops of `lodestar.ops` by functions of equal names.

Results are equal bit for bit unless noted otherwise.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from lodestar._checks import after, assert_true
from lodestar.export.plain import segments
from lodestar.ops import lod_ops, sequence_ops


def functions() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Returns op -> replacement for `ops.stand_ins.stand_ins`."""
    return {
        lod_ops.lod_validate: lod_validate,
        sequence_ops.sequence_context: sequence_context,
        sequence_ops.sequence_expand: sequence_expand,
        sequence_ops.sequence_expand_as: sequence_expand_as,
        sequence_ops.sequence_pad: sequence_pad,
        sequence_ops.sequence_unpad: sequence_unpad,
        sequence_ops.sequence_pool: sequence_pool,
        sequence_ops.sequence_softmax: sequence_softmax,
    }


def _rows(
    values: tf.Tensor, row_splits: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns checked splits, each row's sequence and the number of sequences."""
    size = tf.shape(values, tf.int64)[0]
    row_splits = segments.checked(row_splits, size, "rows")
    sequences = segments.segment_ids(row_splits, size)
    return row_splits, sequences, tf.size(row_splits, tf.int64) - 1


def _over(mask: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Reshapes a mask over the first axes of `rows` to broadcast to `rows`."""
    ones = tf.ones([tf.rank(rows) - tf.rank(mask)], tf.int32)
    return tf.reshape(mask, tf.concat([tf.shape(mask), ones], 0))


def _shaped(x: tf.Tensor, lead: list[Any], values: tf.Tensor) -> tf.Tensor:
    """Sets the static shape of `x` to `lead` and the row shape of `values`."""
    shape = tf.TensorShape(lead).concatenate(values.shape[1:])
    return tf.ensure_shape(x, shape)


def lod_validate(
    num_rows: tf.Tensor, levels: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Replaces `lod_ops.lod_validate`."""
    units = [tf.size(level, tf.int64) - 1 for level in levels[1:]]
    return [
        segments.checked(level, end, "units or rows")
        for level, end in zip(levels, [*units, num_rows], strict=True)
    ]


def sequence_pool(
    values: tf.Tensor,
    row_splits: tf.Tensor,
    pad_value: tf.Tensor,
    combiner: str = "sum",
) -> tuple[tf.Tensor, tf.Tensor]:
    """Adds rows in order: 16-bit floats as float32, int32 as int64."""
    row_splits, sequences, count = _rows(values, row_splits)
    lengths = row_splits[1:] - row_splits[:-1]
    dtype = values.dtype
    index = tf.zeros([0], tf.int64)
    if combiner in ("first", "last"):
        places = row_splits[:-1] if combiner == "first" else row_splits[1:] - 1
        # Append a row, since there may be none to gather.
        pad = tf.one_hot([-1, 0], tf.rank(values), 1, 0, axis=0, dtype=tf.int32)
        padded = tf.pad(values, pad)
        pooled = tf.gather(padded, tf.where(lengths > 0, places, 0))
    elif combiner == "max":
        wide = tf.cast(values, tf.float32) if dtype.size == 2 else values
        pooled = segments.maxima(wide, sequences, count)
        index = _first_equal(wide, pooled, sequences, count)
        index = tf.where(_over(lengths > 0, index), index, -1)
    else:
        wide = values
        if dtype == tf.int32:
            wide = tf.cast(values, tf.int64)
        elif dtype.size == 2:
            wide = tf.cast(values, tf.float32)
        pooled = tf.math.unsorted_segment_sum(wide, sequences, count)
        pooled = _divide(pooled, lengths, combiner)
    pooled = tf.cast(pooled, dtype)
    empty = _over(tf.equal(lengths, 0), pooled)
    pooled = tf.where(empty, pad_value, pooled)
    return _shaped(pooled, [None], values), index


def _first_equal(
    values: tf.Tensor, pooled: tf.Tensor, sequences: tf.Tensor, count: tf.Tensor
) -> tf.Tensor:
    """Returns the row of the first element that equals the pooled value."""
    equal = tf.equal(values, tf.gather(pooled, sequences))
    places = tf.range(tf.shape(values, tf.int64)[0])
    places = tf.where(equal, _over(places, values), tf.int64.max)
    return tf.math.unsorted_segment_min(places, sequences, count)


def _divide(pooled: tf.Tensor, lengths: tf.Tensor, combiner: str) -> tf.Tensor:
    lengths = _over(tf.maximum(lengths, 1), pooled)
    if combiner == "mean":
        divisor = tf.cast(lengths, pooled.dtype)
        if pooled.dtype.is_integer:
            return tf.truncatediv(pooled, divisor)
        return pooled / divisor
    if combiner == "sqrtn":
        root = tf.sqrt(tf.cast(lengths, tf.float64))
        if pooled.dtype.is_integer:
            # A single row is exact, also beyond the range of float64.
            quotient = tf.cast(tf.cast(pooled, tf.float64) / root, pooled.dtype)
            return tf.where(tf.equal(lengths, 1), pooled, quotient)
        return pooled / tf.cast(root, pooled.dtype)
    return pooled


def sequence_pad(
    values: tf.Tensor,
    row_splits: tf.Tensor,
    pad_value: tf.Tensor,
    maxlen: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Raises at run time if a sequence is longer than `maxlen`."""
    row_splits, _, _ = _rows(values, row_splits)
    lengths = row_splits[1:] - row_splits[:-1]
    longest = tf.reduce_max(tf.concat([lengths, [0]], 0))
    static = tf.get_static_value(maxlen)
    steps = tf.where(maxlen < 0, longest, maxlen)
    check = assert_true(
        longest <= steps,
        ["A sequence has", longest, "rows, more than `maxlen`:", steps],
    )
    ragged = tf.RaggedTensor.from_row_splits(
        values, after(check, row_splits), validate=False
    )
    shape = [tf.size(lengths, tf.int64), steps]
    shape = tf.concat([shape, tf.shape(values, tf.int64)[1:]], 0)
    padded = ragged.to_tensor(default_value=pad_value, shape=shape)
    known = static if static is not None and static >= 0 else None
    return _shaped(padded, [None, known], values), lengths


def sequence_unpad(
    padded: tf.Tensor, lengths: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Raises at run time if a length is out of range."""
    shape = tf.shape(padded, tf.int64)
    good = tf.logical_and(
        tf.equal(tf.size(lengths, tf.int64), shape[0]),
        tf.reduce_all(tf.logical_and(lengths >= 0, lengths <= shape[1])),
    )
    check = assert_true(
        good,
        [
            *("`lengths` must be", shape[0], "values from 0 to", shape[1]),
            *("but are:", lengths),
        ],
    )
    inside = tf.sequence_mask(after(check, lengths), shape[1])
    # A mask must have a static rank.
    flat = tf.reshape(padded, tf.concat([[shape[0] * shape[1]], shape[2:]], 0))
    values = tf.boolean_mask(flat, tf.reshape(inside, [-1]))
    values = tf.ensure_shape(
        values, tf.TensorShape([None]).concatenate(padded.shape[2:])
    )
    return values, _splits_of(lengths)


def _splits_of(lengths: tf.Tensor) -> tf.Tensor:
    return tf.concat([[0], tf.cumsum(lengths)], 0)


def sequence_softmax(values: tf.Tensor, row_splits: tf.Tensor) -> tf.Tensor:
    """Equals the op up to the rounding of exponentials."""
    _, sequences, count = _rows(values, row_splits)
    wide = tf.cast(values, tf.float32) if values.dtype.size == 2 else values
    largest = tf.math.unsorted_segment_max(wide, sequences, count)
    numbers = tf.exp(wide - tf.gather(largest, sequences))
    totals = tf.math.unsorted_segment_sum(numbers, sequences, count)
    numbers /= tf.gather(totals, sequences)
    return _shaped(tf.cast(numbers, values.dtype), [None], values)


def sequence_context(
    values: tf.Tensor,
    row_splits: tf.Tensor,
    pad_value: tf.Tensor,
    start: int,
    size: int,
) -> tf.Tensor:
    """Replaces `sequence_ops.sequence_context`."""
    row_splits, sequences, _ = _rows(values, row_splits)
    begins = tf.gather(row_splits, sequences)[:, tf.newaxis]
    ends = tf.gather(row_splits, sequences + 1)[:, tf.newaxis]
    places = tf.range(tf.size(sequences, tf.int64))[:, tf.newaxis]
    places += start + tf.range(size, dtype=tf.int64)
    inside = tf.logical_and(places >= begins, places < ends)
    windows = tf.gather(values, tf.where(inside, places, 0))
    windows = tf.where(_over(inside, windows), windows, pad_value)
    return _shaped(windows, [None, size], values)


def sequence_expand(
    values: tf.Tensor, row_splits: tf.Tensor, ref_splits: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Replaces `sequence_ops.sequence_expand`."""
    row_splits, _, count = _rows(values, row_splits)
    ref_splits = segments.checked(ref_splits, ref_splits[-1], "repetitions")
    units = tf.size(ref_splits, tf.int64) - 1
    # If `y` has no units, `x` stays unchanged.
    times = tf.cond(
        tf.equal(units, 0),
        lambda: tf.ones([count], tf.int64),
        lambda: ref_splits[1:] - ref_splits[:-1],
    )
    check = assert_true(
        tf.equal(tf.size(times, tf.int64), count),
        ["`x` has", count, "units, but `y` has", units],
    )
    times = after(check, times)
    repetitions = segments.segment_ids(_splits_of(times), tf.reduce_sum(times))
    begins = tf.gather(row_splits, repetitions)
    ends = tf.gather(row_splits, repetitions + 1)
    places = tf.ragged.range(begins, ends, row_splits_dtype=tf.int64)
    return tf.gather(values, places.values), places.row_splits


def sequence_expand_as(values: tf.Tensor, row_splits: tf.Tensor) -> tf.Tensor:
    """Replaces `sequence_ops.sequence_expand_as`."""
    size = tf.shape(values, tf.int64)[0]
    row_splits = segments.checked(row_splits, row_splits[-1], "rows")
    check = assert_true(
        tf.equal(tf.size(row_splits, tf.int64) - 1, size),
        ["`x` has", size, "rows, but there are splits", row_splits],
    )
    row_splits = after(check, row_splits)
    places = segments.segment_ids(row_splits, row_splits[-1])
    return tf.gather(values, places)
