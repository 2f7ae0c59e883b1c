"""Scaled dot-product attention inside sequences."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import FLOAT_DTYPES, after, check_dtype
from lodestar.ops import symbolic_build
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged import LoDTensor, padding
from lodestar.sequence import nesting

# Sequences are padded in this number of groups, each of at most a fraction of the
# longest length of the one before. More groups save little on Zipf-distributed
# lengths, and each adds the time of its ops, which shows at small batches.
_GROUPS = 2
_FRACTION = 4


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
        keys,
        values,
        splits,
        functools.partial(
            _padded, causal=causal, change_weights=change_weights
        ),
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
    keys: tf.Tensor,
    values: tf.Tensor,
    mask: tf.Tensor,
    causal: bool,
    change_weights: Callable[[tf.Tensor], tf.Tensor] | None,
) -> tf.Tensor:
    """Returns the attention of padded sequences, `[B, heads, T, dv]`."""
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
    return tf.matmul(weights, values)


def _in_groups(
    queries: tf.Tensor,
    query_splits: tf.Tensor,
    keys: tf.Tensor,
    values: tf.Tensor,
    splits: tf.Tensor,
    function: Callable[..., tf.Tensor],
) -> tf.Tensor:
    """Calls `function` on padded sequences of similar lengths.

    Args:
        queries: Rows `[N, heads, d]`.
        query_splits: Splits of B sequences of queries.
        keys: Rows `[M, heads, d]`.
        values: Rows `[M, heads, dv]`.
        splits: Splits of B sequences of keys and values.
        function: Called with sequences of queries `[G, heads, T, d]`, keys
            `[G, heads, S, d]` and values `[G, heads, S, dv]`, padded with zeros, and
            the mask of the keys `[G, S]`. Returns `[G, heads, T, dv]`.

    Returns:
        The rows of the results `[N, heads, dv]`, in the order of `queries`.
    """
    query_lengths = query_splits[1:] - query_splits[:-1]
    key_lengths = splits[1:] - splits[:-1]
    lengths = tf.maximum(query_lengths, key_lengths)
    longest = tf.reduce_max(tf.concat([lengths, [1]], 0))
    group = tf.add_n(
        [
            tf.cast(lengths * _FRACTION**k <= longest, tf.int32)
            for k in range(1, _GROUPS)
        ]
    )
    of_queries = _Groups(query_lengths, group)
    if query_splits is splits:
        padded = of_queries.padded(queries, keys, values)
    else:
        of_keys = _Groups(key_lengths, group).padded(keys, values)
        padded = [
            (*query, *others)
            for (*query, _), others in zip(
                of_queries.padded(queries), of_keys, strict=True
            )
        ]
    return of_queries.rows([function(*tensors) for tensors in padded])


class _Groups:
    """Sequences in groups that are padded separately.

    Args:
        lengths: Length of each sequence.
        group: Number of the group of each sequence.
    """

    def __init__(self, lengths: tf.Tensor, group: tf.Tensor):
        group_of_rows = tf.repeat(group, lengths)
        places = tf.dynamic_partition(
            tf.range(tf.size(group_of_rows)), group_of_rows, _GROUPS
        )
        self._sizes = [tf.size(x) for x in places]
        self._order = tf.concat(places, 0)
        self._inverse = tf.scatter_nd(
            self._order[:, tf.newaxis],
            tf.range(tf.size(self._order)),
            tf.shape(self._order),
        )
        self._lengths = tf.dynamic_partition(lengths, group, _GROUPS)

    def padded(self, *rows: tf.Tensor) -> list[tuple[tf.Tensor, ...]]:
        """Returns the padded sequences `[G, heads, T, dim]` of each group, and masks.

        One tensor of all rows is moved and padded faster than several.
        """
        dims = [x.shape[-1] for x in rows]
        ordered = nesting.permute(
            tf.concat(rows, -1), self._order, self._inverse
        )
        parts = tf.split(ordered, self._sizes, num=_GROUPS)
        padded = []
        for part, lengths in zip(parts, self._lengths, strict=True):
            splits = tf.cumsum(tf.concat([[0], lengths], 0))
            longest = tf.reduce_max(tf.concat([lengths, [0]], 0))
            sequences, _ = padding.to_padded(part, splits, None, longest)
            sequences = tf.transpose(sequences, [0, 2, 1, 3])
            mask = tf.sequence_mask(lengths, longest)
            padded.append((*tf.split(sequences, dims, -1), mask))
        return padded

    def rows(self, padded: list[tf.Tensor]) -> tf.Tensor:
        """Returns the rows of padded sequences in their original order."""
        rows = [
            padding.from_padded(tf.transpose(part, [0, 2, 1, 3]), lengths)[0]
            for part, lengths in zip(padded, self._lengths, strict=True)
        ]
        return nesting.permute(tf.concat(rows, 0), self._inverse, self._order)
