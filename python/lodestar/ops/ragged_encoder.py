"""RaggedTensors as elements of datasets, without a check of their row_splits.

tf.data encodes each RaggedTensor that a function returns with an op that reads all
row_splits again. `RaggedEncoder` uses one op for all, which reads none.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lodestar._library import gen_ops


class RaggedEncoder:
    """Flattens an element to tensors, and restores a dataset of these elements.

    An element is a structure of tensors or composite tensors. RaggedTensors with one
    ragged dimension must have valid int64 row splits, and int64 or float32 values.
    """

    def __init__(self) -> None:
        self._spec: Any = None

    def encode(self, element: Any) -> tuple[tf.Tensor, ...]:
        """Returns the element as tensors that tf.data passes on."""
        self._spec = tf.nest.map_structure(tf.type_spec_from_value, element)
        leaves = tf.nest.flatten(element)
        ragged = [x for x in leaves if _is_flat(x)]
        variants = iter(_encoded(ragged))
        flat: list[tf.Tensor] = []
        for leaf in leaves:
            if _is_flat(leaf):
                flat.append(next(variants))
            elif isinstance(leaf, tf.RaggedTensor):
                flat.append(
                    tf.raw_ops.RaggedTensorToVariant(
                        rt_nested_splits=leaf.nested_row_splits,
                        rt_dense_values=leaf.flat_values,
                        batched_input=False,
                    )
                )
            else:
                flat += tf.nest.flatten(leaf, expand_composites=True)
        return tuple(flat)

    def elements(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Restores the elements of a dataset of `encode` results."""
        variant = tf.data.experimental.to_variant(dataset)
        return tf.data.experimental.from_variant(variant, self._spec)


def map_ragged(
    dataset: tf.data.Dataset, function: Callable[..., Any]
) -> tf.data.Dataset:
    """As `dataset.map(function)`, from tuples of tensors to elements."""
    encoder = RaggedEncoder()

    @tf.autograph.experimental.do_not_convert
    def encoded(*tensors: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return encoder.encode(function(*tensors))

    # Its ops are faster than a switch to other threads.
    return encoder.elements(dataset.map(encoded, synchronous=True))


def _is_flat(x: Any) -> bool:
    return isinstance(x, tf.RaggedTensor) and x.ragged_rank == 1


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
