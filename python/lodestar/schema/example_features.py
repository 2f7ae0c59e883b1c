"""Feature specs with which tf.io.parse_example reads schema columns."""

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from lodestar.schema.column import Column

Feature: TypeAlias = tf.io.FixedLenFeature | tf.io.RaggedFeature


def features_of_schema(columns: Iterable[Column]) -> dict[str, Feature]:
    """Returns the feature specs of used columns; see `Schema.example_features`."""
    return {
        column.name: _feature_of(column) for column in columns if column.used
    }


def _type_of(column: Column) -> tf.DType:
    """Returns the stored dtype of a column's values.

    string if the values are converted, otherwise the dtype of the column.
    """
    if column.encoding != "int" or column.positive:
        return tf.string
    return tf.float32 if column.dtype == "float" else tf.int64


def _feature_of(column: Column) -> Feature:
    """Returns the feature spec that parses the values of a column."""
    dtype = _type_of(column)
    if column.num_values is None:
        return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    shape = list(column.shape) if column.is_feature else [1]
    if column.missing_is_error:
        return tf.io.FixedLenFeature(shape, dtype)
    fill = np.nan if column.optional else column.fill_value or 0
    default = np.full(shape, fill, dtype.as_numpy_dtype)
    return tf.io.FixedLenFeature(shape, dtype, default)
