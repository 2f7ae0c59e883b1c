"""Tests of models that are exported with stock ops only."""

import os

import keras
import numpy as np
import pytest
import stock_served
import tensorflow as tf

import lodestar

EDGES = [2**63 - 1, -(2**63), -1, 0]
BAGS = [[1, 2, 777], [], EDGES, [4, 4, -9]]


def inputs():
    return {
        "bag": tf.ragged.constant(BAGS, tf.int64),
        "word": tf.ragged.constant([["a"], ["b", "zzz"], [], []]),
        "three": tf.constant(np.arange(12).reshape(4, 3)),
        "number": tf.ones([4, 2]),
    }


def plain():
    x = inputs()
    return {
        "bag_values": x["bag"].flat_values,
        "bag_row_splits": x["bag"].row_splits,
        "word_values": x["word"].flat_values,
        "word_row_splits": x["word"].row_splits,
        "three": x["three"],
        "number": x["number"],
    }


def model():
    symbols = {
        "bag": keras.Input((None,), dtype="int64", ragged=True, name="bag"),
        "word": keras.Input((None,), dtype="string", ragged=True, name="word"),
        "three": keras.Input((3,), dtype="int64", name="three"),
        "number": keras.Input((2,), name="number"),
    }
    layers = lodestar.layers
    rows = [
        layers.DynamicEmbedding(4, combiner="mean", name="bags")(
            symbols["bag"]
        ),
        layers.DynamicEmbedding(3, combiner="sum", salt="w", name="words")(
            symbols["word"]
        ),
        keras.layers.Flatten()(
            layers.DynamicEmbedding(2, name="threes")(symbols["three"])
        ),
        symbols["number"],
    ]
    x = keras.layers.Dropout(0.5)(keras.layers.Concatenate()(rows))
    m = keras.Model(symbols, keras.layers.Dense(1)(x))
    m.compile(lodestar.optimizers.DynamicEmbeddingOptimizer("adam"), "mse")
    seen = inputs()
    seen["bag"] = tf.ragged.constant([[1, 2], [], EDGES, [4]], tf.int64)
    seen["word"] = tf.ragged.constant([["a"], ["b"], [], []])
    m.fit(seen, np.ones((4, 1)), epochs=2, verbose=0)
    return m


def test_scores_where_lodestar_is_not_are_the_models(tmp_path):
    m = model()
    path = tmp_path / "served"
    for index in ("hash", "sorted"):
        lodestar.export.stock_saved_model(m, path, index=index)
        want = m(inputs()).numpy()
        (scores,) = stock_served.serve_elsewhere(
            path, plain(), tmp_path
        ).values()
        for got in scores:
            np.testing.assert_array_equal(got, want)
        loaded = stock_served.load(path)
        np.testing.assert_array_equal(loaded.serve(inputs())["output_0"], want)


def test_the_model_is_as_before_and_can_be_trained_on(tmp_path):
    m = model()
    tables = [layer.table for layer in m.layers if hasattr(layer, "table")]
    before = [table.export() for table in tables]
    lodestar.export.stock_saved_model(m, tmp_path / "s")
    for table, rows in zip(tables, before, strict=True):
        np.testing.assert_array_equal(table.export().ids, rows.ids)
        np.testing.assert_array_equal(table.export().rows, rows.rows)
        np.testing.assert_array_equal(table.export().last_seen, rows.last_seen)
    exported = m(inputs()).numpy()
    m.fit(inputs(), np.ones((4, 1)), verbose=0)
    assert 777 in m.get_layer("bags").table.export().ids.numpy()
    assert not np.array_equal(m(inputs()), exported)
    loaded = stock_served.load(tmp_path / "s")
    np.testing.assert_array_equal(loaded.serve(inputs())["output_0"], exported)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("signature", "csv"),
        ("tables", "some"),
        ("dtype", "int4"),
        ("index", "dense"),
    ],
)
def test_unknown_options(option, value, tmp_path):
    with pytest.raises(ValueError, match=f"`{option}`='{value}' is not in"):
        lodestar.export.stock_saved_model(
            None, tmp_path / "s", **{option: value}
        )
    assert not os.listdir(tmp_path)
