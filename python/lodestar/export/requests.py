"""The requests that an exported model takes: their inputs and arguments.

Requests hold strings for the columns of ids with the encoding `"hash"` or `"hex"`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from lodestar._checks import after, assert_true
from lodestar.data.text_ids import ids_of_texts, is_any_of
from lodestar.export import signatures
from lodestar.export.signatures import ModelInputs, PlainTensors
from lodestar.ops.flat_values import flat_values, map_flat
from lodestar.schema import Column, Schema


class Request(NamedTuple):
    """How clients call an exported model.

    Attributes:
        signature: How `serving_default` takes ragged inputs.
        own: The inputs of the model.
        inputs: The inputs as clients send them; `own` itself if they send no
            strings.
        plain: The arguments of `serving_default`.
    """

    signature: signatures.Signature
    own: ModelInputs
    inputs: ModelInputs
    plain: PlainTensors

    @property
    def plain_beside_rows(self) -> PlainTensors:
        """The inputs of `from_rows` other than rows."""
        if self.signature != "examples":
            return self.plain
        # An Example would also have to hold the ids.
        return _plain_tensors(self.inputs, "ragged", None)


def request_for(
    own: ModelInputs,
    signature: signatures.Signature,
    padding_id: Any,
    strings: bool,
) -> Request:
    """Returns the request for a model with the inputs `own`; see `save`."""
    inputs = _as_requested(own) if strings else own
    plain = _plain_tensors(inputs, signature, padding_id)
    return Request(signature, own, inputs, plain)


def _as_requested(inputs: ModelInputs) -> ModelInputs:
    """Returns the inputs of a model as clients send them.

    Clients send the values of training files. The graph converts strings to ids
    with plain TensorFlow ops, as readers do, and drops missing values. Returns
    `inputs` itself if no column holds strings.
    """
    columns = text_columns(inputs)
    if inputs.schema is None or not columns:
        return inputs
    specs = dict(inputs.specs)
    for name in columns:
        spec = specs[name]
        specs[name] = tf.RaggedTensorSpec(
            spec.shape, tf.string, spec.ragged_rank, spec.row_splits_dtype
        )
    to_ids = ids_maker(inputs)
    return inputs._replace(
        specs=specs, pack=lambda features: inputs.pack(to_ids(features))
    )


def text_columns(inputs: ModelInputs) -> dict[str, Column]:
    """Returns input -> column, for columns of which requests hold strings."""
    return {
        name: column
        for name, column in inputs.columns.items()
        if column.encoding != "int"
        and isinstance(inputs.specs[name], tf.RaggedTensorSpec)
    }


def ids_maker(inputs: ModelInputs) -> Callable[[Mapping[str, Any]], Any]:
    """Returns a function that converts the strings of a request to ids."""
    schema, columns = inputs.schema, text_columns(inputs)
    assert schema is not None
    input_of = {column.name: name for name, column in inputs.columns.items()}

    def to_ids(features: Mapping[str, Any]) -> dict[str, Any]:
        made = dict(features)
        for name, column in columns.items():
            # All readers ignore leading and trailing whitespace.
            strings = map_flat(tf.strings.strip, features[name])
            valid = _valid(column, schema, strings)
            weights = input_of.get(schema.weights.get(column.name, ""))
            if weights is not None:
                # Missing values lose their weights as well.
                made[weights] = tf.ragged.boolean_mask(made[weights], valid)
            made[name] = map_flat(
                lambda flat, column=column: _ids(column, flat),  # type: ignore[misc]
                tf.ragged.boolean_mask(strings, valid),
            )
        return made

    return to_ids


def _plain_tensors(
    inputs: ModelInputs, signature: str, padding_id: Any
) -> PlainTensors:
    """Returns the plain tensors of a request; see `signatures.plain_tensors`.

    Strings are padded with "", unless `padding_id` has their input.
    """
    columns, specs = text_columns(inputs), inputs.specs
    texts = [name for name in columns if specs[name].dtype == tf.string]
    if texts and signature == "padded" and padding_id is not None:
        if not isinstance(padding_id, Mapping):
            padding_id = {
                name: padding_id
                for name, spec in specs.items()
                if isinstance(spec, tf.RaggedTensorSpec) and name not in texts
            }
        padding_id = {**dict.fromkeys(texts, ""), **padding_id}
    return signatures.plain_tensors(
        specs, signature, padding_id, inputs.columns
    )


def _valid(column: Column, schema: Schema, strings: tf.RaggedTensor) -> Any:
    """Returns a mask of the strings that are not missing."""

    def valid(flat: tf.Tensor) -> tf.Tensor:
        found = tf.logical_not(is_any_of(flat, schema.na_values))
        if not column.missing_is_error:
            return found
        message = (
            f"Column {column.name!r} must have no missing value, but the "
            "request has a string of `na_values`."
        )
        return after(assert_true(tf.reduce_all(found), [message]), found)

    return map_flat(valid, strings)


def _ids(column: Column, strings: tf.Tensor) -> tf.Tensor:
    ids, good, allowed = ids_of_texts(column, strings)
    if good is True:
        return ids
    message = (
        f"Column {column.name!r} must have {allowed}, but the request has: "
    )
    check = assert_true(
        tf.reduce_all(good),
        [message, tf.boolean_mask(strings, tf.logical_not(good))],
    )
    return after(check, ids)


def holds_strings(batch: Mapping[str, Any], inputs: ModelInputs) -> bool:
    """Returns whether a batch has strings where requests have them."""
    return any(
        getattr(flat_values(batch[name]), "dtype", tf.string) == tf.string
        for name in text_columns(inputs)
    )
