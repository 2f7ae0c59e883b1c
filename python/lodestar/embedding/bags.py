"""Converts dense, ragged and sparse ids to flat ids in bags, and back."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from lodestar._checks import after, assert_true
from lodestar._typing import AnyTensor
from lodestar.embedding.ids import to_numbers

Pooled = Any  # Tensor or RaggedTensor


class Bags(NamedTuple):
    """Ids in bags, each of which is pooled to one row.

    Attributes:
        ids: int64 `[N]`.
        row_splits: int64 `[B + 1]`.
        weights: float32 `[N]`, or None.
        restore: Reshapes pooled rows `[B, D]` to the shape of the ids without
            their innermost axis, + `[D]`.
    """

    ids: tf.Tensor
    row_splits: tf.Tensor
    weights: tf.Tensor | None
    restore: Callable[[tf.Tensor], Pooled]


def to_bags(ids: AnyTensor, weights: Any = None) -> Bags:
    """Makes the innermost axis of `ids` the bags.

    Args:
        ids: int64; dense `[..., L]`, ragged of any depth, or sparse with
            indices in row-major order.
        weights: None, or numbers in the layout of `ids`.

    Raises:
        ValueError, tf.errors.InvalidArgumentError: An argument is invalid,
            known before the op runs or only then.
    """
    if isinstance(ids, tf.RaggedTensor):
        return _from_ragged(ids, weights)
    if isinstance(ids, tf.SparseTensor):
        return _from_sparse(ids, weights)
    return _from_dense(ids, weights)


def mean_with_padding(
    sums: tf.Tensor,
    ids: tf.Tensor,
    row_splits: tf.Tensor | None,
    weights: tf.Tensor | None,
    max_length: int | None = None,
) -> tf.Tensor:
    """Divides the sums of bags by their numbers of ids, or sums of weights.

    These include padding. Bags without ids are zeros.

    Args:
        sums: `[B, D]`, or dense `[..., D]` without `row_splits`.
        ids: Ids of the bags, in their last axis without `row_splits`.
        row_splits: int64 `[B + 1]`, or None.
        weights: float32, shaped as ids, or None.
        max_length: Maximum number of ids of a bag, or None.
    """
    if weights is None:
        lengths = (
            tf.shape(ids, tf.int64)[-1:]
            if row_splits is None
            else (row_splits[1:] - row_splits[:-1])[:, None]
        )
        if max_length is not None:
            lengths = tf.minimum(lengths, tf.constant(max_length, tf.int64))
        totals = tf.cast(lengths, sums.dtype)
    else:
        if row_splits is not None:
            weights = tf.RaggedTensor.from_row_splits(
                weights, row_splits, validate=False
            )
        if max_length is not None:
            weights = weights[..., :max_length]
        totals = tf.reduce_sum(weights, -1)[..., None]
    return tf.math.divide_no_nan(sums, tf.cast(totals, sums.dtype))


def _as_float(weights: Any) -> tf.Tensor:
    return to_numbers(weights, "weights", tf.float32)


def _layout_error(ids: Any, weights: Any) -> ValueError:
    return ValueError(
        f"`weights` must have the layout of `ids`, a {type(ids).__name__} of "
        f"shape {ids.shape}, got a {type(weights).__name__} of shape "
        f"{getattr(weights, 'shape', None)}."
    )


def dense_weights(ids: tf.Tensor, weights: Any) -> tf.Tensor | None:
    """Returns the weights of dense `ids` as float32, or None."""
    if weights is None:
        return None
    if isinstance(weights, (tf.RaggedTensor, tf.SparseTensor)):
        raise _layout_error(ids, weights)
    weights = _as_float(weights)
    if not weights.shape.is_compatible_with(ids.shape):
        raise _layout_error(ids, weights)
    return weights


def _from_dense(ids: tf.Tensor, weights: Any) -> Bags:
    if ids.shape.rank is None or ids.shape.rank == 0:
        raise ValueError(
            f"`ids` has shape {ids.shape}; a combiner needs a known rank of "
            "at least 1, whose last axis it pools."
        )
    weights = dense_weights(ids, weights)
    if weights is not None:
        if not (
            weights.shape.is_fully_defined() and ids.shape.is_fully_defined()
        ):
            check = tf.debugging.assert_equal(
                tf.shape(weights),
                tf.shape(ids),
                message="`weights` and `ids` differ in shape",
            )
            weights = after(check, weights)
        weights = tf.reshape(weights, [-1])
    shape = tf.shape(ids, tf.int64)
    outer = shape[:-1]
    row_splits = tf.range(tf.reduce_prod(outer) + 1) * shape[-1]

    restore = functools.partial(_by_outer_axes, ids.shape, outer)
    return Bags(tf.reshape(ids, [-1]), row_splits, weights, restore)


def _by_outer_axes(
    static: tf.TensorShape, outer: tf.Tensor, pooled: tf.Tensor
) -> tf.Tensor:
    """Reshapes pooled rows to all axes of the ids but the last."""
    dim = pooled.shape[-1]
    if static.rank != 2:
        pooled = tf.reshape(pooled, tf.concat([outer, [dim]], 0))
    return tf.ensure_shape(pooled, static[:-1].concatenate([dim]))


def _from_ragged(ids: tf.RaggedTensor, weights: Any) -> Bags:
    if weights is not None:
        if (
            not isinstance(weights, tf.RaggedTensor)
            or weights.ragged_rank != ids.ragged_rank
        ):
            raise _layout_error(ids, weights)
        weights = _as_float(_same_splits(ids, weights))
    if ids.flat_values.shape.rank != 1:  # the innermost axis is uniform
        inner = _from_dense(ids.flat_values, weights)
        return inner._replace(
            restore=lambda pooled: ids.with_flat_values(inner.restore(pooled))
        )
    splits = ids.nested_row_splits

    def restore(pooled: tf.Tensor) -> Pooled:
        if len(splits) == 1:
            static = ids.shape[:1].concatenate(pooled.shape[1:])
            return tf.ensure_shape(pooled, static)
        return tf.RaggedTensor.from_nested_row_splits(
            pooled, splits[:-1], validate=False
        )

    row_splits = tf.cast(splits[-1], tf.int64)
    return Bags(ids.flat_values, row_splits, weights, restore)


def _same_splits(ids: tf.RaggedTensor, weights: tf.RaggedTensor) -> tf.Tensor:
    checks = []
    for axis, (a, b) in enumerate(
        zip(ids.nested_row_splits, weights.nested_row_splits), 1
    ):
        if a is b:
            continue
        checks.append(
            assert_true(
                _all_equal(tf.cast(a, tf.int64), tf.cast(b, tf.int64)),
                [
                    f"`weights` and `ids` differ in row_splits of axis {axis}; "
                    "weights:",
                    b,
                    "ids:",
                    a,
                ],
            )
        )
    return after(checks, weights.flat_values)


def _all_equal(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Whether tensors with equal inner dimensions are equal."""
    # The shorter of the two, so that the comparison itself never fails.
    shared = tf.minimum(tf.shape(a)[0], tf.shape(b)[0])
    return tf.logical_and(
        tf.equal(tf.size(a), tf.size(b)),
        tf.reduce_all(tf.equal(a[:shared], b[:shared])),
    )


def _from_sparse(ids: tf.SparseTensor, weights: Any) -> Bags:
    indices, shape = ids.indices, ids.dense_shape
    outer = shape[:-1]
    bag_count = tf.reduce_prod(outer)
    # Row-major number of each value's bag.
    strides = tf.math.cumprod(outer, exclusive=True, reverse=True)
    bags = tf.reduce_sum(indices[:, :-1] * strides, axis=1)
    in_order = tf.reduce_all(
        tf.logical_or(
            bags[1:] > bags[:-1],
            tf.logical_and(
                tf.equal(bags[1:], bags[:-1]),
                indices[1:, -1] > indices[:-1, -1],
            ),
        )
    )
    in_range = tf.reduce_all(tf.logical_and(indices >= 0, indices < shape))
    checks = [
        assert_true(
            in_order,
            [
                "the indices of sparse `ids` are not in row-major order or "
                "not unique; tf.sparse.reorder sorts them"
            ],
        ),
        assert_true(
            in_range, ["an index of sparse `ids` is out of its dense_shape"]
        ),
    ]
    if weights is not None:
        if not isinstance(weights, tf.SparseTensor):
            raise _layout_error(ids, weights)
        checks.append(
            assert_true(
                _all_equal(weights.indices, indices),
                [
                    "sparse `weights` and `ids` differ in indices; weights:",
                    weights.indices,
                    "ids:",
                    indices,
                ],
            )
        )
        weights = _as_float(weights.values)
    row_splits = tf.searchsorted(
        after(checks, bags), tf.range(bag_count + 1), out_type=tf.int64
    )

    restore = functools.partial(_by_outer_axes, ids.shape, outer)
    return Bags(ids.values, row_splits, weights, restore)
