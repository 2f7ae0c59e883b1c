"""Id table ops over dense, ragged and sparse keys."""

from typing import Any

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._typing import AnyTensor
from lodestar.ops.flat_values import map_flat
from lodestar.ops.stand_ins import replaceable

# Dtypes of keys in lookups, as in TensorFlow's tables, which store the first two.
KEY_DTYPES = (
    tf.string,
    tf.int64,
    tf.int8,
    tf.int16,
    tf.int32,
    tf.uint8,
    tf.uint16,
    tf.uint32,
    tf.uint64,
)


@replaceable
def find(
    handle: tf.Tensor, keys: AnyTensor, default_value: int | tf.Tensor
) -> AnyTensor:
    """Returns int64 ids in the shape of the keys, `default_value` if missing."""
    return map_flat(
        lambda flat: gen_ops.lodestar_id_table_find(
            handle=handle, keys=flat, default_value=default_value
        ),
        keys,
    )


@replaceable
def find_or_hash(
    handle: tf.Tensor, keys: AnyTensor, **options: Any
) -> AnyTensor:
    """Returns int64 ids in the shape of the keys; hashes missing keys to buckets.

    Options of the op are `num_oov_buckets`, `hasher`, `hasher_key` and
    `first_bucket`, by default the id after the last one of the table.
    """
    return map_flat(
        lambda flat: gen_ops.lodestar_id_table_find_or_hash(
            handle=handle, keys=flat, **options
        ),
        keys,
    )


@replaceable
def size(handle: tf.Tensor) -> tf.Tensor:
    """Returns the number of keys, an int64 scalar."""
    return gen_ops.lodestar_id_table_size(handle=handle)
