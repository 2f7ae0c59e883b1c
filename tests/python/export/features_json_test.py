"""Tests of features.json, and of the tensors it names in a loaded model."""

import json

import export_models
import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.export import features_json


@pytest.fixture(scope="module")
def model():
    return export_models.shared_collection_model()


@pytest.fixture(scope="module")
def path():
    return export_models.exported_collection("ragged")


def test_content_of_the_file(model, path):
    document = json.loads((path / "features.json").read_text())
    assert document["format"] == "lodestar.features"
    assert document["format_version"] == 1
    assert document["lodestar_version"] == lodestar.__version__
    assert document["signature"] == "ragged"
    assert document["padding_id"] == {}
    assert document["inputs"][:2] == [
        {
            "name": "viewer",
            "kind": "ragged",
            "dtype": "int64",
            "shape": [None, None],
            "ragged_rank": 1,
        },
        {"name": "author", "kind": "dense", "dtype": "int64", "shape": [None]},
    ]
    served = document["signatures"]["serving_default"]
    assert served["outputs"] == [
        {"name": "hidden", "dtype": "float32", "shape": [None, 4]},
        {"name": "score", "dtype": "float32", "shape": [None, 1]},
    ]
    user, item = (
        next(t for t in document["tables"] if t["key"] == key)
        for key in ("user", "item")
    )
    table = model.get_layer("embed").tables[0]
    read_by = user.pop("read_by")
    assert user == {
        "key": "user",
        "name": "user",
        "dim": 8,
        "dtype": "float32",
        "rows": int(table.size()),
        "missing": {"rule": "initial"},
        "initializer": "uniform",
        "seed": 0,
        "init_salt": table.get_config()["seed"][1],
    }
    assert read_by[0] == {
        "layer": "embed",
        "feature": "viewer",
        "call": 0,
        "inputs": ["viewer"],
        "combiner": "mean",
        "column": None,
        "salt": "viewer",
        "salt_word": table_feature(model, "viewer")._salt_word,
        "padding_id": None,
        "padding_counts": False,
        "default_id": None,
        "max_length": None,
    }
    assert [r["feature"] for r in read_by] == ["viewer", "author"]
    assert item["missing"] == {"rule": "shared_rows", "n": 7}
    # Through the vocabulary.
    assert item["read_by"][0]["inputs"] == ["items"]
    assert document["id_tables"] == [
        {
            "key": "words",
            "name": "words",
            "key_dtype": "string",
            "size": 2,
            # Of "ab" and of its lengths 1 and 1.
            "vocabulary": "2:3802278198 16:4181781043",
        }
    ]
    assert [v["shape"] for v in document["model_variables"]] == [
        [22, 4],
        [4],
        [4, 1],
        [1],
    ]
    assert document["model_variables"][0]["path"] == "hidden/kernel"
    assert document["model_variables"][0]["dtype"] == "float32"


def table_feature(model, name):
    return model.get_layer("embed").features[name]


def test_arguments_are_those_of_the_signature(path):
    document = json.loads((path / "features.json").read_text())
    loaded = tf.saved_model.load(str(path))
    specs = loaded.signatures["serving_default"].structured_input_signature[1]
    described = document["signatures"]["serving_default"]["arguments"]
    assert {a["name"]: (a["dtype"], a["shape"]) for a in described} == {
        name: (spec.dtype.name, spec.shape.as_list())
        for name, spec in specs.items()
    }


def test_named_objects_exist_in_the_loaded_model(model, path):
    document = json.loads((path / "features.json").read_text())
    loaded = tf.saved_model.load(str(path))
    gen_ops = lodestar._library.gen_ops
    for table in document["tables"]:
        handle = loaded.tables[table["key"]].resource_handle
        assert gen_ops.lodestar_embedding_size(handle) == table["rows"]
    for table in document["id_tables"]:
        handle = loaded.id_tables[table["key"]].resource_handle
        assert gen_ops.lodestar_id_table_size(handle) == table["size"]
    assert len(loaded.model_variables) == len(document["model_variables"])
    by_path = {v.path: v for v in model.weights}
    for said, variable in zip(
        document["model_variables"], loaded.model_variables, strict=True
    ):
        np.testing.assert_array_equal(variable, by_path[said["path"]])
        assert variable.shape == said["shape"]


def test_changes_through_named_tables_are_served(path):
    loaded = tf.saved_model.load(str(path))
    again = tf.saved_model.load(str(path))
    x = export_models.collection_inputs()
    before = loaded.serve(x)
    lodestar._library.gen_ops.lodestar_embedding_insert_or_assign(
        loaded.tables["user"].resource_handle,
        tf.constant([4], tf.int64),
        tf.ones([1, 8]),
    )
    after = loaded.serve(x)
    changed = np.any(before["hidden"].numpy() != after["hidden"].numpy(), 1)
    assert changed.tolist() == [False, True, False]
    for variable in loaded.model_variables:
        variable.assign(tf.zeros_like(variable))
    assert not np.any(loaded.serve(x)["score"])
    # Two loaded models share nothing.
    np.testing.assert_array_equal(again.serve(x)["score"], before["score"])


def test_missing_rules(tmp_path):
    for missing, want in (
        ("zeros", {"rule": "zeros"}),
        ([1.0, 2.0], {"rule": "vector", "vector": [1.0, 2.0]}),
    ):
        m = export_models.ragged_model(default_row=missing)
        lodestar.export.save(m, tmp_path / "s")
        (table,) = features_json.read(tmp_path / "s")["tables"]
        assert table["missing"] == want


def test_padding_round_trips(tmp_path):
    m = export_models.shared_collection_model()
    padding = {"viewer": -(2**63), "items": b"\xff"}
    lodestar.export.save(m, tmp_path / "s", "padded", padding_id=padding)
    document = features_json.read(tmp_path / "s")
    assert features_json.padding_of(document) == padding


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "features.json is not JSON"),
        (
            "[]",
            "features.json must have the format 'lodestar.features', got None",
        ),
        ('{"format": "x"}', "must have the format .*, got 'x'"),
        (
            '{"format": "lodestar.features", "format_version": 9, '
            '"lodestar_version": "8.1"}',
            "must have the format version 1, got 9. .* by Lodestar 8.1,",
        ),
    ],
)
def test_an_invalid_file(text, message, tmp_path):
    (tmp_path / "features.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        features_json.read(tmp_path)


def test_no_file(tmp_path):
    with pytest.raises(
        FileNotFoundError, match="has no features.json, expected"
    ):
        features_json.read(tmp_path)


@pytest.mark.parametrize("key", ["signature", "inputs", "signatures"])
def test_a_part_is_missing(key, tmp_path):
    whole = {
        "format": "lodestar.features",
        "format_version": 1,
        "signature": "ragged",
        "padding_id": {},
        "inputs_given": False,
        "inputs": [],
        "signatures": {},
    }
    features_json.write(tmp_path, whole)
    assert features_json.read(tmp_path) == whole
    del whole[key]
    features_json.write(tmp_path, whole)
    with pytest.raises(ValueError, match=f"damaged: it lacks .'{key}'"):
        features_json.read(tmp_path)


def test_a_lookup_of_constant_ids(tmp_path):
    """For example of the rows of a catalogue, to score all of its items."""
    # An eager tensor, which has no graph.
    catalogue = tf.constant([1, 2, 3], tf.int64)

    class Scores(keras.layers.Layer):
        def __init__(self, item):
            super().__init__()
            self.item = item

        def call(self, states):
            rows = self.item(catalogue)
            return keras.ops.matmul(states, keras.ops.transpose(rows))

    ids = keras.Input((), dtype="int64", name="ids")
    item = lodestar.layers.DynamicEmbedding(4, name="item")
    model = keras.Model(ids, Scores(item)(item(ids)))
    item(tf.range(5, dtype=tf.int64), training=True)
    lodestar.export.save(model, tmp_path / "s")
    loaded = tf.saved_model.load(tmp_path / "s")
    served = loaded.serve(tf.constant([2, 3], tf.int64))["output_0"]
    np.testing.assert_allclose(served, model(np.array([2, 3])), atol=1e-8)
    document = json.loads((tmp_path / "s" / "features.json").read_text())
    (table,) = document["tables"]
    assert [read["inputs"] for read in table["read_by"]] == [["ids"], []]
