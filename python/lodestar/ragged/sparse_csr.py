"""Sparse matrices as compressed sparse rows (CSR) with column numbers."""

import tensorflow as tf

from lodestar._checks import (
    after,
    as_int64,
    as_vector,
    assert_true,
    check_count,
)
from lodestar._typing import TensorLike
from lodestar.ragged.arguments import as_values, validated


def csr_to_sparse(
    values: TensorLike,
    columns: TensorLike,
    row_offsets: TensorLike,
    num_columns: int,
) -> tf.SparseTensor:
    """Returns a sparse matrix of the values at their columns.

    The arguments are in SciPy's order, which calls them `data`, `indices` and
    `indptr`.

    >>> sparse = csr_to_sparse([7, 8, 9], [2, 0, 1], [0, 2, 2, 3], num_columns=3)
    >>> tf.sparse.to_dense(sparse).numpy().tolist()
    [[8, 0, 7], [0, 0, 0], [0, 9, 0]]

    Args:
        values: `[N]`.
        columns: int64 or int32 `[N]`, in any order within a row.
        row_offsets: int64 or int32 `[rows + 1]`.
        num_columns: Number of columns.

    Returns:
        A SparseTensor of shape `[rows, num_columns]` with indices in row-major order.
        Differentiable in `values`.

    Raises:
        ValueError: `num_columns` is below 0, or an argument is not a vector.
        tf.errors.InvalidArgumentError: The offsets do not cover the values, the
            numbers of columns and values differ, a column is outside of
            [0, num_columns), or a row has a column twice.
    """
    check_count("num_columns", num_columns, 0)
    values = as_values(values)
    if values.shape.rank not in (None, 1):
        raise ValueError(
            f"`values` must be a vector, got shape {values.shape}."
        )
    columns = as_vector("columns", columns)
    offsets = as_vector("row_offsets", row_offsets)
    _, (offsets,) = validated(values, [offsets])
    width = tf.constant(num_columns, tf.int64)
    check = tf.debugging.assert_equal(
        tf.size(columns),
        tf.size(values),
        "`columns` and `values` have different numbers of elements",
    )
    columns = after(check, columns)
    outside = tf.logical_or(columns < 0, columns >= width)
    check = assert_true(
        tf.logical_not(tf.reduce_any(outside)),
        [
            f"`columns` must be in [0, {num_columns}), got",
            tf.boolean_mask(columns, outside),
        ],
    )
    columns = after(check, columns)
    rows = tf.ragged.row_splits_to_segment_ids(offsets, out_type=tf.int64)
    num_rows = tf.size(offsets, tf.int64) - 1
    sparse = tf.sparse.reorder(
        tf.SparseTensor(
            tf.stack([rows, columns], 1), values, tf.stack([num_rows, width])
        )
    )
    repeated = tf.reduce_all(sparse.indices[1:] == sparse.indices[:-1], 1)
    check = assert_true(
        tf.logical_not(tf.reduce_any(repeated)),
        [
            "a row has a column twice; rows and columns:",
            tf.boolean_mask(sparse.indices[1:], repeated),
        ],
    )
    return tf.SparseTensor(
        after(check, sparse.indices), sparse.values, sparse.dense_shape
    )


def sparse_to_csr(
    sparse: tf.SparseTensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the values, columns and row offsets of a sparse matrix.

    The inverse of `csr_to_sparse`. SciPy's `csr_matrix` takes the result.

    >>> sparse = tf.sparse.from_dense([[8, 0, 7], [0, 0, 0], [0, 9, 0]])
    >>> [x.numpy().tolist() for x in sparse_to_csr(sparse)]
    [[8, 7, 9], [0, 2, 1], [0, 2, 2, 3]]

    Args:
        sparse: SparseTensor of rank 2, with indices in any order.

    Returns:
        values: `[N]`, by ascending row and column. Differentiable in the values.
        columns: int64 `[N]`.
        row_offsets: int64 `[rows + 1]`.

    Raises:
        TypeError: `sparse` is not a SparseTensor.
        ValueError: Its rank is not 2.
        tf.errors.InvalidArgumentError: An index is outside of the shape.
    """
    if not isinstance(sparse, tf.SparseTensor):
        raise TypeError(
            f"`sparse` must be a tf.SparseTensor, got {type(sparse).__name__}."
        )
    if sparse.shape.rank != 2:
        raise ValueError(
            f"`sparse` must have rank 2, got shape {sparse.shape}."
        )
    outside = tf.logical_or(
        sparse.indices < 0, sparse.indices >= sparse.dense_shape
    )
    check = assert_true(
        tf.logical_not(tf.reduce_any(outside)),
        [
            "an index of `sparse` is outside of its shape",
            sparse.dense_shape,
            "; rows and columns:",
            tf.boolean_mask(sparse.indices, tf.reduce_any(outside, 1)),
        ],
    )
    indices = after(check, sparse.indices)
    ordered = tf.sparse.reorder(
        tf.SparseTensor(indices, sparse.values, sparse.dense_shape)
    )
    rows = tf.range(as_int64("rows", sparse.dense_shape[0]) + 1)
    offsets = tf.searchsorted(ordered.indices[:, 0], rows, out_type=tf.int64)
    return ordered.values, ordered.indices[:, 1], offsets
