"""Tests of the signature that takes rows instead of ids."""

import json

import export_models
import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

layers = lodestar.layers


def export(model, path, **options):
    """Exports a model; returns the loaded folder and its features.json."""
    lodestar.export.save(model, path, from_rows=True, **options)
    return read(path)


def read(path):
    document = json.loads((path / "features.json").read_text())
    return tf.saved_model.load(str(path)), document


def assert_close(got, want):
    """Compares with a tolerance, because TensorFlow fuses different ops."""
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def arguments(loaded):
    specs = loaded.signatures["from_rows"].structured_input_signature[1]
    return {name: spec.shape.as_list() for name, spec in specs.items()}


def functions(loaded):
    """Returns the names of the ops in `from_rows`, including its functions."""
    graph_def = loaded.signatures["from_rows"].graph.as_graph_def()
    nodes = list(graph_def.node)
    for function in graph_def.library.function:
        nodes += function.node_def
    return {node.op for node in nodes}


@pytest.mark.parametrize("signature", export_models.SIGNATURES)
def test_rows_of_a_collection(signature):
    m = export_models.shared_collection_model()
    x = export_models.collection_inputs()
    loaded, document = read(export_models.exported_collection(signature))
    # The dense input and the rows, in all of the signatures.
    assert arguments(loaded) == {
        "viewer": [None, 8],
        "author": [None, 8],
        "items": [None, 4],
        "age": [None, 2],
    }
    described = document["signatures"]["from_rows"]["arguments"]
    assert {a["name"]: a["shape"] for a in described} == arguments(loaded)
    assert [a for a in described if a["name"] == "viewer"] == [
        {
            "name": "viewer",
            "dtype": "float32",
            "shape": [None, 8],
            "layer": "embed",
            "feature": "viewer",
            "call": 0,
            "inputs": ["viewer"],
        }
    ]
    # No table is part of it.
    assert not any(op.startswith("Lodestar>") for op in functions(loaded))
    words = m.get_layer("words")(x["items"])
    rows = m.get_layer("embed")({**x, "items": words})
    got = loaded.signatures["from_rows"](age=x["age"], **rows)
    want = m(x)
    for name in want:
        assert_close(got[name], want[name])
    # The result depends on the given rows, not on a table's.
    zeros = {name: tf.zeros_like(r) for name, r in rows.items()}
    other = loaded.signatures["from_rows"](age=x["age"], **zeros)
    assert not np.allclose(other["score"], want["score"])


def test_layers_called_twice_and_dense_ids(tmp_path):
    a = keras.Input((3,), dtype="int64", name="a")
    b = keras.Input((3,), dtype="int64", name="b")
    embed = layers.DynamicEmbedding(2, name="embed")
    x = keras.layers.Concatenate()(
        [keras.layers.Flatten()(embed(a)), keras.layers.Flatten()(embed(b))]
    )
    m = keras.Model([a, b], keras.layers.Dense(1)(x))
    loaded, document = export(m, tmp_path / "s")
    assert arguments(loaded) == {
        "embed": [None, 3, 2],
        "embed_1": [None, 3, 2],
    }
    described = document["signatures"]["from_rows"]["arguments"]
    assert {x["name"]: x["call"] for x in described} == {
        "embed": 0,
        "embed_1": 1,
    }
    ids = {
        "a": tf.constant([[1, 2, 3]], tf.int64),
        "b": tf.constant([[3, 4, 5]], tf.int64),
    }
    m([ids["a"], ids["b"]], training=True)
    rows = {}
    for argument in described:
        (source,) = argument["inputs"]
        rows[argument["name"]] = embed(ids.pop(source))
    got = loaded.signatures["from_rows"](**rows)
    assert_close(
        got["output_0"],
        m([tf.constant([[1, 2, 3]]), tf.constant([[3, 4, 5]])]),
    )


def test_layers_keep_their_one_output():
    hidden = export_models.shared_collection_model().get_layer("hidden")
    before = hidden.output
    export_models.exported_collection("ragged")
    assert hidden.output is before


def test_sequential_nested_and_subclassed_models(tmp_path):
    tower = keras.Sequential(
        [
            keras.Input((None,), dtype="int64", ragged=True, name="ids"),
            layers.DynamicEmbedding(2, combiner="mean", name="embed"),
            keras.layers.Dense(3),
        ]
    )
    ids = tf.ragged.constant([[1, 2], []], tf.int64)
    tower(ids, training=True)
    number = keras.Input((3,), name="number")
    outer_ids = keras.Input((None,), dtype="int64", ragged=True, name="outer")
    nested = keras.Model(
        [outer_ids, number], keras.layers.Add()([tower(outer_ids), number])
    )

    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.tower = tower

        def call(self, x):
            return {"score": self.tower(x["ids"]) + x["number"]}

    rows = tower.get_layer("embed")(ids)
    ones = tf.ones([2, 3])
    loaded, _ = export(tower, tmp_path / "tower")
    assert arguments(loaded) == {"embed": [None, 2]}
    got = loaded.signatures["from_rows"](embed=rows)["output_0"]
    assert_close(got, tower(ids))

    loaded, _ = export(nested, tmp_path / "nested")
    assert arguments(loaded) == {"embed": [None, 2], "number": [None, 3]}
    got = loaded.signatures["from_rows"](embed=rows, number=ones)["output_0"]
    assert_close(got, nested([ids, ones]))

    m = Subclassed()
    m({"ids": ids, "number": ones})
    loaded, _ = export(
        m,
        tmp_path / "subclassed",
        inputs={
            "ids": tf.RaggedTensorSpec([None, None], tf.int64),
            "number": tf.TensorSpec([None, 3]),
        },
    )
    got = loaded.signatures["from_rows"](embed=rows, number=ones)["score"]
    assert_close(got, tower(ids) + ones)


def test_ids_with_other_uses_remain_arguments(tmp_path):
    ids = keras.Input((3,), dtype="int64", name="ids")
    other = keras.Input((None,), dtype="int64", ragged=True, name="other")
    embed = layers.DynamicEmbedding(2, padding_id=0, name="embed")
    pooled = keras.layers.GlobalAveragePooling1D()(embed(ids))  # by the mask
    lengths = keras.layers.Lambda(
        lambda r: tf.cast(r.row_lengths(), tf.float32)[:, None],
        output_shape=(1,),
    )(other)
    bag = layers.DynamicEmbedding(2, combiner="sum", name="bag")(other)
    m = keras.Model(
        [ids, other], keras.layers.Concatenate()([pooled, lengths, bag])
    )
    loaded, _ = export(m, tmp_path / "s")
    assert set(arguments(loaded)) >= {
        "ids",
        "embed",
        "bag",
        "other_row_splits",
    }
    x = [
        tf.constant([[1, 2, 0], [3, 0, 0]], tf.int64),
        tf.ragged.constant([[7], [8, 9]], tf.int64),
    ]
    m(x, training=True)
    # The exported tables had no rows yet.
    with pytest.raises(ValueError, match="The output"):
        lodestar.export.verify(m, tmp_path / "s", x)
    lodestar.export.save(m, tmp_path / "s", from_rows=True)
    result = lodestar.export.verify(m, tmp_path / "s", x)
    assert "from_rows" in result.signatures


def test_rows_have_the_dtype_of_the_table(tmp_path):
    ids = keras.Input((None,), dtype="int64", ragged=True, name="x")
    embed = layers.DynamicEmbedding(
        2, combiner="sum", name="embed", dtype="mixed_bfloat16"
    )
    m = keras.Model(ids, embed(ids))
    loaded, document = export(m, tmp_path / "s")
    (argument,) = document["signatures"]["from_rows"]["arguments"]
    assert argument["dtype"] == "float32"
    (output,) = document["signatures"]["from_rows"]["outputs"]
    assert output["dtype"] == "bfloat16"
    got = loaded.signatures["from_rows"](embed=tf.constant([[1.0, 2.0]]))
    assert got["output_0"].dtype == tf.bfloat16


def test_a_name_taken_by_an_input(tmp_path):
    number = keras.Input((2,), name="number")
    ids = keras.Input((None,), dtype="int64", ragged=True, name="x")
    table = lodestar.EmbeddingVariable(2)
    rows = layers.EmbeddingCollection(
        {"number": lodestar.Feature(table, combiner="mean")}, name="embed"
    )({"number": ids})
    m = keras.Model(
        [number, ids], keras.layers.Subtract()([number, rows["number"]])
    )
    loaded, _ = export(m, tmp_path / "s")
    got = loaded.signatures["from_rows"](
        number=tf.constant([[5.0, 5.0]]), number_=tf.constant([[1.0, 2.0]])
    )
    np.testing.assert_array_equal(got["output_0"], [[4, 3]])


def test_from_rows_is_optional(tmp_path):
    lodestar.export.save(export_models.ragged_model(), tmp_path / "s")
    loaded = tf.saved_model.load(str(tmp_path / "s"))
    assert list(loaded.signatures) == ["serving_default"]


def unpooled():
    ids = keras.Input((None,), dtype="int64", ragged=True, name="x")
    rows = layers.DynamicEmbedding(2, name="sequence")(ids)
    return keras.Model(ids, lodestar.sequence.pool(rows))


def unpooled_feature():
    ids = keras.Input((None,), dtype="int64", ragged=True, name="x")
    table = lodestar.EmbeddingVariable(2)
    rows = layers.EmbeddingCollection(
        {"x": lodestar.Feature(table, combiner=None)}, name="many"
    )({"x": ids})
    return keras.Model(ids, lodestar.sequence.pool(rows["x"]))


def no_layer():
    number = keras.Input((1,), name="x")
    return keras.Model(number, keras.layers.Dense(1)(number))


class ReadsTheTable(keras.layers.Layer):
    def __init__(self, table):
        super().__init__()
        self.table = table

    def call(self, ids):
        return self.table.lookup(ids, combiner="sum")


def own_reader():
    ids = keras.Input((3,), dtype="int64", name="x")
    table = lodestar.EmbeddingVariable(2, name="direct")
    embed = layers.DynamicEmbedding(2, combiner="sum", name="embed")
    return keras.Model(
        ids, keras.layers.Add()([ReadsTheTable(table)(ids), embed(ids)])
    )


class InAFunction(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.embed = layers.DynamicEmbedding(2, combiner="sum", name="inner")

    @tf.function
    def rows(self, ids):
        return self.embed(ids)

    def call(self, ids):
        return self.rows(ids)


def in_a_function():
    ids = keras.Input((3,), dtype="int64", name="x")
    return keras.Model(ids, InAFunction()(ids))


@pytest.mark.parametrize(
    "make, message",
    [
        (unpooled, "the layer 'sequence' returns a RaggedTensor instead"),
        (
            unpooled_feature,
            "the feature 'x' of the layer 'many' returns a RaggedTensor",
        ),
        (no_layer, "the model has no lookup of an embedding layer"),
        (own_reader, "the table 'direct' is read without a layer"),
        (in_a_function, "the table 'inner' .* or by a layer in a tf.function"),
    ],
)
def test_models_that_cannot_have_it(make, message, tmp_path):
    m = make()
    with pytest.raises(
        ValueError, match=f"`from_rows` is not possible .*: .*{message}"
    ):
        lodestar.export.save(m, tmp_path / "s", from_rows=True)
    assert not (tmp_path / "s").exists()
    lodestar.export.save(m, tmp_path / "s")


def test_an_output_that_is_ragged(tmp_path):
    ids = keras.Input((None,), dtype="int64", ragged=True, name="x")
    rows = layers.DynamicEmbedding(2, combiner="sum", name="embed")(ids)
    m = keras.Model(ids, {"rows": rows, "ids": ids})
    with pytest.raises(
        ValueError, match="the output 'ids' is not a dense tensor"
    ):
        lodestar.export.save(m, tmp_path / "s", from_rows=True)
