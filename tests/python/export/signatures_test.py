"""Tests of the inputs of models as plain tensors."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.export import signatures

SPECS = {
    "bag": tf.RaggedTensorSpec([None, None], tf.int64),
    "deep": tf.RaggedTensorSpec([None] * 3, tf.string, ragged_rank=2),
    "wide": tf.SparseTensorSpec([None, 9], tf.float32),
    "a b": tf.TensorSpec([None, 2]),
}


def inputs():
    return {
        "bag": tf.ragged.constant(
            [[1, 2], []], tf.int64, row_splits_dtype=tf.int64
        ),
        "deep": tf.ragged.constant(
            [[["a"], ["b", "c"]], [["d"]]], row_splits_dtype=tf.int64
        ),
        "wide": tf.SparseTensor([[0, 3], [1, 8]], [1.0, 2.0], [2, 9]),
        "a b": tf.ones([2, 2]),
    }


@pytest.mark.parametrize(
    "signature, options, wanted",
    [
        (
            "ragged",
            {},
            {
                "bag_values",
                "bag_row_splits",
                "deep_values",
                "deep_row_splits_0",
                "deep_row_splits_1",
            },
        ),
        (
            "values_and_lengths",
            {},
            {
                "bag_values",
                "bag_lengths",
                "deep_values",
                "deep_lengths_0",
                "deep_lengths_1",
            },
        ),
        ("padded", {"padding_id": {"bag": 0, "deep": ""}}, {"bag", "deep"}),
    ],
)
def test_round_trip(signature, options, wanted):
    plain = signatures.plain_tensors(SPECS, signature, **options)
    wanted |= {"wide_indices", "wide_values", "wide_dense_shape", "a_b"}
    assert set(plain.specs) == set(plain.arguments) == wanted
    assert plain.arguments["a_b"] == ("a b", "")
    assert plain.arguments["wide_values"] == ("wide", "values")
    flat = plain.flatten(inputs())
    for name, spec in plain.specs.items():
        assert spec.is_compatible_with(flat[name]) and spec.name == name
    back = plain.unflatten(flat)
    for name, want in inputs().items():
        got = tf.nest.flatten(back[name], expand_composites=True)
        want = tf.nest.flatten(want, expand_composites=True)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g, w)


def test_names_of_parts_avoid_names_of_inputs():
    specs = {
        "x": tf.RaggedTensorSpec([None, None], tf.int64),
        "x_lengths": tf.TensorSpec([None], tf.int64),
    }
    plain = signatures.plain_tensors(specs, "values_and_lengths")
    assert plain.arguments == {
        "x_lengths": ("x_lengths", ""),
        "x_values": ("x", "values"),
        "x_lengths_": ("x", "lengths"),
    }


def test_nested_inputs():
    ids = keras.Input((None,), dtype="int64", name="ids", ragged=True)
    x = keras.Input((2,), name="x")
    model = keras.Model({"user": {"ids": ids}, "x": x}, x * 1.0)
    inputs = signatures.model_inputs(model)
    assert set(inputs.specs) == {"ids", "x"}
    assert inputs.pack({"ids": 1, "x": 2}) == {"user": {"ids": 1}, "x": 2}


@pytest.mark.parametrize(
    "outputs, name, kind",
    [
        ([tf.ones(1), [tf.ones(1)]], "output_1", "list"),
        ({"a": {"b": tf.ones(1)}}, "a", "dict"),
        (None, "output_0", "NoneType"),
    ],
)
def test_outputs_that_are_no_tensors(outputs, name, kind):
    with pytest.raises(
        ValueError, match=f"{name}' of `model` must be a tensor, got a {kind}"
    ):
        signatures.named_outputs(outputs)


@pytest.mark.parametrize(
    "name", ["_id", "in", "self", "a b", "ü", "", "1", "other ", "gain ($)"]
)
def test_any_name_of_a_feature_can_be_served(name, tmp_path):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            feature = lodestar.Feature(output_dim=2, combiner="sum")
            features = {name: feature, "other": feature}
            self.embed = lodestar.layers.EmbeddingCollection(features)

        def call(self, inputs):
            return self.embed(inputs)[name]

    model = Model()
    ids = tf.constant([[1, 2]], tf.int64)
    features = {name: ids, "other": ids}
    model(features, training=True)
    specs = {key: tf.TensorSpec([None, 2], tf.int64) for key in features}
    lodestar.export.save(model, tmp_path / "e", inputs=specs)
    loaded = tf.saved_model.load(tmp_path / "e")
    served = loaded.signatures["serving_default"]
    (argument,) = {*served.structured_input_signature[1]} - {"other"}
    assert argument.isidentifier()
    (rows,) = served(**{argument: ids, "other": ids}).values()
    np.testing.assert_array_equal(rows, model(features))


@pytest.mark.parametrize("ragged", [True, False])
def test_sequential_model(ragged, tmp_path):
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int64", ragged=ragged, name="ids"),
            lodestar.layers.DynamicEmbedding(2, combiner="sum"),
        ]
    )
    model.compile(lodestar.optimizers.SGD(0.1), "mse")
    rows = [[1, 2], [3, 4]]
    ids = (tf.ragged if ragged else tf).constant(rows, dtype=tf.int64)
    model.fit(ids, np.ones((2, 2)), verbose=0)
    lodestar.export.save(model, tmp_path / "m")
    loaded = tf.saved_model.load(tmp_path / "m")
    expected = model.predict(ids, verbose=0)
    for given in (ids, {"ids": ids}):
        np.testing.assert_array_equal(loaded.serve(given)["output_0"], expected)
