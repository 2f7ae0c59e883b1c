"""Exports that store rows in fewer bits."""

import json
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import collection_inputs, shared_collection_model

import lodestar
from lodestar._library import gen_ops
from lodestar.embedding.stored_rows import DTYPES
from lodestar.layers import DynamicEmbedding

BOTH = pytest.mark.parametrize(
    "export", [lodestar.export.save, lodestar.export.save_plain]
)
BYTES = {None: 128, "float16": 64, "bfloat16": 64, "int8": 40}  # of 32 numbers


@pytest.fixture(scope="module")
def trained():
    """Returns a trained classifier of lists of ids, and a batch."""
    rng = np.random.default_rng(1)
    ids = keras.Input((None,), dtype="int64", ragged=True, name="ids")
    rows = DynamicEmbedding(32, combiner="mean", name="e")(ids)
    x = keras.layers.Dense(16, activation="relu")(rows)
    model = keras.Model(
        {"ids": ids}, keras.layers.Dense(1, activation="sigmoid")(x)
    )
    model.compile(lodestar.optimizers.Adam(0.01), "binary_crossentropy")
    numbers = rng.integers(0, 2000, (3000, 4))
    labels = (numbers.sum(axis=1) % 2).astype(np.float32)
    batch = {"ids": tf.RaggedTensor.from_tensor(numbers * 2**50)}
    model.fit(batch, labels, epochs=3, batch_size=100, verbose=0)
    return model, batch


def saved_bytes(path):
    return os.path.getsize(
        os.path.join(path, "variables/variables.data-00000-of-00001")
    )


def test_scores_memory_and_files(trained, tmp_path):
    model, batch = trained
    want = model(batch)
    files = {}
    for dtype in (None, *DTYPES):
        path = str(tmp_path / str(dtype))
        lodestar.export.save(model, path, dtype=dtype)
        loaded = tf.saved_model.load(path)
        got = loaded.serve(batch)["output_0"]
        assert got.dtype == tf.float32
        np.testing.assert_allclose(
            got, want, rtol=0, atol=1e-2 if dtype else 1e-6
        )
        if dtype:
            assert np.abs(got - want).max() > 0
        table = gen_ops.lodestar_embedding_stats(
            loaded.tables["e"].resource_handle
        )
        _, _, row_bytes, slot_bytes, _, capacity, *_ = table.stats.numpy()
        assert row_bytes == capacity * (24 + BYTES[dtype])
        assert slot_bytes == 0
        files[dtype] = saved_bytes(path)
        with open(os.path.join(path, "features.json")) as file:
            assert json.load(file).get("dtype") == dtype
    rows = model.get_layer("e").table.shape[0]
    for dtype in DTYPES:
        stored = {"int8": 36}.get(dtype, 64)
        saved = files[None] - files[dtype]
        assert saved == pytest.approx(rows * (128 - stored), rel=0.02)


@pytest.mark.parametrize("dtype", DTYPES)
def test_several_tables_and_every_kind_of_missing_row(dtype, tmp_path):
    """Rows that are not stored, initial and shared ones, are not rounded."""
    model, batch = shared_collection_model(), collection_inputs()
    lodestar.export.save(model, tmp_path / "s", dtype=dtype)
    loaded = tf.saved_model.load(str(tmp_path / "s"))
    unseen = {**batch, "author": batch["author"] + 2**40}
    for inputs in (batch, unseen):
        want, got = model(inputs), loaded.serve(inputs)
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-2)


@BOTH
@pytest.mark.parametrize("dtype", [None, *DTYPES])
def test_tables_of_other_dtypes(export, dtype, tmp_path, rng):
    x = keras.Input((2,), dtype="int64", name="x")
    outputs = {}
    for row_dtype in ("float16", "bfloat16"):
        table = lodestar.EmbeddingVariable(4, dtype=row_dtype, name=row_dtype)
        rows = np.round(rng.normal(size=(9, 4)) * 127) / 127
        table.insert_or_assign(range(9), rows)
        outputs[row_dtype] = DynamicEmbedding(table=table)(x)
    model = keras.Model(x, outputs)
    ids = {"x": tf.constant([[0, 8], [3, 4]], tf.int64)}
    want = model(ids["x"])
    export(model, tmp_path / "s", dtype=dtype)
    loaded = tf.saved_model.load(str(tmp_path / "s"))
    got = loaded.serve(ids)
    for row_dtype, rows in want.items():
        np.testing.assert_allclose(
            got[row_dtype], rows, rtol=0, atol=0.02 if dtype == "int8" else 0
        )
        if export is lodestar.export.save_plain:
            found = loaded.tables[row_dtype].lookup(tf.constant([1], tf.int64))
            assert found.dtype == row_dtype


@pytest.mark.parametrize("rows", [0, 1])
def test_tables_with_few_rows(rows, tmp_path):
    x = keras.Input((), dtype="int64", name="x")
    table = lodestar.EmbeddingVariable(3, name="t")
    model = keras.Model(x, DynamicEmbedding(table=table)(x))
    table.insert_or_assign(range(rows), np.ones((rows, 3)))
    lodestar.export.save(model, tmp_path / "s", dtype="int8")
    loaded = tf.saved_model.load(str(tmp_path / "s"))
    got = loaded.serve({"x": tf.constant([0, 1], tf.int64)})["output_0"]
    np.testing.assert_allclose(got, [[rows] * 3, [0] * 3], atol=1e-6)


def test_the_model_is_unchanged(trained, tmp_path):
    model, batch = trained
    want = model(batch)
    lodestar.export.save(model, tmp_path / "s", dtype="int8")
    np.testing.assert_array_equal(model(batch), want)
    copy = keras.models.clone_model(model)
    assert copy.count_params() > 0
    model.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(again(batch), want)


def test_verify_within_a_tolerance(trained, tmp_path):
    model, batch = trained
    lodestar.export.save(model, tmp_path / "s", dtype="int8")
    verify = lodestar.export.verify
    verify(model, tmp_path / "s", batch, atol=1e-2)
    with pytest.raises(ValueError, match="more than `atol`"):
        verify(model, tmp_path / "s", batch)


@BOTH
@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        ("float16", 1e5, "the number 100000.0, which float16"),
        ("int8", np.inf, "a number that is not finite"),
        ("int8", np.nan, "a number that is not finite"),
        (
            "int8",
            3.4028235e38,
            "a number that is not finite, or too large for int8",
        ),
        ("int8", 1e-40, "a row whose largest number is .*e-41"),
        ("bfloat16", 1e-40, "a row whose largest .*, which bfl"),
        ("float16", 1e-9, "a row whose largest number is 1e-09"),
    ],
)
def test_numbers_out_of_range(export, dtype, value, message, tmp_path):
    x = keras.Input((), dtype="int64", name="x")
    table = lodestar.EmbeddingVariable(2, name="t")
    model = keras.Model(x, DynamicEmbedding(table=table)(x))
    table.insert_or_assign([1, 2], [[1.0, 2.0], [value, 0.0]])
    with pytest.raises(ValueError, match=f"table 't' has {message}"):
        export(model, tmp_path / "s", dtype=dtype)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_rows_of_small_numbers(dtype, tmp_path):
    x = keras.Input((), dtype="int64", name="x")
    table = lodestar.EmbeddingVariable(2, name="t")
    model = keras.Model({"x": x}, {"y": DynamicEmbedding(table=table)(x)})
    table.insert_or_assign([2], [[1e-37, 1e-36]])
    lodestar.export.save(model, tmp_path / "s", dtype=dtype)
    loaded = tf.saved_model.load(str(tmp_path / "s"))
    got = loaded.serve({"x": tf.constant([2], tf.int64)})["y"]
    np.testing.assert_allclose(got, [[1e-37, 1e-36]], atol=6e-39)
    assert np.all(got != 0)


@BOTH
@pytest.mark.parametrize("dtype", ["int4", "float32", tf.uint8, 8, [1]])
def test_unknown_dtypes(export, dtype, trained, tmp_path):
    with pytest.raises(ValueError, match="`dtype` must be"):
        export(trained[0], tmp_path / "s", dtype=dtype)
    assert not os.listdir(tmp_path)
