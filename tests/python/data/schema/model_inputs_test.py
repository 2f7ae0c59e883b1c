"""Schema.from_inputs: slots for what a Keras model takes."""

import keras
import numpy as np
import pytest

import lodestar
from lodestar.data import Column, Schema
from lodestar.paddle import MultiSlotDataset


def ids(name="C", **options):
    return keras.Input(
        (None,), dtype="int64", ragged=True, name=name, **options
    )


def numbers(name="I", shape=(2,)):
    return keras.Input(shape, dtype="float32", name=name)


def test_inputs_of_every_form():
    wanted = Schema([Column.sparse("C"), Column.dense("I", [2])])
    a, b = ids(), numbers()
    assert Schema.from_inputs([a, b]) == wanted
    assert Schema.from_inputs({"C": a, "I": b}) == wanted
    assert Schema.from_inputs(a) == Schema([Column.sparse("C")])
    pooled = lodestar.layers.DynamicEmbedding(4, combiner="sum")(a)
    out = keras.layers.Dense(1)(keras.layers.concatenate([pooled, b]))
    assert Schema.from_inputs(keras.Model([a, b], out)) == wanted
    found = Schema.from_inputs(keras.Model({"x": a, "y": b}, out), "click")
    assert list(found) == [
        Column.label("click"), Column.sparse("x"), Column.dense("y", [2])
    ]  # fmt: skip
    rating = Column.label("rating", dtype="float", binary=False)
    assert list(Schema.from_inputs([a], [rating]))[0] == rating


@pytest.mark.parametrize(
    "shape, dims", [((), []), ((3, 4), [3, 4]), ((None, 4), [-1, 4])]
)
def test_shapes_of_numbers(shape, dims):
    (slot,) = Schema.from_inputs(numbers(shape=shape))
    assert slot == Column.dense("I", dims)


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: keras.Input((1,), dtype="int64", name="a"),
            r"Input 'a' is int64 \[batch, 1\], wanted ragged int64",
        ),
        (
            lambda: keras.Input((None,), dtype="int32", ragged=True, name="a"),
            r"Input 'a' is ragged int32 \[batch, None\], wanted",
        ),
        (
            lambda: keras.Input((None,), dtype="float32", ragged=True, name="a"),
            "Input 'a' is ragged float32",
        ),
        (
            lambda: keras.Input((None, None), dtype="int64", ragged=True, name="a"),
            r"Input 'a' is ragged int64 \[batch, None, None\]",
        ),
        (lambda: numbers("a", (None, None)), "Input 'a' is float32"),
        (lambda: keras.Input((1,), dtype="string", name="a"), "'a' is string"),
        (lambda: [ids("a"), ids("b"), "c"], "must be a functional Keras model"),
        (lambda: keras.Sequential([keras.layers.Dense(1)]), "must be a func|no inp"),
        (lambda: {}, "at least one column"),
    ],
)  # fmt: skip
def test_other_inputs_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        Schema.from_inputs(make())


def test_a_subclassed_model_has_no_inputs():
    class Own(keras.Model):
        def call(self, features):
            return features

    with pytest.raises(ValueError, match="`model` must be a functional Keras"):
        Schema.from_inputs(Own())


def test_a_model_is_fitted_on_files_of_its_own_inputs(tmp_path):
    a, b = ids(), numbers()
    pooled = lodestar.layers.DynamicEmbedding(4, combiner="sum")(a)
    out = keras.layers.Dense(1)(keras.layers.concatenate([pooled, b]))
    model = keras.Model({"C": a, "I": b}, out)
    model.compile(
        lodestar.optimizers.DynamicEmbeddingOptimizer(
            keras.optimizers.SGD(0.1)
        ),
        "mse",
    )
    spec = Schema.from_inputs(model, "click")
    (tmp_path / "in").write_text("1 1 2 7 8 2 .5 1\n1 0 0 2 1 2\n")
    history = model.fit(MultiSlotDataset(tmp_path / "in", spec, 2), verbose=0)
    assert np.isfinite(history.history["loss"][0])
    saved = tmp_path / "model.keras"
    model.save(saved)
    assert Schema.from_inputs(keras.models.load_model(saved), "click") == spec
