"""Turns the data that a caller gives into batches."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from lodestar._checks import check_count
from lodestar._typing import StrPaths
from lodestar.data.open_dataset import open_dataset
from lodestar.schema import SchemaLike

DatasetFn: TypeAlias = Callable[[tf.distribute.InputContext], tf.data.Dataset]
Arrays: TypeAlias = (
    npt.ArrayLike
    | tf.Tensor
    | tf.RaggedTensor
    | tf.SparseTensor
    | Sequence[Any]
    | Mapping[str, Any]
)
Data: TypeAlias = (
    tf.data.Dataset | DatasetFn | StrPaths | keras.utils.PyDataset | Arrays
)

# The batch sizes of Keras and of `open_dataset`.
_BATCH_OF_ARRAYS, _BATCH_OF_FILES = 32, 1024


@dataclasses.dataclass
class GivenData:
    """What `data`, `validation_data` and their options mean.

    Attributes:
        schema: Schema of files. Set by the first files that are opened without one.
        batch_size: Batch size of files and arrays; None for the default.
    """

    schema: SchemaLike | None = None
    batch_size: int | None = None

    def check(self, *given: Data) -> None:
        """Raises ValueError if the options have no meaning for any of `given`."""
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size, 1)
        files = any(are_paths(data) for data in given)
        if self.schema is not None and not files:
            raise ValueError("`schema` works only if `data` are paths.")
        if self.batch_size is not None and not (
            files or any(_are_arrays(data) for data in given)
        ):
            raise ValueError(
                "`batch_size` works only if `data` are paths or arrays."
            )

    def batches(
        self, name: str, data: Data, shuffle: bool = False
    ) -> tf.data.Dataset:
        """Returns `data`, the argument `name`, as a dataset of batches.

        Raises TypeError unless it is one of `Data`. Arrays are shuffled if
        `shuffle`, in the same orders in every process.
        """
        if isinstance(data, tf.data.Dataset):
            return data
        if are_paths(data):
            return self._opened(data)
        if isinstance(data, keras.utils.PyDataset):
            return _of_py_dataset(name, data)
        if callable(data):
            made = data(tf.distribute.InputContext())
            if not isinstance(made, tf.data.Dataset):
                raise TypeError(
                    f"The function `{name}` must return a tf.data.Dataset, got "
                    f"{type(made).__name__}."
                )
            return made
        if not _are_arrays(data):
            raise TypeError(_message(name, data))
        return self._of_arrays(name, data, shuffle)

    def _opened(self, paths: StrPaths) -> tf.data.Dataset:
        opened = open_dataset(
            paths, self.schema, self.batch_size or _BATCH_OF_FILES
        )
        # Equal values must have the same meaning in the validation data.
        self.schema = self.schema or opened.schema
        return opened

    def _of_arrays(
        self, name: str, data: Any, shuffle: bool
    ) -> tf.data.Dataset:
        x, y, weight = (_unpacked(data) + (None, None))[:3]
        try:
            given = _converted(x)
            if y is None and weight is not None:
                raise ValueError("Sample weights need labels.")
            if y is not None or isinstance(given, tuple):
                rest = [_converted(v) for v in (y, weight) if v is not None]
                given = (given, *rest)
            sizes = {_size(leaf) for leaf in tf.nest.flatten(given)}
        except (TypeError, ValueError) as error:
            raise TypeError(f"{_message(name, data)} {error}") from error
        if len(sizes) > 1:
            raise ValueError(
                f"The arrays of `{name}` must have the same number of examples, "
                f"got {sorted(sizes)}."
            )
        dataset = tf.data.Dataset.from_tensor_slices(given)
        if shuffle and sizes != {0}:
            dataset = dataset.shuffle(
                sizes.pop(), seed=0, reshuffle_each_iteration=True
            )
        return dataset.batch(self.batch_size or _BATCH_OF_ARRAYS)


def are_paths(data: object) -> TypeGuard[StrPaths]:
    """Returns whether `data` is a path or a list of paths."""
    paths = data if isinstance(data, list | tuple) else [data]
    return bool(paths) and all(
        isinstance(path, str | os.PathLike) for path in paths
    )


def is_function(data: Any) -> bool:
    """Returns whether `data` is a function that makes a dataset."""
    return callable(data) and not isinstance(
        data, tf.data.Dataset | keras.utils.PyDataset
    )


def _message(name: str, data: Any) -> str:
    found = type(data).__name__
    if isinstance(data, list | tuple) and data:
        found = f"{found} of {type(data[0]).__name__}"
    return (
        f"`{name}` must be a tf.data.Dataset, paths, arrays as x or (x, y[, "
        "sample_weight]), a keras.utils.PyDataset or a function that returns a "
        f"dataset, got {found}."
    )


def _is_array(value: Any) -> bool:
    return isinstance(
        value, tf.Tensor | tf.RaggedTensor | tf.SparseTensor
    ) or hasattr(value, "__array__")


def _are_arrays(data: Any) -> bool:
    if isinstance(data, Mapping):
        return bool(data) and all(_are_arrays(v) for v in data.values())
    if isinstance(data, list | tuple):
        return bool(data) and all(
            v is None or _is_number(v) or _are_arrays(v) for v in data
        )
    return _is_array(data) and not isinstance(data, tf.data.Dataset)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | str | bytes | np.generic)


def _unpacked(data: Any) -> tuple[Any, ...]:
    """Returns (x, y, sample_weight), or fewer of them."""
    if not isinstance(data, tuple):
        return (data,)
    if len(data) > 3:
        raise TypeError(
            f"A tuple of arrays must be (x, y[, sample_weight]), got {len(data)} "
            "elements. Pass several inputs as a list or dict."
        )
    return data


def _converted(value: Any) -> Any:
    """Returns arrays as tensors in a structure that tf.data accepts."""
    if isinstance(value, Mapping):
        return {name: _converted(item) for name, item in value.items()}
    if isinstance(value, list | tuple) and all(
        isinstance(item, Mapping) or _is_array(item) for item in value
    ):
        return tuple(_converted(item) for item in value)
    if isinstance(value, tf.Tensor | tf.RaggedTensor | tf.SparseTensor):
        return value
    array = np.asarray(value)
    if array.dtype.kind == "f":
        array = array.astype(keras.config.floatx())
    return tf.convert_to_tensor(array)


def _size(value: Any) -> int:
    if isinstance(value, tf.RaggedTensor):
        return int(value.nrows())
    if len(value.shape) == 0:
        raise ValueError("An array needs a dimension of examples.")
    return int(value.shape[0])


def _of_py_dataset(name: str, data: keras.utils.PyDataset) -> tf.data.Dataset:
    count = data.num_batches
    if count is None:
        raise ValueError(
            f"`{name}` is an endless PyDataset. Wrap it with "
            "tf.data.Dataset.from_generator."
        )

    def batch(number: int) -> Any:
        items = data[number]
        return tuple(_converted(v) for v in items if v is not None)

    def batches() -> Any:
        for number in range(count):
            yield batch(number)
        data.on_epoch_end()

    if count == 0:
        raise ValueError(f"`{name}` has no batch.")
    # Batches of other sizes than the first have the same specs.
    specs = tf.data.Dataset.from_tensors(batch(0)).unbatch().batch(1)
    made = tf.data.Dataset.from_generator(
        batches, output_signature=specs.element_spec
    )
    return made.apply(tf.data.experimental.assert_cardinality(count))
