"""The schema of a model in its snapshots."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import snapshot
from lodestar.data import Column, Schema
from lodestar.snapshot import SnapshotError

ITEM = Column.sparse("item", encoding="hash")
SCHEMA = Schema([Column.label("y"), ITEM, Column.sparse("aside", used=False)])
IDS = {"item": tf.ragged.constant([[1, 2], [3]], tf.int64)}


def model_of(schema, seed=1):
    keras.utils.set_random_seed(seed)
    if schema is None:
        ids = keras.Input((None,), dtype="int64", ragged=True, name="item")
    else:
        ids = schema.inputs()["item"]
    rows = lodestar.layers.DynamicEmbedding(2, combiner="sum", name="table")(
        ids
    )
    model = keras.Model({"item": ids}, keras.layers.Dense(1, name="top")(rows))
    model.compile(
        lodestar.optimizers.Adagrad(0.1),
        "mse",
    )
    model.fit(IDS, np.ones([2, 1]), verbose=0)
    return model


def scores(model):
    return model(IDS, training=False).numpy().tolist()


def test_schema_is_in_every_version(path):
    model = model_of(SCHEMA)
    snapshot.save(model, path)
    model.fit(IDS, np.ones([2, 1]), verbose=0)
    second = snapshot.save(model, path, delta=True)
    for version in (1, second.version):
        file = os.path.join(
            snapshot.versions(path)[version - 1].path, "schema.yaml"
        )
        assert Schema.load(file) == SCHEMA
    snapshot.compact(path)
    assert snapshot.verify(path)
    newest = snapshot.versions(path)[-1]
    assert Schema.load(os.path.join(newest.path, "schema.yaml")) == SCHEMA
    restored = model_of(SCHEMA, seed=2)
    snapshot.restore(restored, path)
    assert scores(restored) == scores(model)


@pytest.mark.parametrize(
    "other",
    [
        SCHEMA,
        None,
        Schema([Column.sparse("new"), ITEM, Column.sparse("aside", depth=2)]),
        Schema([Column.sparse("item", encoding="hash", wide=True)]),
    ],
    ids=["same", "none", "other columns", "wide"],
)
@pytest.mark.parametrize("turned", [False, True])
def test_same_meaning_is_restored(path, other, turned):
    saved, here = (other, SCHEMA) if turned else (SCHEMA, other)
    model = model_of(saved)
    snapshot.save(model, path)
    restored = model_of(here, seed=2)
    assert scores(restored) != scores(model)
    snapshot.restore(restored, path)
    assert scores(restored) == scores(model)


@pytest.mark.parametrize(
    "other, message",
    [
        (
            Schema([Column.sparse("item")]),
            "`encoding` of the column 'item' is 'hash' in the snapshot, 'int' "
            r"here.*Schema\.load\('.*schema.yaml'\)",
        ),
        (
            Schema([Column.sparse("item", encoding="hash", hash_as="user")]),
            "`hash_as` of the column 'item' is None in .*, 'user' here",
        ),
        (Schema(SCHEMA, na_values=["?"]), r"`na_values` are .*, \['\?'\] here"),
    ],
)
def test_another_meaning_is_refused(path, other, message):
    snapshot.save(model_of(SCHEMA), path)
    model = model_of(other, seed=2)
    before = scores(model)
    with pytest.raises(SnapshotError, match=message):
        snapshot.restore(model, path)
    assert scores(model) == before


def test_damaged_schema_is_found(path):
    model = model_of(SCHEMA)
    info = snapshot.save(model, path)
    file = os.path.join(info.path, "schema.yaml")
    with open(file) as source:
        text = source.read()
    with open(file, "w") as target:
        target.write(text.replace("item", "tiem"))
    with pytest.raises(snapshot.CorruptSnapshotError, match=r"schema\.yaml"):
        snapshot.restore(model, path)


@pytest.mark.parametrize("encoding", ["hash", "int"])
def test_served_model_accepts_snapshots_of_its_schema(path, tmp_path, encoding):
    export = str(tmp_path / "served")
    lodestar.export.save(model_of(SCHEMA), export)
    schema = Schema([Column.sparse("item", encoding=encoding)])
    snapshot.save(model_of(schema, seed=2), path)
    if encoding == "int":
        with pytest.raises(
            SnapshotError,
            match="the column 'item' is kind='sparse' in the snapshot, "
            "kind='sparse', encoding='hash' in the model",
        ):
            lodestar.serving.LiveModel(export, path, poll_seconds=None)
        return
    live = lodestar.serving.LiveModel(export, path, poll_seconds=None)
    assert live.version() == 1
    strings = {"item": tf.ragged.constant([["a"], []])}
    assert live(strings)["output_0"].shape == (2, 1)
