"""Bags of ids -> one row each, by stock ops."""

from collections.abc import Callable

import tensorflow as tf

from lodestar.export.stock import segments

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
    """As `collection_lookup` of one feature: `[B, D]` of the dtype of rows."""
    size = tf.size(ids, tf.int64)
    row_splits = segments.checked(row_splits, size, "ids")
    count = tf.size(row_splits, tf.int64) - 1
    bags = segments.segment_ids(row_splits, size)
    real = tf.ones_like(ids, tf.bool)
    if padding_id is not None:
        real = tf.not_equal(ids, padding_id)
        bags = tf.where(real, bags, -1)
    lengths = tf.math.unsorted_segment_sum(tf.cast(real, tf.int64), bags, count)
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
    count = tf.size(lengths)
    if weights is None:
        total = tf.cast(lengths, rows.dtype)
    else:
        weights = tf.cast(weights, rows.dtype)
        rows = rows * weights[:, tf.newaxis]
        squares = combiner == "sqrtn"
        total = tf.math.unsorted_segment_sum(
            weights * weights if squares else weights, bags, count
        )
    pooled = tf.math.unsorted_segment_sum(rows, bags, count)
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
    """The row of the first or last id; any row where a bag is empty."""
    pick = tf.math.unsorted_segment_max
    if combiner == "first":
        pick = tf.math.unsorted_segment_min
    size = tf.size(ids, tf.int64)
    places = pick(tf.range(size), bags, count)
    inside = tf.logical_and(places >= 0, places < size)
    # The id at the end is there for a batch without ids.
    places = tf.where(inside, places, size)
    return fetch(tf.gather(tf.concat([ids, [0]], 0), places))
