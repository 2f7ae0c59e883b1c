"""Scaled dot-product attention inside sequences."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import FLOAT_DTYPES, after, check_dtype
from lodestar.ops import symbolic_build
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged import LoDTensor, padding
from lodestar.sequence import nesting

# Sequences are padded in this number of groups, each of at most half the longest
# length of the one before. More groups save little on Zipf-distributed lengths, and
# each adds the time of its ops, which shows at small batches.
_GROUPS = 4


@explained()
@takes_keras_tensors
def attention(
    query: tf.Tensor | tf.RaggedTensor | LoDTensor,
    key: tf.RaggedTensor | LoDTensor,
    value: tf.RaggedTensor | LoDTensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    level: int = -1,
    name: str | None = None,
) -> Any:
    """Computes `softmax(query key^T * scale) value` inside each sequence.

    Padded sequences with a mask give the same result, as in
    `keras.layers.MultiHeadAttention`, but sequences of similar length are padded
    together, so time and memory depend little on the longest sequence of the batch.
    `lodestar.layers.SequenceAttention` adds the trained projections.

    >>> query = tf.ragged.constant([[[0.0], [0.0]], [[1.0]]], ragged_rank=1)
    >>> value = tf.ragged.constant([[[2.0], [4.0]], [[5.0]]], ragged_rank=1)
    >>> attention(query, query, value).to_list()
    [[[3.0], [3.0]], [[5.0]]]
    >>> attention(query, query, value, causal=True).to_list()
    [[[2.0], [3.0]], [[5.0]]]

    Args:
        query: RaggedTensor or LoDTensor of float16, bfloat16, float32 or float64, with
            rows `[N, d]`, or `[N, heads, d]` for heads that attend separately. Or a
            Tensor `[B, d]` or `[B, heads, d]` of one query per sequence.
        key: RaggedTensor or LoDTensor of the same dtype and row shape, whose
            sequences may have other lengths.
        value: The same with rows `[M, dv]` or `[M, heads, dv]` and the lengths of
            `key`.
        causal: Whether each query attends only to keys that are not after it.
            Requires: queries and keys of the same lengths.
        scale: Factor of the scores. Defaults to `1 / sqrt(d)`.
        level: The level whose units are sequences, each of all of its rows: 0 for the
            outermost; -1 is the last.
        name: Name of the op.

    Returns:
        Like `query`, with rows `[N, dv]` or `[N, heads, dv]`. Queries of a sequence
        without keys get zeros. Softmaxes of 16-bit floats are computed in float32.
        Differentiable in `query`, `key` and `value`.

    Raises:
        TypeError: An input has another type or dtype.
        ValueError: Row shapes do not fit, there is no such level, or `query` is a
            Tensor and `causal` is set.
        tf.errors.InvalidArgumentError: Numbers or lengths of sequences differ, or
            splits are invalid.
    """
    with tf.name_scope(name or "sequence_attention"):
        return attend(query, key, value, causal, scale, level)


def attend(
    query: Any,
    key: Any,
    value: Any,
    causal: bool,
    scale: float | None = None,
    level: int = -1,
    change_weights: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> Any:
    """Does `attention`; `change_weights` maps the weights `[B, heads, T, S]`."""
    (keys, values), lods = nesting.aligned(
        {"key": key, "value": value}, FLOAT_DTYPES
    )
    splits, _ = nesting.rows_of_units(lods, level)
    per_sequence = _is_dense(query)
    if per_sequence:
        if causal:
            raise ValueError(
                "`causal` must be False for a dense `query`, which has no position "
                "in the sequence."
            )
        queries = check_dtype(
            "query", tf.convert_to_tensor(query), FLOAT_DTYPES
        )
        query_splits = tf.range(tf.shape(queries, tf.int64)[0] + 1)
    else:
        queries, query_lods = nesting.flatten("query", query, FLOAT_DTYPES)
        query_splits, _ = nesting.rows_of_units(query_lods, level)
    _check_rows(queries, keys, values)
    if query_splits is not splits:
        check = (
            nesting.check_same_lengths if causal else nesting.check_same_number
        )
        queries = after(check("query", query_splits, "key", splits), queries)
    one_head = queries.shape.rank == 2
    if one_head:
        queries, keys, values = (
            x[:, tf.newaxis] for x in (queries, keys, values)
        )
    if scale is None:
        scale = queries.shape[-1] ** -0.5
    rows = _in_groups(
        queries * tf.convert_to_tensor(scale, queries.dtype),
        query_splits,
        tf.concat([keys, values], 2),
        splits,
        lambda q, kv, mask: _padded(q, kv, mask, causal, change_weights),
    )
    rows = tf.ensure_shape(rows, [None, queries.shape[1], values.shape[-1]])
    if one_head:
        rows = rows[:, 0]
    return rows if per_sequence else nesting.pack_like(query, rows, query_lods)


def _is_dense(query: Any) -> bool:
    """Whether `query` has one row per sequence.

    A placeholder of a ragged tensor has a dimension of unknown size.
    """
    if isinstance(query, tf.RaggedTensor | LoDTensor):
        return False
    ragged = isinstance(symbolic_build.as_ragged(query), tf.RaggedTensor)
    return not ragged or query.shape[1:].is_fully_defined()


def _check_rows(queries: tf.Tensor, keys: tf.Tensor, values: tf.Tensor) -> None:
    """Raises TypeError or ValueError unless rows fit to each other."""
    shapes = {"query": queries, "key": keys, "value": values}
    for name, rows in shapes.items():
        if rows.dtype != queries.dtype:
            raise TypeError(
                f"`{name}` must have dtype {queries.dtype.name}, like `query`, got "
                f"{rows.dtype.name}."
            )
        if rows.shape.rank not in (2, 3) or None in rows.shape[1:].as_list():
            raise ValueError(
                f"`{name}` must have rows of a static shape [dim] or [heads, dim], "
                f"got {rows.shape[1:]}."
            )
    if (
        keys.shape[1:] != queries.shape[1:]
        or values.shape[1:-1] != keys.shape[1:-1]
    ):
        raise ValueError(
            "`key` must have the row shape of `query`, and `value` as many heads, got "
            f"query {queries.shape[1:]}, key {keys.shape[1:]} and value "
            f"{values.shape[1:]}."
        )


def _padded(
    queries: tf.Tensor,
    keys_and_values: tf.Tensor,
    mask: tf.Tensor,
    causal: bool,
    change_weights: Callable[[tf.Tensor], tf.Tensor] | None,
) -> tf.Tensor:
    """Returns the attention of padded sequences, `[B, T, heads, dv]`."""
    dim = queries.shape[-1]
    queries = tf.transpose(queries, [0, 2, 1, 3])
    keys_and_values = tf.transpose(keys_and_values, [0, 2, 1, 3])
    keys, values = keys_and_values[..., :dim], keys_and_values[..., dim:]
    scores = tf.matmul(queries, keys, transpose_b=True)
    if scores.dtype.size == 2:
        scores = tf.cast(scores, tf.float32)
    mask = mask[:, tf.newaxis, tf.newaxis, :]
    if causal:
        steps = tf.range(tf.shape(scores)[-1])
        mask &= steps[:, tf.newaxis] >= steps
    # A finite number, so that queries without keys get the zeros of the padding.
    weights = tf.nn.softmax(tf.where(mask, scores, scores.dtype.min))
    weights = tf.cast(weights, values.dtype)
    if change_weights is not None:
        weights = change_weights(weights)
    return tf.transpose(tf.matmul(weights, values), [0, 2, 1, 3])


def _in_groups(
    x: tf.Tensor,
    x_splits: tf.Tensor,
    y: tf.Tensor,
    y_splits: tf.Tensor,
    function: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor],
) -> tf.Tensor:
    """Calls `function` on padded sequences of similar lengths.

    Args:
        x: Rows `[N, ...]`.
        x_splits: Splits of B sequences of rows of `x`.
        y: Rows `[M, ...]`.
        y_splits: Splits of B sequences of rows of `y`.
        function: Called with sequences of `x` `[G, T, ...]` and `y` `[G, S, ...]`,
            padded with zeros, and the mask of `y` `[G, S]`. Returns `[G, T, ...]`.

    Returns:
        The rows of the results, in the order of `x`.
    """
    x_lengths = x_splits[1:] - x_splits[:-1]
    y_lengths = y_splits[1:] - y_splits[:-1]
    lengths = tf.maximum(x_lengths, y_lengths)
    longest = tf.reduce_max(tf.concat([lengths, [1]], 0))
    group = tf.add_n(
        [
            tf.cast(lengths * 2**k <= longest, tf.int64)
            for k in range(1, _GROUPS)
        ]
    )
    members = [tf.where(group == k)[:, 0] for k in range(_GROUPS)]
    x_order = _rows_of(members, x_splits)
    y_order = x_order if y_splits is x_splits else _rows_of(members, y_splits)
    results = []
    for units, x_rows, y_rows in zip(
        members,
        _split(_permute(x, *x_order), members, x_lengths),
        _split(_permute(y, *y_order), members, y_lengths),
        strict=True,
    ):
        x_padded, x_count, _ = _pad(x_rows, tf.gather(x_lengths, units))
        y_padded, _, mask = _pad(y_rows, tf.gather(y_lengths, units))
        result = function(x_padded, y_padded, mask)
        results.append(padding.from_padded(result, x_count)[0])
    order, inverse = x_order
    return _permute(tf.concat(results, 0), inverse, order)


def _rows_of(
    members: list[tf.Tensor], splits: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the rows of units in the order of `members`, and the inverse."""
    units = tf.concat(members, 0)
    order = tf.ragged.range(
        tf.gather(splits[:-1], units), tf.gather(splits[1:], units)
    ).flat_values
    places = tf.range(tf.size(order, tf.int64))
    inverse = tf.scatter_nd(
        order[:, tf.newaxis], places, tf.shape(order, tf.int64)
    )
    return order, inverse


@tf.custom_gradient
def _permute(x: tf.Tensor, order: tf.Tensor, inverse: tf.Tensor) -> Any:
    """Gathers each row once, so that the gradient is a gather, not a sum."""

    def gradient(upstream: tf.Tensor) -> Any:
        # Not `_permute`: SavedModels do not contain gradients of gradients, and
        # TensorFlow warns of that when it loads them.
        return tf.gather(upstream, inverse), None, None

    return tf.gather(x, order), gradient


def _split(
    rows: tf.Tensor, members: list[tf.Tensor], lengths: tf.Tensor
) -> list[tf.Tensor]:
    """Splits rows by group."""
    counts = [tf.reduce_sum(tf.gather(lengths, units)) for units in members]
    parts: list[tf.Tensor] = tf.split(rows, counts, num=len(members))
    return parts


def _pad(
    rows: tf.Tensor, lengths: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns padded sequences, their lengths and the mask."""
    splits = tf.concat([[0], tf.cumsum(lengths)], 0)
    longest = tf.reduce_max(tf.concat([lengths, [0]], 0))
    padded, lengths = padding.to_padded(rows, splits, None, longest)
    return padded, lengths, tf.sequence_mask(lengths, longest)
