"""tf.Examples as the flat tensors of columns."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from lodestar._checks import assert_true
from lodestar._library import gen_ops
from lodestar.data.example.feature_values import Values, convert
from lodestar.data.schema import Column, Schema
from lodestar.data.schema.example_features import feature_of, type_of
from lodestar.data.schema_layout import dtype_of, limit, tensor_shape
from lodestar.string_ids import is_any_of


def parse_examples(
    schema: Schema,
    types: Mapping[str, tf.DType],
    names: tf.Tensor,
    examples: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    """Returns the flat tensors of the used columns, as in SchemaLayout.

    `types` maps column names to the dtypes of features: int64, float32 or string,
    by default as declared by the schema. `names` are the names of the serialized
    `examples` in errors. Raises tf.errors.InvalidArgumentError if an example is not
    a tf.Example, or a feature is missing or has a wrong type, value or number of
    values.
    """
    examples = gen_ops.lodestar_check_examples(names=names, examples=examples)
    features = {
        column.name: feature_of(column, types.get(column.name, type_of(column)))
        for column in schema.used
    }
    parsed = tf.io.parse_example(examples, features, example_names=names)
    reader = _Reader(schema, names)
    found = {
        column.name: reader.read(column, parsed[column.name])
        for column in schema.used
    }
    reader.check_weights(found)
    # A tensor needs no more than its own feature, and TensorFlow would run what
    # uses it before, or without, the checks.
    with tf.control_dependencies(reader.checks):
        return tuple(map(tf.identity, tf.nest.flatten(list(found.values()))))


class _Reader:
    """Reads parsed features and collects `checks`, which fail for bad values."""

    def __init__(self, schema: Schema, names: tf.Tensor):
        self.checks: list[tf.Operation] = []
        self._schema = schema
        self._names = names

    def read(self, column: Column, found: Any) -> Any:
        """Returns a tensor, or the values and row_splits of a sparse column."""
        if isinstance(found, tf.RaggedTensor):
            values, splits = self._converted(column, found)
            if column.kind == "sparse":
                return values, splits
            found = self._shaped(column, values, splits)
        elif found.dtype == tf.string or column.dtype == "float":
            shape = tf.shape(found)
            rows = tf.RaggedTensor.from_tensor(
                tf.reshape(found, [shape[0], -1])
            )
            values, _ = self._converted(column, rows)
            found = tf.reshape(values, shape)
        self._check_limit(column, found)
        return found

    def _converted(
        self, column: Column, found: tf.RaggedTensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the values of the right dtype, and int64 row_splits."""
        strings = found.dtype == tf.string
        if strings and column.separator is not None:
            found = self._split(column, found)
        splits = found.row_splits
        converted = convert(column, found.values, self._schema.na_values)
        self._check_values(column, converted, splits)
        values, missing = converted.values, converted.missing
        if column.missing_is_error:
            if missing is not None:
                self._check(
                    column,
                    missing,
                    "a missing value, which it must not have",
                    splits=splits,
                )
            if column.num_values is None:
                self._check(
                    column,
                    splits[1:] == splits[:-1],
                    "no value, which it must not have",
                )
        elif missing is not None and column.kind == "sparse":
            values, splits = _without(values, splits, missing)
        elif missing is not None:
            values = tf.where(missing, _fill(column), values)
        return values, splits

    def _split(self, column: Column, found: tf.RaggedTensor) -> tf.RaggedTensor:
        text = tf.strings.strip(found.values)
        missing = is_any_of(text, self._schema.na_values)
        values, splits = _without(text, found.row_splits, missing)
        parts = tf.strings.split(values, column.separator)
        parts = parts.with_row_splits_dtype(tf.int64)
        return tf.RaggedTensor.from_row_splits(
            parts.values, tf.gather(parts.row_splits, splits), validate=False
        )

    def _shaped(
        self, column: Column, values: tf.Tensor, splits: tf.Tensor
    ) -> tf.Tensor:
        """Returns `[B, ...]` of the column's shape."""
        lengths = splits[1:] - splits[:-1]
        shape = tensor_shape(column)
        num_values = column.num_values
        if num_values is None:
            self._check(
                column,
                (lengths % column.multiple != 0) | (lengths != lengths[:1]),
                f" values, expected a multiple of {column.multiple}, as many in "
                "all samples of a batch",
                _element_of(lengths),
            )
            # All rows have one size, as has been checked.
            size = tf.reduce_max(tf.concat([lengths, [0]], 0))
            full = [
                size // column.multiple if dim is None else dim for dim in shape
            ]
            with tf.control_dependencies(self.checks[-1:]):
                return tf.reshape(values, [tf.size(lengths, tf.int64), *full])
        bad = lengths != num_values
        if not column.missing_is_error:
            bad &= lengths != 0
        self._check(
            column,
            bad,
            f" values, expected {num_values}",
            _element_of(lengths),
        )
        rows = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        dense = rows.to_tensor(_fill(column), shape=[None, num_values])
        return tf.reshape(dense, [-1, *shape])

    def check_weights(self, found: Mapping[str, Any]) -> None:
        """Checks that each id has a weight."""
        for ids, weights in self._schema.weights.items():
            if ids not in found or weights not in found:
                continue
            wanted, lengths = (
                found[name][1][1:] - found[name][1][:-1]
                for name in (ids, weights)
            )
            self._check(
                self._schema[weights],
                wanted != lengths,
                f" weights, expected one for each id of column {ids}",
                _element_of(lengths),
            )

    def _check_values(
        self, column: Column, found: Values, splits: tf.Tensor
    ) -> None:
        if found.bad is not None:
            text = f", expected {_allowed(column)}"
            self._check(column, found.bad, text, found.shown, splits)

    def _check_limit(self, column: Column, found: tf.Tensor) -> None:
        most = limit(column)
        if not most or column.kind not in ("label", "one_hot"):
            return
        values = tf.reshape(found, [-1])
        if column.kind == "label":
            bad = (values != 0) & (values != 1)
        else:
            bad = (values < 0) | (values >= most)
        self._check(
            column,
            bad,
            f", expected {'0 or 1' if most == 2 else f'0 to {most - 1}'}",
            _element_of(values),
        )

    def _check(
        self,
        column: Column,
        bad: tf.Tensor,
        text: str,
        shown: Callable[[tf.Tensor], tf.Tensor] | None = None,
        splits: tf.Tensor | None = None,
    ) -> None:
        """Adds a check of the rows `[B]`, or with `splits` of their values `[N]`.

        An error has `shown(position)`, the found value, followed by `text`.
        """
        is_good = tf.logical_not(tf.reduce_any(bad))

        def message() -> tf.Tensor:
            place = tf.argmax(bad, output_type=tf.int64)
            row = place
            if splits is not None:
                row = tf.searchsorted(splits, place[None], side="right")[0] - 1
            # No quotes: Assert would show them with backslashes.
            return tf.strings.join(
                [
                    self._names[row],
                    f": column {column.name}: found ",
                    "" if shown is None else shown(place),
                    text,
                ]
            )

        # An empty tensor has no first bad element.
        described = tf.cond(is_good, lambda: tf.constant(""), message)
        self.checks.append(assert_true(is_good, [described]))


def _element_of(values: tf.Tensor) -> Callable[[tf.Tensor], tf.Tensor]:
    return lambda place: tf.as_string(values[place])


def _allowed(column: Column) -> str:
    if column.dtype == "float":
        return "a float32"
    if column.encoding == "hex":
        return "a hexadecimal number of 64 bits"
    return "an integer of 64 bits"


def _fill(column: Column) -> tf.Tensor:
    missing = (
        column.fill_value if isinstance(column.fill_value, (int, float)) else 0
    )
    return tf.constant(missing, dtype_of(column))


def _without(
    values: tf.Tensor, splits: tf.Tensor, missing: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the values that are not missing, and their row splits."""
    kept = tf.concat([[0], tf.cumsum(tf.cast(~missing, tf.int64))], 0)
    return tf.boolean_mask(values, ~missing), tf.gather(kept, splits)
