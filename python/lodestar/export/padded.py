"""Ragged inputs as dense tensors with a padding value."""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from lodestar._checks import is_integer, is_number
from lodestar.export.input_parts import InputParts

Padding = int | float | str | bytes


# Fills short rows, of all inputs or by input.
PaddingId: TypeAlias = float | str | Mapping[str, float | str]


def check_padding(padding_id: Any, specs: Mapping[str, tf.TypeSpec]) -> Any:
    """Returns ragged input -> padding, given one value for all or a dict."""
    ragged = [
        name
        for name, spec in specs.items()
        if isinstance(spec, tf.RaggedTensorSpec)
    ]
    if padding_id is None and ragged:
        raise ValueError(
            "`padding_id` must be the value that fills short rows of the inputs "
            f"{ragged}, or a dict of values by name, if signature='padded'."
        )
    if not isinstance(padding_id, Mapping):
        padding_id = {name: padding_id for name in ragged}
    for name in padding_id:
        if name not in ragged:
            raise ValueError(
                f"`padding_id` has {name!r}, which is not a ragged input. The "
                f"ragged inputs are {ragged}."
            )
    for name in ragged:
        if name not in padding_id:
            raise ValueError(
                f"`padding_id` lacks the ragged input {name!r}; it has "
                f"{sorted(padding_id)}."
            )
    return {
        name: _padding_of(name, specs[name].dtype, value)
        for name, value in padding_id.items()
    }


def _padding_of(name: str, dtype: tf.DType, value: Any) -> Padding:
    if dtype == tf.string:
        wanted = "a string"
        fits = isinstance(value, (str, bytes))
    elif dtype.is_integer:
        wanted = f"an integer in [{dtype.min}, {dtype.max}]"
        fits = is_integer(value) and dtype.min <= value <= dtype.max
    elif dtype == tf.bool:
        wanted = "True or False"
        fits = isinstance(value, (bool, np.bool_))
    else:
        wanted = "a number"
        fits = is_number(value)
    if not fits:
        raise ValueError(
            f"`padding_id` for the input {name!r} of dtype {dtype.name} must be "
            f"{wanted}, got {value!r}."
        )
    return value.item() if isinstance(value, np.generic) else value


def padded_parts(
    name: str, spec: tf.RaggedTensorSpec, padding: Padding
) -> InputParts:
    """Returns the ragged input `name` as one dense tensor.

    Padding is removed from the end of rows only. With several ragged axes, an
    inner row of only padding is empty, and is itself padding at the end of an
    outer row. So rows that end in the padding value or in an empty inner row
    cannot be padded.
    """

    def join(parts: Any) -> Any:
        return _without_padding(parts[0], spec, padding)

    def split(ragged: Any) -> Any:
        # TensorFlow cannot convert an empty ragged tensor with uniform rows.
        any_lengths = tf.RaggedTensor.from_nested_row_splits(
            ragged.flat_values, ragged.nested_row_splits
        )
        dense = any_lengths.to_tensor(default_value=padding)
        _check_same(name, ragged, join([dense]), padding)
        return [dense]

    dense = tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)
    return InputParts({"": dense}, join, split)


def _without_padding(
    dense: tf.Tensor, spec: tf.RaggedTensorSpec, padding: Padding
) -> tf.RaggedTensor:
    rank = spec.ragged_rank
    if isinstance(padding, float) and math.isnan(padding):
        used = tf.logical_not(tf.math.is_nan(dense))
    else:
        used = tf.not_equal(dense, tf.constant(padding, spec.dtype))
    used = tf.reduce_any(used, list(range(rank + 1, dense.shape.rank)))
    shape = tf.shape(dense, tf.int64)
    # Innermost axis first: lengths [B, T1, ...] of the inner rows.
    nested_lengths: list[tf.Tensor] = []
    for axis in range(rank, 0, -1):
        size = shape[axis]
        if spec.shape[axis] is None:
            ends = tf.where(used, tf.range(1, size + 1), 0)
            # The maximum over an empty axis is negative.
            lengths = tf.maximum(tf.reduce_max(ends, -1), 0)
        else:
            lengths = tf.fill(shape[:axis], size)
        nested_lengths.insert(0, lengths)
        used = lengths > 0
    kept = tf.fill(shape[:1], True)
    row_lengths = []
    for axis, lengths in enumerate(nested_lengths, 1):
        row_lengths.append(tf.boolean_mask(lengths, kept))
        kept = tf.logical_and(
            kept[..., tf.newaxis], tf.sequence_mask(lengths, shape[axis])
        )
    return tf.RaggedTensor.from_nested_row_lengths(
        tf.boolean_mask(dense, kept), row_lengths
    )


def _check_same(
    name: str, ragged: tf.RaggedTensor, back: tf.RaggedTensor, padding: Padding
) -> None:
    rows = zip(ragged.to_list(), back.to_list(), strict=True)
    for example, (wanted, found) in enumerate(rows):
        # NaN equals NaN in strings.
        if str(wanted) != str(found):
            raise ValueError(
                f"Example {example} of the input {name!r} cannot be padded: a "
                f"row ends in the padding {padding!r} or in an empty row: "
                f"{wanted}."
            )
