"""Id table ops over dense, ragged and sparse keys."""

from collections.abc import Callable

import tensorflow as tf

from lodestar._library import gen_ops


def map_flat(x, function: Callable[[tf.Tensor], tf.Tensor]):
    """Applies a shape-keeping function to the flat values of any tensor."""
    if isinstance(x, tf.RaggedTensor):
        return tf.ragged.map_flat_values(function, x)
    if isinstance(x, tf.SparseTensor):
        return tf.SparseTensor(x.indices, function(x.values), x.dense_shape)
    return function(x)


def find(handle: tf.Tensor, keys, default_value):
    """Returns int64 ids of the keys' shape; `default_value` where missing."""
    default_value = tf.convert_to_tensor(default_value, tf.int64)
    return map_flat(
        keys,
        lambda flat: gen_ops.lodestar_id_table_find(
            handle=handle, keys=flat, default_value=default_value
        ),
    )


def find_or_hash(
    handle: tf.Tensor,
    keys,
    *,
    num_oov_buckets: int,
    hasher: str,
    hasher_key: list[int],
):
    """Returns int64 ids of the keys' shape; buckets after the ids on a miss."""
    return map_flat(
        keys,
        lambda flat: gen_ops.lodestar_id_table_find_or_hash(
            handle=handle,
            keys=flat,
            num_oov_buckets=num_oov_buckets,
            hasher=hasher,
            hasher_key=hasher_key,
        ),
    )
