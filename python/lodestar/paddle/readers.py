"""Paddle's readers: the content of a dataset as NumPy arrays."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar.data.sample_columns import ColumnValues
from lodestar.ragged import LoDTensor

# The NumPy form of a tensor.
_Leaf = np.ndarray | ColumnValues


def reader(
    dataset: tf.data.Dataset, *, batches: bool = False
) -> Callable[[], Iterator[Any]]:
    """Returns a Paddle reader: a callable that starts a new epoch.

    >>> dataset = tf.data.Dataset.from_tensors({"x": [[1.0], [2.0]]})
    >>> [sample["x"].tolist() for sample in reader(dataset)()]
    [[1.0], [2.0]]
    >>> for batch in reader(dataset, batches=True)():
    ...     print(batch["x"].shape)
    (2, 1)

    Each call returns an independent iterator, so epochs may overlap. Dropping an
    iterator stops its reading.

    Args:
        dataset: A dataset of `(features, label)` or `features`, as returned by
            `lodestar.data.open_dataset`. With `prefetch=0` a batch is read when the
            iterator needs it, with `prefetch=1` ahead of that.
        batches: Whether the iterators yield batches instead of samples.

    Returns:
        A callable. Its iterators yield elements of the dataset with NumPy arrays
        instead of tensors, in the form that `write_batch` (or `write`) of a writer
        accepts. In a batch, a RaggedTensor or LoDTensor becomes a pair `(values,
        splits)`. A sample has no batch dimension: a label is `[1]`, a dense column
        has its shape, a one-hot column is `[size]`, and a sparse column is its
        values `[N]`. The arrays of samples are views of the batch's.

        The iterators raise the errors of the dataset. For samples, they raise
        ValueError if the tensors of a batch differ in the number of samples, or if
        the dataset has `sparse="csr"`, which lacks the number of columns.

    Raises:
        TypeError: If `dataset` is not a tf.data.Dataset.
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(
            f"`dataset` must be a tf.data.Dataset, got {type(dataset).__name__}."
        )

    def read() -> Iterator[Any]:
        for element in dataset:
            batch = _mapped(_leaf, element)
            if batches:
                yield batch
            else:
                yield from _samples(batch)

    return read


def _mapped(function: Callable[..., Any], element: Any) -> Any:
    """Returns the element with `function` applied to each leaf."""
    if isinstance(element, Mapping):
        return {name: _mapped(function, x) for name, x in element.items()}
    if isinstance(element, (tuple, list)) and not isinstance(
        element, ColumnValues
    ):
        return tuple(_mapped(function, x) for x in element)
    return function(element)


def _leaf(tensor: Any) -> _Leaf:
    if isinstance(tensor, LoDTensor) and len(tensor.lod) == 1:
        return ColumnValues(tensor.values.numpy(), tensor.lod[0].numpy())
    if isinstance(tensor, tf.RaggedTensor) and tensor.ragged_rank == 1:
        return ColumnValues(tensor.values.numpy(), tensor.row_splits.numpy())
    if isinstance(tensor, tf.Tensor):
        return tensor.numpy()
    raise ValueError(
        "A reader supports tensors and ragged tensors of one level, got "
        f"{type(tensor).__name__} {getattr(tensor, 'shape', '')}."
    )


def _samples(batch: Any) -> Iterator[Any]:
    features = batch[0] if isinstance(batch, tuple) else batch
    if isinstance(features, Mapping) and isinstance(
        features.get("csr"), Mapping
    ):
        raise ValueError(
            "A sample reader does not support `sparse`='csr', which lacks the "
            "number of slots. Use 'ragged' or 'lod'."
        )
    sizes: list[int] = []
    _mapped(lambda leaf: sizes.append(_num_samples(leaf)), batch)
    if len(set(sizes)) != 1:
        raise ValueError(
            "A sample reader needs tensors with equal numbers of samples, got "
            f"{sorted(set(sizes))}."
        )
    for index in range(sizes[0]):
        yield _mapped(functools.partial(_sample, index=index), batch)


def _num_samples(leaf: _Leaf) -> int:
    if isinstance(leaf, ColumnValues):
        return len(leaf.splits) - 1
    if leaf.ndim == 0:
        raise ValueError("A sample reader does not support scalars.")
    return len(leaf)


def _sample(leaf: _Leaf, index: int) -> np.ndarray:
    if isinstance(leaf, ColumnValues):
        return leaf.values[leaf.splits[index] : leaf.splits[index + 1]]
    return leaf[index]
