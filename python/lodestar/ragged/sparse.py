"""LoD from `tf.SparseTensor`."""

import tensorflow as tf

from lodestar.ops import lod_ops
from lodestar.ragged.arguments import Parts


def from_sparse(sparse: tf.SparseTensor, columns: str) -> Parts:
    """Returns the values and levels of a sparse tensor."""
    if columns not in ("keep", "drop"):
        raise ValueError(f"`columns` is {columns!r}, wanted 'keep' or 'drop'")
    if not isinstance(sparse, tf.SparseTensor):
        raise TypeError(
            f"`sparse` must be a SparseTensor, found {type(sparse)}"
        )
    rank = sparse.shape.rank
    if rank is None or rank < 2:
        raise ValueError(
            "`sparse` must have a static rank of 2 or more, found shape "
            f"{sparse.shape}"
        )
    levels = lod_ops.lod_from_sparse(
        sparse.indices, sparse.dense_shape, rank - 1, columns == "drop"
    )
    return sparse.values, tuple(levels)
