"""map_ragged: a dataset's map to RaggedTensors whose row_splits are known."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lodestar._library import gen_ops


def map_ragged(
    dataset: tf.data.Dataset, function: Callable[..., Any]
) -> tf.data.Dataset:
    """`dataset.map(function)`, which does not read row_splits.

    tf.data's own map checks all row_splits of every RaggedTensor once more.

    Args:
        dataset: Its elements are tuples of tensors.
        function: Called with a tuple; returns a structure of tensors, composite
            ones too. Each RaggedTensor has one ragged dimension, int64
            row_splits, and int64 or float32 values.
    """
    specs: list[Any] = []

    def encoded(*tensors: tf.Tensor) -> tuple[tf.Tensor, ...]:
        element = function(*tensors)
        specs[:] = [tf.nest.map_structure(tf.type_spec_from_value, element)]
        leaves = tf.nest.flatten(element)
        ragged = [x for x in leaves if isinstance(x, tf.RaggedTensor)]
        variants = iter(_encoded(ragged))
        flat: list[tf.Tensor] = []
        for leaf in leaves:
            if isinstance(leaf, tf.RaggedTensor):
                flat.append(next(variants))
            else:
                flat += tf.nest.flatten(leaf, expand_composites=True)
        return tuple(flat)

    # Its ops take less time than handing them to other threads.
    mapped = dataset.map(
        tf.autograph.experimental.do_not_convert(encoded), synchronous=True
    )
    variant = tf.data.experimental.to_variant(mapped)
    (spec,) = specs
    return tf.data.experimental.from_variant(variant, spec)


def _encoded(ragged: list[tf.RaggedTensor]) -> list[tf.Tensor]:
    if not ragged:
        return []
    empty = tf.raw_ops.RaggedTensorToVariant(
        rt_nested_splits=[tf.constant([0], tf.int64)],
        rt_dense_values=tf.constant([], tf.int64),
        batched_input=False,
    )
    return gen_ops.lodestar_encode_ragged(
        like=empty,
        values=[x.values for x in ragged],
        row_splits=[x.row_splits for x in ragged],
    )
