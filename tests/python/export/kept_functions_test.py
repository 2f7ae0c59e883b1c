"""Functions of a loaded model work when they are all that is kept of it."""

import functools
import gc
import os
import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import collection_inputs, shared_collection_model
from handles import weak

import lodestar
from lodestar._library import gen_ops
from lodestar.export import signatures

IDS = tf.constant([1, 2], tf.int64)
WANT = [[1.0, 1.0], [2.0, 2.0]]


def row_model():
    table = lodestar.EmbeddingVariable(2, name="t")
    table.insert_or_assign(IDS, WANT)
    x = keras.Input((), dtype="int64", name="x")
    rows = lodestar.layers.DynamicEmbedding(table=table)
    return keras.Model({"x": x}, {"y": rows(x)})


class Words(keras.Model):
    """Looks up words in each kind of id table."""

    def __init__(self):
        super().__init__()
        self.table = lodestar.lookup.IdTable(["a", "b"], mutable=True)
        self.layer = lodestar.layers.IdLookup(["a", "b"])

    def call(self, words):
        return {"y": self.table.lookup(words) + 10 * self.layer(words)}


def by_export(path, **options):
    lodestar.export.save(row_model(), path, **options)


def by_save_plain(path):
    lodestar.export.save_plain(row_model(), path)


def by_keras(path):
    row_model().export(path, verbose=False)


KINDS = {
    "export": by_export,
    "int8": functools.partial(by_export, dtype="int8"),
    "follow": functools.partial(by_export, follow="/nowhere/snapshots"),
    "plain": by_save_plain,
    "keras": by_keras,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_signature_alone(kind, tmp_path):
    path = str(tmp_path / "model")
    KINDS[kind](path)
    gc.collect()
    kept = tf.saved_model.load(path).signatures["serving_default"]
    for _ in range(2):
        np.testing.assert_allclose(kept(x=IDS)["y"], WANT, rtol=0.01)
        gc.collect()
    # It is independent of other loads, also of those that end.
    other = tf.saved_model.load(path)
    got = other.signatures["serving_default"](x=IDS)["y"]
    np.testing.assert_allclose(got, WANT, rtol=0.01)
    del other
    gc.collect()
    np.testing.assert_allclose(kept(x=IDS)["y"], WANT, rtol=0.01)


@pytest.mark.parametrize("save", ["save", "save_plain"])
def test_id_tables_and_collections(save, tmp_path):
    words = Words()
    words(tf.constant(["a"]))
    inputs = {"x": tf.TensorSpec([None], tf.string)}
    path = str(tmp_path / "words")
    getattr(lodestar.export, save)(words, path, inputs=inputs)
    infer = tf.saved_model.load(path).signatures["serving_default"]
    gc.collect()
    text = tf.constant(["b", "z", "a"])
    np.testing.assert_array_equal(infer(x=text)["y"], words(text)["y"])

    model = shared_collection_model()
    path = str(tmp_path / "collection")
    getattr(lodestar.export, save)(model, path)
    infer = tf.saved_model.load(path).signatures["serving_default"]
    gc.collect()
    specs = signatures.model_inputs(model).specs
    plain = signatures.plain_tensors(specs, "ragged").flatten(
        collection_inputs()
    )
    want = model(collection_inputs(), training=False)["score"]
    np.testing.assert_allclose(
        infer(**plain)["score"], want, rtol=1e-5, atol=1e-6
    )


def test_other_signatures_and_tables(tmp_path):
    path = str(tmp_path / "model")
    lodestar.export.save(
        row_model(),
        path,
        from_rows=True,
        metrics={"mean": keras.metrics.MeanAbsoluteError()},
    )
    found = tf.saved_model.load(path).signatures["evaluate"]
    gc.collect()
    results = found(x=IDS, labels=tf.zeros([2, 2]))
    assert float(results["mean"]) == pytest.approx(1.5)
    table = tf.saved_model.load(path).tables["t"]
    gc.collect()
    handle = table.resource_handle
    assert int(gen_ops.lodestar_embedding_size(handle)) == 2
    del table
    gc.collect()
    assert int(gen_ops.lodestar_embedding_size(handle)) == 2


def test_a_followed_export(tmp_path):
    def threads():
        return set(os.listdir("/proc/self/task"))

    model = row_model()
    path, snapshots = str(tmp_path / "model"), tmp_path / "snapshots"
    lodestar.export.save(model, path, follow=snapshots, poll_seconds=0.01)
    infer = tf.saved_model.load(path).signatures["serving_default"]
    gc.collect()
    np.testing.assert_array_equal(infer(x=IDS)["y"], WANT)
    table = model.layers[-1].table
    table.insert_or_assign(IDS, [[3.0, 3.0], [4.0, 4.0]])
    lodestar.snapshot.save(model, snapshots)
    end = time.monotonic() + 300
    while infer(x=IDS)["y"][0, 0] != 3:
        assert time.monotonic() < end
        time.sleep(0.01)
    gc.collect()
    np.testing.assert_array_equal(infer(x=IDS)["y"][:, 0], [3, 4])
    # Its thread ends with the last function.
    before = threads()
    del infer
    gc.collect()
    while not threads() < before:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_traced_function_keeps_what_it_read(tmp_path):
    path = str(tmp_path / "model")
    by_export(path)

    def traced():
        loaded = tf.saved_model.load(path)
        function = tf.function(lambda x: loaded.serve({"x": x})["y"])
        return function.get_concrete_function(tf.TensorSpec([None], tf.int64))

    concrete = traced()
    gc.collect()
    np.testing.assert_array_equal(concrete(IDS), WANT)


def test_names_are_removed(tmp_path):
    path = str(tmp_path / "model")
    by_export(path)
    loaded = tf.saved_model.load(path)
    handle = weak(loaded.tables["t"].resource_handle)
    assert int(gen_ops.lodestar_embedding_size(handle)) == 2
    infer = loaded.signatures["serving_default"]
    del loaded
    gc.collect()
    with pytest.raises(tf.errors.NotFoundError):
        gen_ops.lodestar_embedding_size(handle)
    np.testing.assert_array_equal(infer(x=IDS)["y"], WANT)


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    "save, kept",
    [
        ("save", "loaded"),
        ("save", "thread"),
        ("save", "function"),
        ("save_plain", "function"),
    ],
)
def test_memory_is_released_with_the_last_reference(save, kept, tmp_path):
    rows = 60_000  # 31 MB of numbers
    table = lodestar.EmbeddingVariable(128, name="t")
    table.insert_or_assign(np.arange(rows), np.ones([rows, 128], np.float32))
    x = keras.Input((), dtype="int64", name="x")
    y = lodestar.layers.DynamicEmbedding(table=table)(x)
    path = str(tmp_path / "model")
    getattr(lodestar.export, save)(keras.Model({"x": x}, {"y": y}), path)
    del table, y
    gc.collect()

    def use():
        loaded = tf.saved_model.load(path)
        infer = loaded.signatures["serving_default"]
        if kept == "function":
            del loaded
        infer(x=IDS)

    def once():
        if kept == "thread":
            thread = threading.Thread(target=use)
            thread.start()
            thread.join()
        else:
            use()
        gc.collect()

    once()
    before = resident_bytes()
    for _ in range(5):
        once()
    assert resident_bytes() - before < 60e6
