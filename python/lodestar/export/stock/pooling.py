"""Bags of rows combined by stock ops, in the order of our own op.

Rows are added to their bag one after another, in the order of the ids, as
tf.math.unsorted_segment_sum does on a CPU: the sums are the same bit for bit.
"""

from collections.abc import Callable

import tensorflow as tf

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
    """As `embedding_ops.pooled_lookup`: `[B, D]` of the dtype of rows."""
    bag_count = tf.size(row_splits, tf.int64) - 1
    bags = tf.ragged.row_splits_to_segment_ids(row_splits)
    real = tf.ones_like(ids, tf.bool)
    if padding_id is not None:
        real = tf.not_equal(ids, padding_id)
        bags = tf.where(real, bags, -1)  # in none
    counts = tf.math.unsorted_segment_sum(
        tf.cast(real, tf.int64), bags, bag_count
    )
    if combiner in ("first", "last"):
        pooled = _pick(fetch, ids, bags, bag_count, combiner)
        dtype = pooled.dtype
    else:
        rows = fetch(ids)
        dtype = rows.dtype
        if dtype.size == 2:  # rounded once, at the end
            rows = tf.cast(rows, tf.float32)
        if combiner == "max":
            pooled = tf.math.unsorted_segment_max(rows, bags, bag_count)
        else:
            pooled = _sums(rows, weights, bags, counts, combiner)
    empty = tf.equal(counts, 0)[:, tf.newaxis]
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
    counts: tf.Tensor,
    combiner: str,
) -> tf.Tensor:
    bag_count = tf.size(counts)
    if weights is None:
        total = tf.cast(counts, rows.dtype)
    else:
        weights = tf.cast(weights, rows.dtype)
        rows = rows * weights[:, tf.newaxis]
        squares = combiner == "sqrtn"
        total = tf.math.unsorted_segment_sum(
            weights * weights if squares else weights, bags, bag_count
        )
    pooled = tf.math.unsorted_segment_sum(rows, bags, bag_count)
    if combiner == "sum":
        return pooled
    if combiner == "sqrtn":
        total = tf.sqrt(total)
    return tf.math.divide_no_nan(pooled, total[:, tf.newaxis])


def _pick(
    fetch: Fetch,
    ids: tf.Tensor,
    bags: tf.Tensor,
    bag_count: tf.Tensor,
    combiner: str,
) -> tf.Tensor:
    """The row of the first or last id; any row where a bag is empty."""
    choose = (
        tf.math.unsorted_segment_min
        if combiner == "first"
        else tf.math.unsorted_segment_max
    )
    size = tf.size(ids, tf.int64)
    places = choose(tf.range(size), bags, bag_count)
    # Of an empty bag it is the least or the largest int64; the id that is
    # appended is there for a batch without ids.
    inside = tf.logical_and(places >= 0, places < size)
    places = tf.where(inside, places, size)
    return fetch(tf.gather(tf.concat([ids, [0]], 0), places))
