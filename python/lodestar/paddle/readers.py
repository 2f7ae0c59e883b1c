"""Batch readers and sample readers: a dataset's content as NumPy arrays."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar.data.sample_columns import ColumnValues
from lodestar.ragged import LoDTensor

# What an element has in the place of one of its tensors.
_Leaf = np.ndarray | ColumnValues


def batch_reader(dataset: tf.data.Dataset) -> Callable[[], Iterator[Any]]:
    """Returns Paddle's batch reader: a callable that starts a new pass.

    >>> dataset = tf.data.Dataset.from_tensors({"x": [[1.0], [2.0]]})
    >>> for batch in batch_reader(dataset)():
    ...     print(batch["x"].shape)
    (2, 1)

    Each call returns an iterator of its own, so that passes may run beside each
    other; one that is dropped before its end stops reading.

    Args:
        dataset: Of `(features, label)` or `features`, as the datasets of
            `lodestar.data` give them. Its `prefetch=0` makes a batch when the
            iterator is asked for it, `prefetch=1` while the last one is used.

    Returns:
        A callable. What its iterators yield is an element of the dataset with an
        array in the place of each tensor, and in that of a `tf.RaggedTensor` or
        `LoDTensor` a `Column(values, splits)`, as `SampleWriter.write_batch`
        takes it. What the dataset raises, they raise.

    Raises:
        TypeError: `dataset` is none.
    """
    _check(dataset)

    def read() -> Iterator[Any]:
        for element in dataset:
            yield _mapped(_leaf, element)

    return read


def sample_reader(dataset: tf.data.Dataset) -> Callable[[], Iterator[Any]]:
    """Returns Paddle's sample reader: as `batch_reader`, of single samples.

    A sample is as its batch without the first dim: a label `[1]`, a dense slot
    of its shape, a one-hot slot `[size]`; of a sparse slot its values `[N]`. The
    arrays are views of the batch's.

    >>> dataset = tf.data.Dataset.from_tensors({"x": [[1.0], [2.0]]})
    >>> [sample["x"].tolist() for sample in sample_reader(dataset)()]
    [[1.0], [2.0]]

    Args:
        dataset: As for `batch_reader`, but not of `sparse="csr"`: one CSR holds
            all sparse slots and does not say how many they are.

    Returns:
        A callable. Its iterators raise ValueError where the tensors of a batch
        have different numbers of samples.

    Raises:
        TypeError: `dataset` is none.
    """
    _check(dataset)

    def read() -> Iterator[Any]:
        for element in dataset:
            yield from _samples(_mapped(_leaf, element))

    return read


def _check(dataset: Any) -> None:
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(
            f"`dataset` must be a tf.data.Dataset, found {type(dataset).__name__}."
        )


def _mapped(function: Callable[..., Any], element: Any) -> Any:
    """The element with `function(leaf)` in the place of each leaf."""
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
        "A reader takes tensors, and ragged ones of one level, found "
        f"{type(tensor).__name__} {getattr(tensor, 'shape', '')}."
    )


def _samples(batch: Any) -> Iterator[Any]:
    features = batch[0] if isinstance(batch, tuple) else batch
    if isinstance(features, Mapping) and isinstance(
        features.get("csr"), Mapping
    ):
        raise ValueError(
            "A sample reader takes no `sparse`='csr', which does not say how "
            "many slots it holds; wanted 'ragged' or 'lod'."
        )
    sizes: list[int] = []
    _mapped(lambda leaf: sizes.append(_num_samples(leaf)), batch)
    if len(set(sizes)) != 1:
        raise ValueError(
            "A sample reader takes tensors of one number of samples, found "
            f"{sorted(set(sizes))}."
        )
    for index in range(sizes[0]):
        yield _mapped(functools.partial(_sample, index=index), batch)


def _num_samples(leaf: _Leaf) -> int:
    if isinstance(leaf, ColumnValues):
        return len(leaf.splits) - 1
    if leaf.ndim == 0:
        raise ValueError("A sample reader takes no scalar.")
    return len(leaf)


def _sample(leaf: _Leaf, index: int) -> np.ndarray:
    if isinstance(leaf, ColumnValues):
        return leaf.values[leaf.splits[index] : leaf.splits[index + 1]]
    return leaf[index]
