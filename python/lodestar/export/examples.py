"""Inputs as serialized tf.Examples, with one feature per input."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from lodestar._checks import after, assert_true
from lodestar.export.input_parts import numbered
from lodestar.ops.flat_values import flat_values
from lodestar.schema import Column
from lodestar.schema.example_features import features_of_schema

_LISTS = {
    tf.int64: "int64_list",
    tf.float32: "float_list",
    tf.string: "bytes_list",
}


class ExampleForm:
    """The encoding of a model's inputs in tf.Examples.

    A dense input is a required feature of fixed size. A ragged one is a feature
    with all its values; with several ragged axes, `<name>_lengths` (or
    `<name>_lengths_0`, ..., outermost first) holds the lengths of the example's
    inner rows. A sparse input is the values of its only axis. A missing ragged
    or sparse feature is empty. Integers are int64, other numbers float32.

    The input of a schema's column has the column's name and its values in
    training files (see `Schema.example_features`): an id for a one-hot column,
    and `fill_value` for a missing dense feature.

    Raises:
        ValueError: An input has no such encoding (names it).
    """

    def __init__(
        self,
        specs: Mapping[str, tf.TypeSpec],
        columns: Mapping[str, Column] = {},
    ):
        self._specs = dict(specs)
        # Training files have no common encoding of lists of lists.
        self._columns = {n: c for n, c in columns.items() if c.depth == 1}
        declared = features_of_schema(self._columns.values())
        self._keys = {n: c.name for n, c in self._columns.items()}
        self.features: dict[str, Any] = {}
        for name, spec in specs.items():
            key = self._keys.setdefault(name, name)
            self.features[key] = (
                declared[key] if name in self._columns else _feature(name, spec)
            )
        for name, spec in specs.items():
            for key in _length_keys(name, spec):
                if key in specs:
                    raise ValueError(
                        f"The input {key!r} has the name of the feature with "
                        f"the lengths of the ragged input {name!r} in a "
                        "tf.Example. Rename one of them."
                    )

    def parse(self, serialized: tf.Tensor) -> dict[str, Any]:
        """Returns name -> input of serialized Examples `[B]`."""
        parsed = tf.io.parse_example(serialized, self.features)
        return {
            name: _of_column(self._columns[name], parsed[key])
            if name in self._columns
            else _from_example_dtype(name, self._specs[name], parsed[key])
            for name, key in self._keys.items()
        }

    def serialize(self, inputs: Mapping[str, Any]) -> tf.Tensor:
        """Returns the serialized Examples `[B]` of name -> input, eagerly."""
        inputs = dict(inputs)
        for name, column in self._columns.items():
            if column.kind == "one_hot":
                inputs[name] = tf.argmax(inputs[name], axis=-1)
        rows = {name: _rows(inputs[name]) for name in self._specs}
        counts = {name: len(of_input) for name, of_input in rows.items()}
        if len(set(counts.values())) > 1:
            raise ValueError(
                f"The inputs have different numbers of examples: {counts}."
            )
        examples = [
            tf.train.Example() for _ in range(min(counts.values(), default=0))
        ]
        for name, spec in self._specs.items():
            key = self._keys[name]
            kind = _LISTS[self.features[key].dtype]
            length_keys = _length_keys(name, spec)
            for example, (values, lengths) in zip(
                examples, rows[name], strict=True
            ):
                features = example.features.feature
                getattr(features[key], kind).value.extend(values)
                for length_key, of_axis in zip(
                    length_keys, lengths, strict=True
                ):
                    features[length_key].int64_list.value.extend(of_axis)
        return tf.constant(
            [example.SerializeToString() for example in examples],
            tf.string,
            [len(examples)],
        )


def _rows(x: Any) -> list[tuple[list[Any], list[list[int]]]]:
    """Returns the flat values of each row and the lengths of its inner rows."""
    if isinstance(x, tf.SparseTensor):
        x = tf.RaggedTensor.from_value_rowids(
            x.values, x.indices[:, 0], x.dense_shape[0]
        )
    if x.dtype == tf.bool:
        x = tf.cast(x, tf.int64)
    rows = []
    for row in x:
        lengths: list[list[int]] = []
        if isinstance(row, tf.RaggedTensor):
            lengths = [n.numpy().tolist() for n in row.nested_row_lengths()]
            row = row.flat_values
        rows.append((tf.reshape(row, [-1]).numpy().tolist(), lengths))
    return rows


def _length_keys(name: str, spec: tf.TypeSpec) -> list[str]:
    if not isinstance(spec, tf.RaggedTensorSpec) or spec.ragged_rank < 2:
        return []
    return numbered(f"{name}_lengths", spec.ragged_rank - 1)


def _feature(name: str, spec: tf.TypeSpec) -> Any:
    dtype = _example_dtype(name, spec)
    shape = spec.shape[1:]
    if isinstance(spec, tf.SparseTensorSpec):
        if len(shape) != 1:
            raise _no_form(name, spec, "a sparse input needs one axis")
        return tf.io.VarLenFeature(dtype)
    if not isinstance(spec, tf.RaggedTensorSpec):
        if None in shape:
            raise _no_form(name, spec, "a dense input needs axes of known size")
        return tf.io.FixedLenFeature(shape, dtype)
    rank = spec.ragged_rank
    if any(size is not None for size in shape[:rank]):
        raise _no_form(
            name, spec, "its ragged axes must all be of unknown size"
        )
    inner = shape[rank:]
    if None in inner:
        raise _no_form(name, spec, "its inner axes need a known size")
    partitions = [
        tf.io.RaggedFeature.RowLengths(key) for key in _length_keys(name, spec)
    ]
    partitions += [tf.io.RaggedFeature.UniformRowLength(n) for n in inner]
    return tf.io.RaggedFeature(
        dtype,
        partitions=partitions,
        row_splits_dtype=tf.int64,
        value_key=name,
        # Without validation, TensorFlow returns inconsistent rows.
        validate=True,
    )


def _example_dtype(name: str, spec: tf.TypeSpec) -> tf.DType:
    dtype = spec.dtype
    if dtype == tf.string:
        return tf.string
    if dtype == tf.bool or (dtype.is_integer and dtype != tf.uint64):
        return tf.int64
    if dtype.is_floating and dtype.size <= 4:
        return tf.float32
    raise _no_form(
        name,
        spec,
        f"a tf.Example cannot hold {dtype.name}, only strings and numbers that "
        "fit in int64 or float32",
    )


def _no_form(name: str, spec: tf.TypeSpec, why: str) -> ValueError:
    return ValueError(
        f"The input {name!r}, {spec}, cannot be in a tf.Example: {why}."
    )


def _of_column(column: Column, value: Any) -> Any:
    """Converts the parsed feature of a column to its input."""
    if column.kind == "one_hot":
        inside = tf.logical_and(value >= 0, value < column.size)
        message = (
            f"Column {column.name!r} must have ids in [0, {column.size}), but "
            "the request has: "
        )
        wrong = tf.boolean_mask(value, tf.logical_not(inside))
        check = assert_true(tf.reduce_all(inside), [message, wrong])
        return tf.one_hot(after(check, value), column.size)
    if column.kind == "dense" and isinstance(value, tf.RaggedTensor):
        lengths = value.row_lengths()
        most = tf.reduce_max(tf.pad(lengths, [[1, 0]]))
        message = (
            f"Column {column.name!r} must have equally many values in all "
            f"examples of a request, a multiple of {column.multiple}, but they "
            "have: "
        )
        fits = tf.logical_and(
            tf.reduce_all(tf.equal(lengths, most)),
            tf.equal(most % column.multiple, 0),
        )
        check = assert_true(fits, [message, lengths])
        free = most // column.multiple
        shape = [free if size == -1 else size for size in column.shape]
        values = after(check, value.flat_values)
        dense = tf.reshape(values, [value.nrows(), *shape])
        dense.set_shape([None, *(None if d == -1 else d for d in column.shape)])
        return dense
    return value


def _from_example_dtype(name: str, spec: tf.TypeSpec, value: Any) -> Any:
    dtype = spec.dtype
    if value.dtype == dtype:
        return value
    cast = tf.cast(value, dtype)
    if dtype.is_floating:
        return cast
    check = tf.debugging.assert_equal(
        flat_values(tf.cast(cast, tf.int64)),
        flat_values(value),
        f"The feature {name} has values beyond {dtype.name}.",
    )
    return after(check, cast)
