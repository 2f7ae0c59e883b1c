"""Pools the rows of bags of ids with plain TensorFlow ops."""

from collections.abc import Callable

import tensorflow as tf

from lodestar.export.plain import segments

# ids [M] -> their rows [M, D].
Fetch = Callable[[tf.Tensor], tf.Tensor]


def pool(
    fetch: Fetch,
    ids: tf.Tensor,
    row_splits: tf.Tensor,
    weights: tf.Tensor | None,
    combiner: str,
    padding_id: int | None,
    default_id: int | None,
) -> tf.Tensor:
    """Replaces `collection_lookup` for one feature; returns `[B, D]`."""
    size = tf.size(ids, tf.int64)
    row_splits = segments.checked(row_splits, size, "ids")
    count = tf.size(row_splits, tf.int64) - 1
    bags = segments.segment_ids(row_splits, size)
    # Append an id outside all bags: ONNX Runtime cannot sum an empty tensor.
    ids = tf.concat([ids, [0]], 0)
    bags = tf.concat([bags, count[tf.newaxis]], 0)
    if weights is not None:
        weights = tf.concat([weights, [0.0]], 0)
    real = tf.ones_like(ids, tf.bool)
    if padding_id is not None:
        real = tf.not_equal(ids, padding_id)
        bags = tf.where(real, bags, count)
    lengths = segments.sums(tf.cast(real, tf.int64), bags, count)
    if combiner in ("first", "last"):
        pooled = _pick(fetch, ids, bags, count, combiner)
        dtype = pooled.dtype
    else:
        rows = fetch(ids)
        dtype = rows.dtype
        if dtype.size == 2:  # rounded once, at the end
            rows = tf.cast(rows, tf.float32)
        if combiner == "max":
            pooled = segments.maxima(rows, bags, count)
        else:
            pooled = _sums(rows, weights, bags, lengths, combiner)
    empty = tf.equal(lengths, 0)[:, tf.newaxis]
    pooled = tf.where(empty, tf.zeros_like(pooled), pooled)
    pooled = tf.cast(pooled, dtype)
    if default_id is not None:
        default = fetch(tf.constant([default_id], tf.int64))
        pooled = tf.where(empty, default, pooled)
    return pooled


def _sums(
    rows: tf.Tensor,
    weights: tf.Tensor | None,
    bags: tf.Tensor,
    lengths: tf.Tensor,
    combiner: str,
) -> tf.Tensor:
    count = tf.size(lengths, tf.int64)
    if weights is None:
        total = tf.cast(lengths, rows.dtype)
    else:
        weights = tf.cast(weights, rows.dtype)
        rows = rows * weights[:, tf.newaxis]
        squares = combiner == "sqrtn"
        total = segments.sums(
            weights * weights if squares else weights, bags, count
        )
    pooled = segments.sums(rows, bags, count)
    if combiner == "sum":
        return pooled
    if combiner == "sqrtn":
        total = tf.sqrt(total)
    return tf.math.divide_no_nan(pooled, total[:, tf.newaxis])


def _pick(
    fetch: Fetch,
    ids: tf.Tensor,
    bags: tf.Tensor,
    count: tf.Tensor,
    combiner: str,
) -> tf.Tensor:
    """Returns the row of the first or last id; any row for an empty bag."""
    pick = tf.math.unsorted_segment_max
    if combiner == "first":
        pick = tf.math.unsorted_segment_min
    # tf2onnx only converts minima and maxima of floats.
    last = tf.cast(tf.size(ids) - 1, tf.float64)
    places = pick(tf.range(last + 1), bags, count + 1)[:count]
    # Empty bags have the limits of the dtype.
    places = tf.cast(tf.clip_by_value(places, 0, last), tf.int64)
    return fetch(tf.gather(ids, places))
