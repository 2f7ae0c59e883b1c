"""Tests of models that are exported with plain TensorFlow ops."""

import json
import os

import keras
import numpy as np
import plain_served
import pytest
import tensorflow as tf

import lodestar
from lodestar.ops import id_hash

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
    m.compile(lodestar.optimizers.Adam(), "mse")
    seen = inputs()
    seen["bag"] = tf.ragged.constant([[1, 2], [], EDGES, [4]], tf.int64)
    seen["word"] = tf.ragged.constant([["a"], ["b"], [], []])
    m.fit(seen, np.ones((4, 1)), epochs=2, verbose=0)
    return m


@pytest.fixture(scope="module")
def trained():
    """Returns one model for all tests that only read and export it."""
    return model()


def test_scores_where_lodestar_is_not_are_the_models(trained, tmp_path):
    m = trained
    path = tmp_path / "served"
    for index in ("hash", "sorted"):
        lodestar.export.save_plain(m, path, index=index)
        want = m(inputs()).numpy()
        (scores,) = plain_served.serve_elsewhere(
            path, plain(), tmp_path
        ).values()
        for got in scores:
            np.testing.assert_array_equal(got, want)
        loaded = plain_served.load(path)
        np.testing.assert_array_equal(loaded.serve(inputs())["output_0"], want)


@pytest.mark.parametrize(
    "signature", ["ragged", "values_and_lengths", "examples", "padded"]
)
def test_every_signature_is_verified(signature, trained, tmp_path):
    m = trained
    options = {}
    if signature == "padded":
        options["padding_id"] = {"bag": 99, "word": ""}
    lodestar.export.save_plain(
        m, tmp_path / "s", signature, dtype="float16", **options
    )
    plain_served.load(tmp_path / "s")
    result = lodestar.export.verify(m, tmp_path / "s", inputs(), atol=0.01)
    assert set(result.signatures) == {"serve", "serving_default"}
    assert result.examples == 4
    with open(tmp_path / "s" / "features.json") as file:
        document = json.load(file)
    assert document["plain"] == {"dtype": "float16", "index": "hash"}
    assert document["signature"] == signature
    assert {t["key"] for t in document["tables"]} == {"bags", "words", "threes"}


def test_the_model_is_as_before_and_can_be_trained_on(tmp_path):
    m = model()
    tables = [layer.table for layer in m.layers if hasattr(layer, "table")]
    before = [table.export() for table in tables]
    lodestar.export.save_plain(m, tmp_path / "s")
    for table, rows in zip(tables, before, strict=True):
        np.testing.assert_array_equal(table.export().ids, rows.ids)
        np.testing.assert_array_equal(table.export().rows, rows.rows)
        np.testing.assert_array_equal(table.export().last_seen, rows.last_seen)
    exported = m(inputs()).numpy()
    m.fit(inputs(), np.ones((4, 1)), verbose=0)
    assert 777 in m.get_layer("bags").table.export().ids.numpy()
    assert not np.array_equal(m(inputs()), exported)
    loaded = plain_served.load(tmp_path / "s")
    np.testing.assert_array_equal(loaded.serve(inputs())["output_0"], exported)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("signature", "csv"),
        ("tables", "some"),
        ("index", "dense"),
    ],
)
def test_unknown_options(option, value, tmp_path):
    with pytest.raises(ValueError, match=f"`{option}`='{value}' is not in"):
        lodestar.export.save_plain(None, tmp_path / "s", **{option: value})
    assert not os.listdir(tmp_path)


def bag_model(layer):
    ids = keras.Input((None,), dtype="int64", ragged=True, name="x")
    return keras.Model(ids, layer(ids))


def filled(rows, **options):
    """Returns a model whose outputs are the rows of its table, with ids 0, 1, ..."""
    rows = np.asarray(rows)
    table = lodestar.EmbeddingVariable(rows.shape[1], name="t", **options)
    table.insert_or_assign(np.arange(len(rows)), rows)
    return bag_model(
        lodestar.layers.DynamicEmbedding(table=table, combiner="sum")
    )


def served_rows(path, count):
    loaded = plain_served.load(path)
    ids = tf.RaggedTensor.from_row_lengths(
        np.arange(count), np.ones(count, int)
    )
    return loaded.serve({"x": ids})["output_0"].numpy()


def test_int8_rows_are_off_by_half_a_scale_at_most(tmp_path, rng):
    rows = rng.normal(size=(3000, 7)).astype(np.float32)
    rows *= np.exp(rng.normal(size=(3000, 1)) * 10).astype(np.float32)
    rows[5], rows[6] = 0, 1e-37
    m = filled(rows)
    lodestar.export.save_plain(m, tmp_path / "s", dtype="int8")
    got = served_rows(tmp_path / "s", 3000)
    scales = np.abs(rows).max(axis=1, keepdims=True) / 127
    error = np.abs(got.astype(np.float64) - rows)
    assert (error <= scales * (0.5 + 1e-4) + 6e-39).all()
    assert (got[6] > 0).all()
    assert (error > scales * 0.4).any()
    shapes = tf.train.list_variables(str(tmp_path / "s/variables/variables"))
    assert [3000, 7] in [shape for _, shape in shapes]
    size = os.path.getsize(
        tmp_path / "s/variables/variables.data-00000-of-00001"
    )
    assert size < 3000 * (7 + 4 + 8) + 4096


def test_float16_rows_are_the_nearest(tmp_path, rng):
    rows = rng.normal(size=(500, 3)).astype(np.float32)
    m = filled(rows)
    lodestar.export.save_plain(m, tmp_path / "s", dtype="float16")
    np.testing.assert_array_equal(
        served_rows(tmp_path / "s", 500),
        rows.astype(np.float16).astype(np.float32),
    )


def test_which_tables_are_written(tmp_path):
    class Two(keras.Model):
        def __init__(self):
            super().__init__()
            make = lodestar.EmbeddingVariable
            self.read = make(2, embeddings_initializer="ones", name="same")
            self.first = lodestar.layers.DynamicEmbedding(table=self.read)
            self.second = lodestar.layers.DynamicEmbedding(
                table=self.read, salt="s"
            )
            self.other = make(3, embeddings_initializer="ones", name="same")

        def call(self, ids):
            return self.first(ids) + self.second(ids)

    m = Two()
    m.read.lookup([4, id_hash.salted_id(4, "s")], training=True)
    m.other.lookup([9], training=True)
    for tables in ("used", "all"):
        path = tmp_path / tables
        lodestar.export.save_plain(
            m,
            path,
            tables=tables,
            inputs={"ids": tf.TensorSpec([None], tf.int64)},
        )
        loaded = plain_served.load(path)
        ids = tf.constant([4, 9], tf.int64)
        np.testing.assert_array_equal(
            loaded.serve({"ids": ids})["output_0"], [[2, 2], [0, 0]]
        )
        np.testing.assert_array_equal(
            loaded.tables["same"].lookup(ids), [[1, 1], [0, 0]]
        )
        names = tf.train.list_variables(f"{path}/variables/variables")
        shapes = [shape for _, shape in names]
        # Once, though two layers read it.
        assert shapes.count([2, 2]) == 1
        if tables == "used":
            assert set(loaded.tables) == {"same"}
            assert [1, 3] not in shapes
        else:
            assert set(loaded.tables) == {"same", "same_1"}
            np.testing.assert_array_equal(
                loaded.tables["same_1"].lookup(ids), [[0] * 3, [1] * 3]
            )


def test_a_function_inside_the_model_is_traced_apart(tmp_path):
    class Inner(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.embed = lodestar.layers.DynamicEmbedding(2, combiner="sum")

        @tf.function
        def call(self, ids):
            return self.embed(ids)

    layer = Inner()
    m = bag_model(layer)
    x = tf.ragged.constant([[1, 2], [3]], tf.int64)
    table = layer.embed.table
    table.insert_or_assign([1, 2, 3], np.ones((3, 2)))
    before = m(x).numpy()  # traced, with Lodestar's op
    lodestar.export.save_plain(m, tmp_path / "s")
    table.insert_or_assign([1, 2, 3], np.zeros((3, 2)))
    np.testing.assert_array_equal(m(x), np.zeros((2, 2)))
    loaded = plain_served.load(tmp_path / "s")
    np.testing.assert_array_equal(loaded.serve({"x": x})["output_0"], before)
    lodestar.export.save_plain(m, tmp_path / "s")
    loaded = plain_served.load(tmp_path / "s")
    assert not loaded.serve({"x": x})["output_0"].numpy().any()


def test_an_op_without_replacement_is_refused(tmp_path):
    class Concat(keras.layers.Layer):
        def call(self, ids):
            return lodestar.sequence.concat([ids, ids]).to_tensor()

        def compute_output_spec(self, ids):
            return keras.KerasTensor(ids.shape, "int64")

    with pytest.raises(
        ValueError, match="layer 'joined': Lodestar>SequenceConcat"
    ):
        lodestar.export.save_plain(
            bag_model(Concat(name="joined")), tmp_path / "s"
        )

    class Counted(keras.layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.table = lodestar.EmbeddingVariable(2)

        def call(self, ids):
            return tf.zeros_like(self.table.frequency(ids))

    with pytest.raises(ValueError, match="Lodestar>EmbeddingFrequency"):
        lodestar.export.save_plain(
            bag_model(Counted(name="counted")), tmp_path / "s"
        )
    assert not os.listdir(tmp_path)


def test_tables_without_rows_and_empty_batches(tmp_path):
    m = bag_model(
        lodestar.layers.DynamicEmbedding(
            2, combiner="mean", default_row="initial", default_id=5
        )
    )
    x = tf.ragged.constant([[1, 2], [], [2**63 - 1]], tf.int64)
    want = m(x).numpy()
    assert want.any()
    for index in ("hash", "sorted"):
        lodestar.export.save_plain(m, tmp_path / "s", index=index)
        loaded = plain_served.load(tmp_path / "s")
        np.testing.assert_array_equal(loaded.serve({"x": x})["output_0"], want)
        assert loaded.serve({"x": x[:0]})["output_0"].shape == (0, 2)


def test_a_model_of_keras_lookups_and_a_subclass(tmp_path):
    class Mixed(keras.Model):
        def __init__(self):
            super().__init__()
            self.word = keras.layers.StringLookup(vocabulary=["u", "v"])
            self.embed = lodestar.layers.EmbeddingCollection(
                {
                    "a": lodestar.Feature(
                        lodestar.EmbeddingVariable(2, default_row="initial"),
                        combiner="mean",
                    )
                }
            )
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            rows = self.embed({"a": self.word(x["word"])})["a"]
            return {"score": self.dense(rows)}

    m = Mixed()
    x = {"word": tf.constant([["u", "v"], ["w", "u"]])}
    want = m(x)["score"].numpy()
    with pytest.raises(ValueError, match="inputs of `model`, a Mixed"):
        lodestar.export.save_plain(m, tmp_path / "s")

    class OneInput(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = m

        def call(self, word):
            return self.inner({"word": word})

    lodestar.export.save_plain(
        OneInput(),
        tmp_path / "s",
        inputs={"word": tf.TensorSpec([None, 2], tf.string)},
    )
    loaded = plain_served.load(tmp_path / "s")
    np.testing.assert_array_equal(loaded.serve(x)["score"], want)


@pytest.mark.parametrize("initializer", ["normal", "truncated_normal"])
def test_no_graph_optimizer_changes_initial_values(initializer, tmp_path, rng):
    m = bag_model(
        lodestar.layers.DynamicEmbedding(
            9,
            combiner="sum",
            default_row="initial",
            embeddings_initializer=initializer,
        )
    )
    ids = rng.integers(-(2**63), 2**63 - 1, 2000)
    x = tf.RaggedTensor.from_row_lengths(ids, np.ones(2000, int))
    lodestar.export.save_plain(m, tmp_path / "s")
    scores = plain_served.serve_elsewhere(
        tmp_path / "s",
        {"x_values": x.values, "x_row_splits": x.row_splits},
        tmp_path,
    )
    for got in scores["output_0"]:
        np.testing.assert_array_equal(got, m(x))
