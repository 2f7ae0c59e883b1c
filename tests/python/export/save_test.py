"""Tests of exported models, in this process and in fresh ones."""

import os
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.embedding.saved_state import for_serving

BAGS = [[1, 2], [], [3], [4, 5, 6]]


def inputs():
    return {
        "bag": tf.ragged.constant(BAGS, tf.int64),
        "deep": tf.ragged.constant([[[1], []], [], [[2, 3]], []], tf.int64),
        "word": tf.ragged.constant([["a"], ["b", "c"], [], []]),
        "three": tf.constant(np.arange(12).reshape(4, 3)),
        "number": tf.ones([4, 2]),
    }


def model():
    symbols = {
        "bag": keras.Input((None,), dtype="int64", ragged=True, name="bag"),
        "deep": keras.Input(
            (None, None), dtype="int64", ragged=True, name="deep"
        ),
        "word": keras.Input((None,), dtype="string", ragged=True, name="word"),
        "three": keras.Input((3,), dtype="int64", name="three"),
        "number": keras.Input((2,), name="number"),
    }
    embed = {
        name: lodestar.layers.DynamicEmbedding(4, combiner="sum")
        for name in ("bag", "deep", "word", "three")
    }
    rows = {name: layer(symbols[name]) for name, layer in embed.items()}
    rows["deep"] = keras.layers.Lambda(
        lambda r: tf.reduce_sum(r, 1), output_shape=(4,)
    )(rows["deep"])
    x = keras.layers.Concatenate()([*rows.values(), symbols["number"]])
    out = keras.layers.Dense(1)(keras.layers.Dropout(0.5)(x))
    m = keras.Model(symbols, out)
    m.compile(lodestar.optimizers.Adam(), "mse")
    m.fit(inputs(), np.ones((4, 1)), epochs=2, verbose=0)
    return m


@pytest.fixture(scope="module")
def trained():
    """Returns one model for all tests that only read and export it."""
    return model()


def plain(signature):
    x = inputs()
    result = {"three": x["three"], "number": x["number"]}
    for name in ("bag", "deep", "word"):
        ragged = x[name]
        suffix, parts = {
            "ragged": ("row_splits", ragged.nested_row_splits),
            "values_and_lengths": ("lengths", ragged.nested_row_lengths()),
        }[signature]
        result[f"{name}_values"] = ragged.flat_values
        for axis, part in enumerate(parts):
            end = "" if len(parts) == 1 else f"_{axis}"
            result[f"{name}_{suffix}{end}"] = part
    return result


@pytest.mark.parametrize("signature", ["ragged", "values_and_lengths"])
def test_served_scores_are_the_models(signature, trained, tmp_path):
    want = trained.predict(inputs(), verbose=0)
    path = str(tmp_path / "served")
    lodestar.export.save(trained, path, signature)
    loaded = tf.saved_model.load(path)
    np.testing.assert_array_equal(loaded.serve(inputs())["output_0"], want)
    x = plain(signature)
    default = loaded.signatures["serving_default"]
    assert set(default.structured_input_signature[1]) == set(x)
    np.testing.assert_array_equal(default(**x)["output_0"], want)


def test_v1_loader_serves_the_rows(trained, tmp_path):
    m = trained
    lodestar.export.save(m, str(tmp_path / "s"))
    arrays = {k: v.numpy() for k, v in plain("ragged").items()}
    want = m.predict(inputs(), verbose=0)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.load(
            session, ["serve"], str(tmp_path / "s")
        )
        signature = meta.signature_def["serving_default"]
        feed = {signature.inputs[k].name: v for k, v in arrays.items()}
        output = signature.outputs["output_0"].name
        for _ in range(2):
            got = session.run(output, feed)
            np.testing.assert_array_equal(got, want)


def test_no_optimizer_slot_is_saved(trained, tmp_path):
    tables = [x.table for x in trained.layers if hasattr(x, "table")]
    lodestar.export.save(trained, tmp_path / "s")
    shapes = dict(tf.train.list_variables(f"{tmp_path}/s/variables/variables"))
    slots = [s for n, s in shapes.items() if "optimizer_slots" in n]
    assert slots == [[]] * len(tables)  # scalars replace empty slots
    # The live tables keep their slots.
    assert all(t.stats()["slot_bytes"] > 0 for t in tables)
    assert set(tables[0].export().optimizer_slots) == {"momentum", "velocity"}


def test_list_inputs_and_several_outputs(tmp_path):
    a = keras.Input((2,), dtype="int64", name="a")
    b = keras.Input((None,), dtype="int64", name="b", sparse=True)
    layer = lodestar.layers.DynamicEmbedding(2, combiner="sum")
    m = keras.Model([a, b], [layer(a), layer(b)])
    lodestar.export.save(m, str(tmp_path / "s"))
    loaded = tf.saved_model.load(str(tmp_path / "s"))
    got = loaded.serve(
        {
            "a": tf.constant([[1, 2]], tf.int64),
            "b": tf.ragged.constant([[1]], tf.int64).to_sparse(),
        }
    )
    assert set(got) == {"output_0", "output_1"}


@pytest.mark.parametrize("call", ["save", "save_plain", "verify"])
def test_the_model_comes_first(call, tmp_path):
    more = [None] if call == "verify" else []
    with pytest.raises(
        TypeError, match=rf"lodestar\.export\.{call}\(model, path"
    ):
        getattr(lodestar.export, call)(tmp_path, keras.Sequential(), *more)


def test_unknown_signature():
    with pytest.raises(ValueError, match=r"`signature`='csv' is not in \('ra"):
        lodestar.export.save(None, "nowhere", "csv")


def test_failed_export_leaves_the_old_one(tmp_path, monkeypatch):
    ids = keras.Input((None,), dtype="int64", ragged=True, name="x")
    layer = lodestar.layers.DynamicEmbedding(2, combiner="sum")
    m = keras.Model(ids, layer(ids))
    path = tmp_path / "s"
    lodestar.export.save(m, path)
    before = sorted(os.listdir(path))

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        lodestar.export.save(m, path)
    assert sorted(os.listdir(path)) == before
    assert os.listdir(tmp_path) == ["s"]


@pytest.mark.parametrize("how", ["model.export", "tf.saved_model.save"])
def test_other_ways_to_save_carry_the_table(how, tmp_path):
    ids = keras.Input((3,), dtype="int64", name="x")
    layer = lodestar.layers.DynamicEmbedding(2, combiner="sum")
    m = keras.Model(ids, keras.layers.Dense(1)(layer(ids)))
    x = np.arange(12).reshape(4, 3)
    m(x, training=True)
    path = str(tmp_path / "s")
    if how == "model.export":
        m.export(path, verbose=False)
        loaded = tf.saved_model.load(path)
        got = loaded.serve(tf.constant(x))
    else:
        tf.saved_model.save(m, path)
        loaded = tf.saved_model.load(path)
        serve = loaded.signatures["serving_default"]
        (got,) = serve(inputs=tf.constant(x)).values()
    np.testing.assert_array_equal(got, m(x))


def test_a_checkpoint_of_another_thread_has_the_optimizer_slots(
    trained, tmp_path
):
    """Exports omit optimizer slots, but a concurrent checkpoint contains them."""
    m = trained
    table = next(x.table for x in m.layers if hasattr(x, "table"))
    saved = []
    with for_serving():
        thread = threading.Thread(
            target=lambda: saved.append(
                tf.train.Checkpoint(t=table).write(str(tmp_path / "c"))
            )
        )
        thread.start()
        thread.join()
    restored = lodestar.EmbeddingVariable(4, name="restored")
    tf.train.Checkpoint(t=restored).read(saved[0]).assert_consumed()
    want, got = (t._export_all()["optimizer_slots"] for t in (table, restored))
    assert want.shape[0] == 2  # Adam's
    np.testing.assert_array_equal(np.sort(got, 1), np.sort(want, 1))
