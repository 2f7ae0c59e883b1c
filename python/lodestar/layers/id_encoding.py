"""One-hot, multi-hot and count encodings of ids, as in Keras's lookup layers."""

import tensorflow as tf

from lodestar._typing import AnyTensor, Shape


def encoded_shape(shape: Shape, mode: str, size: int) -> Shape:
    """Returns the shape of the result of `encode`."""
    if mode != "one_hot":
        return (*shape[:-1], size)
    drops_last = len(shape) > 1 and shape[-1] == 1
    return (*(shape[:-1] if drops_last else shape), size)


def encode(
    ids: AnyTensor, mode: str, size: int, *, dtype: str, sparse: bool
) -> tf.Tensor | tf.SparseTensor:
    """Encodes int64 ids as rows of `size` numbers; ids >= `size` are ignored.

    "one_hot" makes one row per id and drops a last axis of length 1; "multi_hot" and
    "count" make one row per innermost axis. Only these two support ragged or sparse
    ids, of rank 2. `dtype` and `sparse` describe the rows.
    """
    is_dense = isinstance(ids, tf.Tensor)
    if not is_dense and (mode == "one_hot" or ids.shape.rank != 2):
        raise ValueError(
            "Ragged or sparse inputs must have rank 2 and `output_mode` "
            f"'multi_hot' or 'count', got shape {ids.shape} and '{mode}'."
        )
    shape = encoded_shape(tuple(ids.shape), mode, size)
    if mode == "one_hot":
        if len(shape) == ids.shape.rank:
            ids = tf.squeeze(ids, -1)
        rows = tf.one_hot(ids, size, dtype=dtype)
        return tf.sparse.from_dense(rows) if sparse else rows
    leading = tf.shape(ids)[:-1] if is_dense and ids.shape.rank > 2 else None
    if ids.shape.rank == 0:
        ids = tf.reshape(ids, [1])
    elif leading is not None:
        ids = tf.reshape(ids, [-1, tf.shape(ids)[-1]])
    options = dict(
        minlength=size,
        maxlength=size,
        axis=-1,
        binary_output=mode == "multi_hot",
    )
    if sparse:
        rows = tf.cast(tf.sparse.bincount(ids, **options), dtype)
        if leading is not None:
            rows = tf.sparse.reshape(rows, tf.concat([leading, [size]], 0))
        rows.set_shape(shape or (size,))  # A graph does not infer it.
        return rows
    rows = tf.math.bincount(ids, dtype=dtype, **options)
    if leading is not None:
        rows = tf.reshape(rows, tf.concat([leading, [size]], 0))
    return tf.ensure_shape(rows, shape or (size,))
