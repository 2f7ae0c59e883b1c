"""Strings as `padding_id` and `default_id`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import layers

WORDS = tf.constant([["a", ""], ["b", "c"], ["", ""]])
KINDS = {
    "dense": lambda x: x,
    "ragged": lambda x: tf.RaggedTensor.from_tensor(x),
    "sparse": lambda x: tf.RaggedTensor.from_tensor(x).to_sparse(),
}
OPTIONS = [{"column": "word"}, {"salt": "s"}, {"column": "c", "salt": "s"}]


def hashed(words, column=None, salt=None):
    return lodestar.hash_ids(words, column=column, salt=salt).numpy().tolist()


def layer_of(kind, **options):
    """Returns a function of ids, and the layer."""
    if kind == "embedding":
        layer = layers.DynamicEmbedding(2, **options)
        return layer, layer
    feature = lodestar.Feature(output_dim=2, **options)
    layer = layers.EmbeddingCollection({"word": feature})
    return lambda ids, **k: layer({"word": ids}, **k)["word"], layer


def table_of(layer):
    return layer.table if hasattr(layer, "table") else layer.tables[0]


BOTH = pytest.mark.parametrize("front", ["embedding", "collection"])


@BOTH
@pytest.mark.parametrize(
    "options, kind, graph",
    [
        ({}, "dense", False),
        ({"column": "word"}, "ragged", True),
        ({"salt": "s"}, "sparse", False),
        ({"column": "c", "salt": "s"}, "dense", True),
        ({"column": "c", "salt": "s"}, "sparse", True),
    ],
    ids=str,
)
def test_padding_has_no_row(front, options, kind, graph):
    call, layer = layer_of(front, combiner="mean", padding_id="", **options)
    pool = tf.function(call) if graph else call
    pooled = pool(KINDS[kind](WORDS), training=True)
    table = table_of(layer)
    ids = hashed(["a", "b", "c"], **options)
    assert sorted(table.export().ids.numpy().tolist()) == sorted(ids)
    rows = table.lookup(ids).numpy()
    want = [rows[0], (rows[1] + rows[2]) / 2, np.zeros(2)]
    np.testing.assert_allclose(pooled, want, rtol=1e-6)


@BOTH
@pytest.mark.parametrize("graph", [False, True])
def test_masks(front, graph):
    _, layer = layer_of(front, padding_id="", column="word")

    def mask_of(words):
        if front == "embedding":
            return layer.compute_mask(words)
        return layer.compute_mask({"word": words})["word"]

    mask = (tf.function(mask_of) if graph else mask_of)(WORDS)
    np.testing.assert_array_equal(mask, WORDS.numpy() != b"")
    assert mask_of(tf.RaggedTensor.from_tensor(WORDS)) is None


@pytest.mark.parametrize("max_length", [None, 1])
def test_masks_reach_the_next_layer(max_length):
    feature = lodestar.Feature(
        output_dim=2, padding_id="", max_length=max_length
    )
    layer = layers.EmbeddingCollection({"word": feature})
    words = keras.Input((2,), dtype="string", name="word")
    rows = layer({"word": words})["word"]
    mask = layer.compute_mask({"word": words})["word"]
    pooled = keras.layers.GlobalAveragePooling1D()(rows)
    model = keras.Model(words, [pooled, mask])
    layer({"word": WORDS}, training=True)
    got, mask = model.predict(WORDS, verbose=0)
    np.testing.assert_array_equal(mask, (WORDS != "")[:, :max_length])
    row = layer.tables[0].lookup(hashed(["a"]))[0]
    np.testing.assert_allclose(got[0], row, rtol=1e-6)


@BOTH
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_default_id_and_padding_counts(front, options):
    call, layer = layer_of(
        front, combiner="sum", padding_id="", default_id="none", **options
    )
    table = table_of(layer)
    table.insert_or_assign(hashed(["none"], **options), [[3.0, 4.0]])
    np.testing.assert_array_equal(call(WORDS)[2], [3.0, 4.0])
    call, layer = layer_of(
        front, combiner="mean", padding_id="", padding_counts=True, **options
    )
    table = table_of(layer)
    table.insert_or_assign(hashed(["a"], **options), [[3.0, 4.0]])
    np.testing.assert_array_equal(call(WORDS)[0], [1.5, 2.0])


def model_of(front, **options):
    words = keras.Input((None,), dtype="string", name="words")
    call, _ = layer_of(front, combiner="sum", **options)
    model = keras.Model(words, keras.layers.Dense(1)(call(words)))
    model.compile(lodestar.optimizers.SGD(0.1), "mse")
    return model


def tables_in(model):
    return [
        table_of(x)
        for x in model.layers
        if isinstance(x, layers.DynamicEmbedding | layers.EmbeddingCollection)
    ]


@pytest.mark.parametrize(
    "front, options",
    [("embedding", {"column": "c", "salt": "s"}), ("collection", {})],
)
def test_training_files_and_exports(front, options, tmp_path):
    options = {"padding_id": "", "default_id": "none", **options}
    model = model_of(front, **options)
    model.fit(WORDS, np.ones((3, 1)), verbose=0)
    (table,) = tables_in(model)
    salted = {k: v for k, v in options.items() if k in ("column", "salt")}
    want = sorted(hashed(["a", "b", "c"], **salted))
    assert sorted(table.export().ids.numpy().tolist()) == want
    scores = model.predict(WORDS, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(WORDS, verbose=0), scores)
    model.export(tmp_path / "keras", verbose=False)
    lodestar.export.save(model, tmp_path / "export")
    lodestar.export.save_plain(model, tmp_path / "plain")
    for folder in ("keras", "export", "plain"):
        served = tf.saved_model.load(tmp_path / folder)
        serve = served.signatures["serving_default"]
        (name,) = serve.structured_input_signature[1]
        (got,) = serve(**{name: WORDS}).values()
        np.testing.assert_allclose(got, scores, rtol=1e-6)


def test_padded_requests(tmp_path):
    words = keras.Input((None,), dtype="string", ragged=True, name="words")
    call, layer = layer_of("embedding", combiner="sum", padding_id="")
    layer(WORDS, training=True)
    model = keras.Model(words, call(words))
    lodestar.export.save(model, tmp_path / "export", "padded", padding_id="")
    loaded = tf.saved_model.load(tmp_path / "export")
    (got,) = loaded.signatures["serving_default"](words=WORDS).values()
    np.testing.assert_allclose(got, layer(WORDS), rtol=1e-6)


def test_features_json_has_the_id(tmp_path):
    from lodestar.export import features_json

    model = model_of("embedding", padding_id="", default_id="x", column="w")
    model.predict(WORDS, verbose=0)
    lodestar.export.save(model, tmp_path / "export")
    (table,) = features_json.read(tmp_path / "export")["tables"]
    (read,) = table["read_by"]
    assert [read["padding_id"], read["default_id"]] == hashed(["", "x"], "w")


def test_config():
    layer = layers.DynamicEmbedding(
        2, combiner="sum", padding_id="", default_id="none"
    )
    config = layer.get_config()
    assert (config["padding_id"], config["default_id"]) == ("", "none")
    again = layers.DynamicEmbedding.from_config(config)
    assert again._feature.padding_id == ""
    feature = lodestar.Feature(output_dim=2, padding_id="-")
    layer = layers.EmbeddingCollection({"a": feature})
    again = layers.EmbeddingCollection.from_config(layer.get_config())
    assert again.features["a"].padding_id == "-"


NUMBERS = tf.ones([1, 2], tf.int64)
WRONG = [
    ({"padding_id": 0}, WORDS, '`padding_id`=0 must be a string, such as ""'),
    ({"padding_id": ""}, NUMBERS, "`padding_id`='' must be an"),
    (
        {"padding_id": "x"},
        np.ones([1, 2], np.int32),
        "`padding_id`='x' must be",
    ),
    ({"padding_id": 0}, np.array([["a"]]), "`padding_id`=0 must be a string"),
    ({"default_id": 1}, WORDS, "`default_id`=1 must be a string"),
    ({"default_id": "x"}, NUMBERS, "`default_id`='x' must be an integer"),
]


@BOTH
@pytest.mark.parametrize(("options", "ids", "message"), WRONG)
@pytest.mark.parametrize("graph", [False, True])
def test_ids_of_another_kind_are_refused(front, options, ids, message, graph):
    call, layer = layer_of(front, combiner="sum", **options)
    if graph:
        call = tf.function(call)
        ids = tf.constant(ids)
    with pytest.raises(ValueError, match=f"{message}.*has dtype"):
        call(ids, training=True)
    assert int(table_of(layer).size()) == 0
    dtype = tf.as_dtype(tf.constant(ids).dtype).name
    with pytest.raises(ValueError, match=f"{message}.*has dtype"):
        call_again, _ = layer_of(front, combiner="sum", **options)
        call_again(keras.Input((None,), dtype=dtype))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding_id": "", "default_id": 1}, "must both be integers or both"),
        ({"padding_id": "", "ids": (0, 9)}, "is a range of integers"),
        ({"padding_id": b""}, "64-bit integer, or a string if the ids are str"),
        (
            {"padding_id": True},
            "64-bit integer, or a string if the ids are str",
        ),
        ({"default_id": "x", "combiner": None}, "`default_id`='x', which rep"),
    ],
)
def test_arguments(options, message):
    options = {"combiner": "sum", **options}
    with pytest.raises(ValueError, match=message):
        lodestar.Feature(output_dim=2, **options)
    with pytest.raises(ValueError, match=message):
        layers.DynamicEmbedding(2, **options)
