"""Schema.of and as_schema: the schema of a model."""

import keras
import pytest

from lodestar.data import Column, Schema
from lodestar.schema import as_schema

SCHEMA = Schema([Column.label("click"), Column.dense("x", [2])])
OTHER = Schema([Column.label("click"), Column.dense("z", [2])])


def model_of(inputs):
    return keras.Model(inputs, keras.layers.Concatenate()([*inputs.values()]))


class Own(keras.Model):
    def __init__(self, schema):
        super().__init__()
        self.schema = schema

    def call(self, features):
        return features["x"]


def test_schema_of_a_functional_model():
    inputs = SCHEMA.inputs()
    model = keras.Model(inputs, inputs["x"])
    assert Schema.of(model) == SCHEMA
    assert as_schema(model) == SCHEMA


def test_schema_of_a_subclassed_model():
    assert Schema.of(Own(SCHEMA)) == SCHEMA
    assert as_schema(Own(SCHEMA)) == SCHEMA


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]),
        lambda: keras.Sequential([keras.layers.Dense(1)]),
        lambda: Own("clicks.yaml"),
        lambda: model_of({"a": keras.Input((2,)), "b": keras.Input((2,))}),
    ],
)
def test_model_without_a_schema_is_refused(make):
    with pytest.raises(ValueError, match=r"has no schema.*schema\.inputs\(\)"):
        Schema.of(make())


def test_inputs_of_two_schemas_are_refused():
    inputs = SCHEMA.inputs() | OTHER.inputs()
    with pytest.raises(ValueError, match="(?s)different schemas.*\nx .*\nz "):
        Schema.of(model_of(inputs))


def test_inputs_of_equal_schemas_are_accepted():
    schema = Schema([*SCHEMA, Column.dense("z", [2])])
    again = Schema(schema)
    model = model_of({"x": schema.inputs()["x"], "z": again.inputs()["z"]})
    assert Schema.of(model) == schema


def test_neither_schema_nor_model_is_refused():
    with pytest.raises(TypeError, match="or a Keras model, got 7"):
        as_schema(7)
