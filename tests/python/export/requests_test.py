"""Exports of models with a schema accept the values of training files."""

import os
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.data import Column, Schema
from lodestar.export import save, save_plain, verify
from lodestar.export.compare import MismatchError
from lodestar.schema import as_schema

SCHEMA = Schema(
    [
        Column.label("click"),
        Column.sparse("_id", encoding="hash"),
        Column.sparse("friend", encoding="hash", hash_as="_id"),
        Column.sparse("w", dtype="float", weights_of="friend"),
        Column.sparse("ad", encoding="hex"),
        Column.sparse("a/b"),
        Column.dense("price", [2], fill_value=-1),
        Column.dense("image", [-1, 2]),
        Column.one_hot("day", 3),
        Column.sparse("aside", used=False),
    ],
    na_values=["", "?"],
)
EXPORTS = [save, save_plain]
STRINGS = {
    "_id": tf.ragged.constant([["ada", " 7\n", "?"], [], [" ", "ada"]]),
    "friend": tf.ragged.constant([["bob"], ["?", "eve"], []]),
    "w": tf.ragged.constant([[2.0], [9.0, 3.0], []]),
    "ad": tf.ragged.constant([["68fd1e64"], [], ["FFFFFFFFFFFFFFFF", "0x1"]]),
    "a/b": tf.ragged.constant([[5], [6, -7], []], tf.int64),
    "price": tf.constant([[1.0, 2.0], [3.0, 4.0], [-1.0, -1.0]]),
    "image": tf.reshape(tf.range(12.0), [3, 2, 2]),
    "day": tf.one_hot([2, 0, 1], 3),
}


def hashed(*texts):
    return lodestar.hash_ids(list(texts), column="_id").numpy().tolist()


IDS = {
    **STRINGS,
    "_id": tf.ragged.constant(
        [hashed("ada", "7"), [], hashed("ada")], tf.int64
    ),
    "friend": tf.ragged.constant([hashed("bob"), hashed("eve"), []], tf.int64),
    "w": tf.ragged.constant([[2.0], [3.0], []]),
    "ad": tf.ragged.constant([[0x68FD1E64], [], [-1, 1]], tf.int64),
}


def scores(features):
    """Returns a model's outputs for the schema's inputs, with a table for each."""
    parts = [
        lodestar.layers.DynamicEmbedding(4, combiner="sum")(
            features[name], features["w"] if name == "friend" else None
        )
        for name in ("_id", "friend", "ad", "a/b")
    ]
    parts += [
        features["price"],
        keras.ops.sum(features["image"], axis=1),
        features["day"],
    ]
    return keras.layers.Dense(1)(keras.layers.Concatenate()(parts))


def trained(given, inputs):
    model = keras.Model(given, scores(inputs))
    model.compile(
        lodestar.optimizers.Adagrad(0.5),
        "mse",
    )
    model.fit(by_input(model, IDS), np.ones([3, 1]), epochs=3, verbose=0)
    return model


@pytest.fixture(scope="module")
def model():
    inputs = SCHEMA.inputs()
    return trained(inputs, inputs)


def renamed(inputs):
    return {f"in {name}": tensor for name, tensor in inputs.items()}


def by_input(model, features):
    if isinstance(model.input, list):
        return features
    return {name: features[x.name] for name, x in model.input.items()}


def scored(model, features=IDS):
    return model(by_input(model, features), training=False).numpy()


@pytest.mark.filterwarnings("ignore:When providing `inputs` as a dict")
@pytest.mark.parametrize(
    "given",
    [dict, lambda inputs: [*inputs.values()], renamed],
    ids=["dict", "list", "renamed"],
)
def test_strings_score_as_the_ids_of_training(tmp_path, given):
    inputs = SCHEMA.inputs()
    model = trained(given(inputs), inputs)
    path = str(tmp_path / "served")
    save(model, path)
    loaded = tf.saved_model.load(path)
    wanted = scored(model)
    assert np.ptp(wanted) > 0.1
    found = loaded.serve(by_input(model, STRINGS))["output_0"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    found = loaded.serve_ids(by_input(model, IDS))["output_0"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "export, signature, options",
    [
        (save, "ragged", {}),
        (save_plain, "values_and_lengths", {}),
        (save, "padded", {"padding_id": {"a/b": -5, "w": -5.0}}),
        (save_plain, "examples", {}),
    ],
    ids=["ragged", "values_and_lengths", "padded", "examples"],
)
def test_verify_of_strings_and_ids(model, tmp_path, export, signature, options):
    path = str(tmp_path / "served")
    export(model, path, signature, **options)
    assert verify(model, path, IDS).signatures == ("serve_ids",)
    # At the end of a row, the padding "" has no padded form.
    ids = tf.ragged.constant([["ada", "?", "7"], [], ["", "ada"]])
    strings = {**STRINGS, "_id": ids}
    checked = verify(model, path, strings)
    assert checked.signatures == ("serve_ids", "serve", "serving_default")
    if signature != "ragged":
        return  # Scores are compared in the same way.
    kernel = model.layers[-1].kernel
    kernel.assign_add(tf.ones_like(kernel))
    with pytest.raises(MismatchError):
        verify(model, path, strings)
    kernel.assign_sub(tf.ones_like(kernel))


def test_examples_as_training_files_have_them(model, tmp_path):
    path = str(tmp_path / "served")
    save(model, path, "examples")
    example = tf.train.Example()
    feature = example.features.feature
    feature["_id"].bytes_list.value.extend([b"ada", b"?"])
    feature["image"].float_list.value.extend([1.0, 2.0, 3.0, 4.0])
    feature["day"].int64_list.value.append(2)
    loaded = tf.saved_model.load(path)
    serve = loaded.signatures["serving_default"]
    found = serve(examples=tf.constant([example.SerializeToString()]))
    none = tf.ragged.constant([[]], tf.int64)
    wanted = scored(
        model,
        {
            "_id": tf.ragged.constant([hashed("ada")], tf.int64),
            **dict.fromkeys(("friend", "ad", "a/b"), none),
            "w": tf.cast(none, tf.float32),
            "price": tf.constant([[-1.0, -1.0]]),
            "image": tf.constant([[[1.0, 2.0], [3.0, 4.0]]]),
            "day": tf.constant([[0.0, 0.0, 1.0]]),
        },
    )
    np.testing.assert_allclose(found["output_0"], wanted, rtol=1e-5, atol=1e-5)
    for name, values, message in (
        ("day", [3], r"day.* must have ids in \[0, 3\)"),
        (
            "image",
            [1.0],
            "image.* must have equally many values.*multiple of 2",
        ),
    ):
        bad = tf.train.Example()
        bad.CopyFrom(example)
        kind = "int64_list" if name == "day" else "float_list"
        bad.features.feature[name].Clear()
        getattr(bad.features.feature[name], kind).value.extend(values)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            serve(examples=tf.constant([bad.SerializeToString()]))


@pytest.mark.parametrize("export", EXPORTS)
def test_without_strings_requests_contain_ids(model, tmp_path, export):
    path = str(tmp_path / "served")
    export(model, path, strings=False)
    loaded = tf.saved_model.load(path)
    assert not hasattr(loaded, "serve_ids")
    found = loaded.serve(by_input(model, IDS))["output_0"]
    np.testing.assert_allclose(found, scored(model), rtol=1e-5, atol=1e-5)
    verify(model, path, by_input(model, IDS))


def test_schema_is_in_the_folder_and_the_loaded_model(model, tmp_path):
    path = str(tmp_path / "served")
    save(model, path)
    loaded = tf.saved_model.load(path)
    moved = shutil.copytree(path, tmp_path / "moved")
    shutil.rmtree(path)
    assert Schema.of(loaded) == SCHEMA
    assert as_schema(loaded) == SCHEMA
    assert as_schema(moved) == SCHEMA
    assert Schema.load(moved / "assets.extra" / "schema.yaml") == SCHEMA
    assert Schema.of(tf.saved_model.load(str(moved))) == SCHEMA


def test_folder_without_a_schema_is_named(tmp_path):
    ids = keras.Input((None,), dtype="int64", ragged=True)
    rows = lodestar.layers.DynamicEmbedding(2, combiner="sum")(ids)
    save(keras.Model(ids, rows), tmp_path / "served")
    with pytest.raises(
        ValueError, match=r"served' has no schema.*schema\.yaml"
    ):
        as_schema(tmp_path / "served")
    with pytest.raises(ValueError, match="has no schema"):
        Schema.of(tf.saved_model.load(str(tmp_path / "served")))
    assert not os.path.exists(tmp_path / "served" / "assets.extra")


class Own(keras.Model):
    """A subclassed model that declares its schema."""

    def __init__(self, schema):
        super().__init__()
        self.schema = schema
        self.rows = lodestar.layers.DynamicEmbedding(2, combiner="sum")

    def call(self, features):
        return self.rows(features["word"])


def own_model(column):
    model = Own(Schema([Column.label("y"), column]))
    ids = lodestar.hash_ids(["a", "b"], column=column.hash_as or "word")
    model({"word": ids[:, tf.newaxis]}, training=True)
    model.rows.table.insert_or_assign(ids, [[1.0, 2.0], [3.0, 4.0]])
    return model


def test_subclassed_model_uses_the_columns_of_its_schema(tmp_path):
    column = Column.sparse("word", encoding="hash", fill_value="error")
    model = own_model(column)
    path = str(tmp_path / "served")
    save(model, path)
    loaded = tf.saved_model.load(path)
    words = {"word": tf.ragged.constant([["a", "b"], ["b"]])}
    found = loaded.serve(words)["output_0"].numpy()
    assert found.tolist() == [[4.0, 6.0], [3.0, 4.0]]
    assert Schema.of(loaded) == model.schema
    verify(model, path, words)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="word.* must have no missing"
    ):
        loaded.serve({"word": tf.ragged.constant([["a", "nan"]])})


@pytest.mark.parametrize("export", EXPORTS)
@pytest.mark.parametrize("strings_only", [False, True])
def test_another_spelling_of_an_integer(tmp_path, export, strings_only):
    column = Column.sparse("word", encoding="hash", strings_only=strings_only)
    inputs = Schema([column]).inputs()
    rows = lodestar.layers.DynamicEmbedding(4, combiner="sum")(inputs["word"])
    export(keras.Model(inputs, rows), tmp_path / "e")
    loaded = tf.saved_model.load(str(tmp_path / "e"))
    serve = loaded.serve
    serve({"word": tf.ragged.constant([["7", "-70", "0", "a7", "0.5"]])})
    for text in ("007", "7.0", "+7", "-0", "7."):
        request = {"word": tf.ragged.constant([["a", text]])}
        if strings_only:
            serve(request)
            continue
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="in their usual spelling"
        ):
            serve(request)


def test_invalid_hexadecimal_strings_are_refused(tmp_path):
    ids = Schema([Column.sparse("ad", encoding="hex")]).inputs()
    rows = lodestar.layers.DynamicEmbedding(2, combiner="sum")(ids["ad"])
    save(keras.Model(ids, rows), tmp_path / "served")
    loaded = tf.saved_model.load(str(tmp_path / "served"))
    for text in ("zz", "10000000000000000", "-1", "0x"):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="ad.* must have hexadecimal"
        ):
            loaded.serve({"ad": tf.ragged.constant([["1", text]])})
    loaded.serve({"ad": tf.ragged.constant([[" 0xaB ", "0" * 40 + "1"]])})


def test_strings_of_a_file_score_as_its_rows(tmp_path):
    file = tmp_path / "train.csv"
    file.write_text(
        "click,word,tags,n\n1, red ,a|b,7\n0,?,b|?|c,8\n1,NA,,9\n0,green,c,7\n"
    )
    schema = Schema(
        [
            Column.label("click"),
            Column.sparse("word", encoding="hash"),
            Column.sparse(
                "tags", encoding="hash", hash_as="tag", separator="|"
            ),
            Column.sparse("n"),
        ]
    )
    inputs = schema.inputs()
    rows = [
        lodestar.layers.DynamicEmbedding(2, combiner="sum")(x)
        for x in inputs.values()
    ]
    model = keras.Model(inputs, keras.layers.Dense(1)(sum(rows)))
    model.compile(
        lodestar.optimizers.SGD(0.5),
        "mse",
    )
    data = lodestar.data.open_dataset(str(file), schema, batch_size=4)
    model.fit(data, epochs=3, verbose=0)
    path = str(tmp_path / "served")
    save(model, path)
    loaded = tf.saved_model.load(path)
    request = {
        "word": tf.ragged.constant([[" red "], ["?"], ["NA"], ["green"]]),
        "tags": tf.ragged.constant([["a", "b"], ["b", "?", "c"], [], ["c"]]),
        "n": tf.ragged.constant([[7], [8], [9], [7]], tf.int64),
    }
    wanted = model.predict(data, verbose=0)
    assert np.ptp(wanted) > 0.01
    found = loaded.serve(request)["output_0"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    for like in (model, path, loaded):
        again = lodestar.data.open_dataset(str(file), like, batch_size=4)
        np.testing.assert_array_equal(model.predict(again, verbose=0), wanted)
