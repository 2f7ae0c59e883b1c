"""Batches of LoDTensors in `tf.data`."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lodestar.ragged.lod_tensor import LoDTensor


def batch(
    batch_size: int, drop_remainder: bool = False
) -> Callable[[tf.data.Dataset], tf.data.Dataset]:
    """Batches a dataset whose elements hold LoDTensors of any sizes.

    `Dataset.batch` stacks tensors of one shape, which LoDTensors have not. This
    adds a level: element b of the batch is unit b of the new, outermost level.

    >>> dataset.apply(lodestar.ragged.batch(32))

    Args:
        batch_size: How many elements make a batch.
        drop_remainder: Whether a last, smaller batch is left out.

    Returns:
        What `Dataset.apply` takes. LoDTensors anywhere in the elements get the
        level; everything else is batched as by `Dataset.batch`.

    Raises:
        ValueError: from the returned function: a LoDTensor without levels.
    """

    def transform(dataset: tf.data.Dataset) -> tf.data.Dataset:
        spec = dataset.element_spec

        def is_lod(part: Any) -> bool:
            return isinstance(part, LoDTensor.Spec)

        if any(is_lod(p) and not p.lod for p in tf.nest.flatten(spec)):
            raise ValueError(
                "a LoDTensor of the dataset has no level; batch its values by "
                "`Dataset.ragged_batch`"
            )

        def mapped(convert: Callable[[Any], Any]) -> Callable[..., Any]:
            def function(*element: Any) -> Any:
                # `map` takes tuples apart.
                element = element if isinstance(spec, tuple) else element[0]
                return tf.nest.map_structure(
                    lambda p, x: convert(x) if is_lod(p) else x, spec, element
                )

            return function

        dataset = dataset.map(mapped(LoDTensor.to_ragged))
        dataset = dataset.batch(batch_size, drop_remainder=drop_remainder)
        return dataset.map(mapped(_from_batched))

    return transform


def _from_batched(ragged: tf.RaggedTensor) -> LoDTensor:
    # Right by construction; the check of `from_ragged` would make the map one
    # with side effects, which `tf.data` optimizes less.
    return LoDTensor(ragged.flat_values, ragged.nested_row_splits)
