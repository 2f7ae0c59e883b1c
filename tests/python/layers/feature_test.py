"""Tests of features: their own tables, optimizers, and errors."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import Feature

Collection = lodestar.layers.EmbeddingCollection


def test_features_make_their_tables():
    layer = Collection(
        {
            "user": 4,
            "item": np.int32(6),
            "tags": Feature(
                output_dim=3,
                combiner="sum",
                embeddings_initializer="ones",
                optimizer="adagrad",
            ),
        }
    )
    assert [(t.name, t.output_dim) for t in layer.tables] == [
        ("user", 4),
        ("item", 6),
        ("tags", 3),
    ]
    x = {
        "user": np.array([1, 2]),
        "item": np.array([[1], [2]]),
        "tags": tf.ragged.constant([[1, 2], []], tf.int64),
    }
    rows = layer(x, training=True)
    shapes = {name: tuple(r.shape) for name, r in rows.items()}
    assert shapes == {"user": (2, 4), "item": (2, 1, 6), "tags": (2, 3)}
    np.testing.assert_array_equal(rows["tags"], [[2, 2, 2], [0, 0, 0]])
    assert layer.features["tags"].table is layer.tables[2]
    # The same names, so the same initial values wherever they are created.
    again = Collection({"user": 4, "item": 6})
    np.testing.assert_array_equal(
        again({"user": x["user"], "item": x["item"]}, training=True)["item"],
        rows["item"],
    )
    assert [t.name for t in Collection({"user": 2}, name="left").tables] == [
        "left_user"
    ]


def test_a_described_feature_gives_each_name_a_table():
    feature = Feature(output_dim=2, salt="s")
    layer = Collection({"a": feature, "b": feature})
    assert [t.name for t in layer.tables] == ["a", "b"]
    assert feature.table is None and feature.output_dim == 2
    with pytest.raises(ValueError, match="has no table yet. Use the feature"):
        lodestar.warm_start.from_embedding(feature, np.ones((1, 2)), [1])
    assert (
        lodestar.warm_start.from_embedding(
            layer.features["a"], np.ones((1, 2)), [1]
        )
        == 1
    )


@pytest.mark.parametrize("eager", [False, True])
def test_each_table_has_its_optimizer(eager, tmp_path):
    shared = lodestar.EmbeddingVariable(
        1,
        embeddings_initializer="ones",
        optimizer=keras.optimizers.SGD(0.25),
        name="shared",
    )
    x = {
        name: keras.Input((1,), dtype="int64", name=name)
        for name in ("a", "b", "c", "d")
    }
    layer = Collection(
        {
            "a": Feature(shared, combiner="sum"),
            "b": Feature(shared, combiner="sum"),
            "c": Feature(
                output_dim=1,
                combiner="sum",
                embeddings_initializer="ones",
                optimizer=keras.optimizers.SGD(0.5),
            ),
            "d": Feature(
                output_dim=1, combiner="sum", embeddings_initializer="ones"
            ),
        },
        name="embed",
    )
    rows = layer(x)
    model = keras.Model(x, keras.layers.Add()([rows[n] for n in "abcd"]))
    model.compile(
        lodestar.optimizers.SGD(1.0),
        "mae",
        run_eagerly=eager,
    )
    data = {name: np.array([[i]]) for i, name in enumerate("abcd")}
    model.fit(data, np.zeros((1, 1)), verbose=0)
    got = [float(t.export().rows[0, 0]) for t in layer.tables]
    assert got == [0.75, 0.5, 0.0]
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    loaded.fit(data, np.zeros((1, 1)), verbose=0)
    got = [
        float(t.export().rows[0, 0]) for t in loaded.get_layer("embed").tables
    ]
    assert got == [0.5, 0.0, -1.0]


def test_bad_features():
    two = lodestar.EmbeddingVariable(2, name="two")
    for options in ({}, {"table": two, "output_dim": 2}):
        with pytest.raises(
            ValueError, match="an EmbeddingVariable or an `output_dim`"
        ):
            Feature(**options)
    with pytest.raises(
        ValueError, match="`output_dim` must be an integer .*, got 2.5"
    ):
        Feature(output_dim=2.5)
    for options in ({"optimizer": "sgd"}, {"embeddings_initializer": "ones"}):
        with pytest.raises(ValueError, match="cannot be combined with `table`"):
            Feature(two, **options)
    with pytest.raises(
        ValueError, match=r"`features\['x'\]` must be an integer"
    ):
        Collection({"x": 16.0})
    with pytest.raises(ValueError, match="`optimizer`='adamm' is not a Keras"):
        Collection({"x": Feature(output_dim=2, optimizer="adamm")})


def test_the_first_argument_may_be_the_dimension():
    feature = Feature(16, "mean")
    assert feature.output_dim == 16 and feature.table is None
    layer = Collection({"x": feature, "y": 16})
    assert [table.output_dim for table in layer.tables] == [16, 16]
    with pytest.raises(ValueError, match=r"got table=16 and output_dim=4"):
        Feature(16, output_dim=4)
    with pytest.raises(ValueError, match="Pass an integer, the embedding dim"):
        Feature("16")


def test_a_repr_shows_what_differs_from_the_defaults():
    assert repr(Feature(16)) == "Feature(output_dim=16)"
    assert repr(Feature(16, "mean", padding_id=0, padding_counts=True)) == (
        "Feature(combiner='mean', padding_id=0, padding_counts=True, "
        "output_dim=16)"
    )


def test_a_misspelled_combiner():
    with pytest.raises(ValueError, match=r"'last'\). Did you mean 'mean'\?"):
        Feature(16, "maen")
