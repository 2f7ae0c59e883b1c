"""Converts batches to a model's inputs by name and type."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar.export.signatures import Specs
from lodestar.ragged import LoDTensor


def by_name(batch: Any, specs: Specs) -> dict[str, Any]:
    """Returns the inputs in `batch` as eager tensors of the types in `specs`."""
    return {
        name: _of_type(name, value, specs[name])
        for name, value in named(batch, specs).items()
    }


def named(batch: Any, specs: Specs) -> dict[str, Any]:
    """Returns the inputs in `batch` unchanged.

    A batch is a dict by name with optional other entries, a list in the order
    of `specs`, or a single input.
    """
    if isinstance(batch, Mapping):
        absent = [name for name in specs if name not in batch]
        if absent:
            raise ValueError(
                f"`batch` has no {absent}; it has {sorted(batch)}."
            )
        values = [batch[name] for name in specs]
    elif len(specs) == 1:
        values = [batch]
        if isinstance(batch, (list, tuple)) and len(batch) == 1:
            kinds = (np.ndarray, LoDTensor)
            if tf.is_tensor(batch[0]) or isinstance(batch[0], kinds):
                values = list(batch)
    else:
        if not isinstance(batch, (list, tuple)) or len(batch) != len(specs):
            count = f" of {len(batch)}" if isinstance(batch, Sequence) else ""
            raise ValueError(
                f"`batch` must be a dict or a list of the inputs {list(specs)}, "
                f"got a {type(batch).__name__}{count}."
            )
        values = list(batch)
    return dict(zip(specs, values, strict=True))


def size(inputs: Mapping[str, Any]) -> int:
    """Returns the number of examples."""
    for x in inputs.values():
        if isinstance(x, tf.RaggedTensor):
            return int(x.nrows())
        if isinstance(x, tf.SparseTensor):
            return int(x.dense_shape[0])
        if x.shape.rank:
            return int(x.shape[0])
    return 1


def _of_type(name: str, value: Any, spec: tf.TypeSpec) -> Any:
    if isinstance(value, LoDTensor):
        value = value.to_ragged()
    try:
        if isinstance(spec, tf.RaggedTensorSpec):
            value = _ragged(value, spec)
        elif isinstance(spec, tf.TensorSpec) and not tf.is_tensor(value):
            value = tf.convert_to_tensor(np.asarray(value))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"The input {name!r} must be {describe(spec)}, got a "
            f"{type(value).__name__}: {error}"
        ) from error
    if value.dtype != spec.dtype:
        numbers = tf.string not in (value.dtype, spec.dtype)
        if not numbers or value.dtype.is_floating and spec.dtype.is_integer:
            raise ValueError(
                f"The input {name!r} must have the dtype {spec.dtype.name}, got "
                f"{value.dtype.name}."
            )
        value = tf.cast(value, spec.dtype)
    rank = spec.shape.rank
    if isinstance(spec, tf.TensorSpec) and isinstance(value, tf.Tensor):
        # Keras adds this axis.
        if value.shape.rank == rank - 1 and spec.shape[-1] == 1:
            value = value[..., tf.newaxis]
    if not spec.is_compatible_with(value):
        raise ValueError(
            f"The input {name!r} must be {describe(spec)}, got "
            f"{describe(tf.type_spec_from_value(value))}."
        )
    return value


def _ragged(value: Any, spec: tf.RaggedTensorSpec) -> Any:
    rank = spec.ragged_rank
    if isinstance(value, (list, tuple)):
        return tf.ragged.constant(
            value,
            spec.dtype,
            ragged_rank=rank,
            inner_shape=tuple(spec.shape[rank + 1 :]),
            row_splits_dtype=tf.int64,
        )
    if isinstance(value, tf.RaggedTensor):
        return value.with_row_splits_dtype(tf.int64)
    if isinstance(value, tf.SparseTensor):
        return value
    dense = tf.convert_to_tensor(value)
    if dense.shape.rank <= rank:
        return dense
    return tf.RaggedTensor.from_tensor(
        dense, ragged_rank=rank, row_splits_dtype=tf.int64
    )


def describe(spec: tf.TypeSpec) -> str:
    """Returns the kind, dtype and shape of a tensor for messages."""
    kinds = {tf.RaggedTensorSpec: "ragged", tf.SparseTensorSpec: "sparse"}
    kind = kinds.get(type(spec), "dense")
    rank = ""
    if isinstance(spec, tf.RaggedTensorSpec):
        rank = f" with {spec.ragged_rank} ragged axes"
        if spec.row_splits_dtype != tf.int64:
            rank += f" and {spec.row_splits_dtype.name} row splits"
    return f"{kind} {spec.dtype.name} {spec.shape}{rank}"
