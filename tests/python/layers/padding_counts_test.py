"""Tests of `padding_counts`, the mean that counts padding."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.layers import DynamicEmbedding, EmbeddingCollection

BAGS = [[1, 0, 2, 0], [], [0, 0], [3], [1, 2, 3, 0, 0, 4]]


def batch(layout, values, dtype):
    ragged = tf.ragged.constant(values, dtype=dtype)
    if layout == "ragged":
        return ragged
    if layout == "dense":
        return ragged.to_tensor()
    # Zeros are stored, so that padding counts.
    return ragged.to_sparse()


def reference(rows_of, layout, weights=None, max_length=None):
    width = max(map(len, BAGS)) if layout == "dense" else 0
    result = []
    for b, bag in enumerate(BAGS):
        bag = bag + [0] * (width - len(bag))
        ws = [1.0] * len(bag)
        if weights is not None:
            ws = weights[b] + [0.0] * (width - len(weights[b]))
        bag, ws = bag[:max_length], ws[:max_length]
        total = sum(
            (w * rows_of[i] for i, w in zip(bag, ws) if i != 0), np.zeros(2)
        )
        result.append(total / sum(ws) if sum(ws) else total)
    return np.array(result, np.float32)


@pytest.fixture(params=[None, ["/CPU:0"] * 2], ids=["local", "devices"])
def table(request):
    """Returns a table with rows of ids 1 to 4."""
    t = lodestar.EmbeddingVariable(2, name="t", devices=request.param)
    t.insert_or_assign([1, 2, 3, 4], np.arange(1.0, 9).reshape(4, 2))
    return t


def rows_of(table):
    rows = table.export()
    return dict(zip(rows.ids.numpy().tolist(), rows.rows.numpy()))


@pytest.mark.parametrize(
    "layout, weighted, max_length, graph",
    [
        ("dense", False, None, True),
        ("dense", True, 3, False),
        ("ragged", True, None, True),
        ("ragged", False, 3, False),
        ("sparse", True, 3, True),
        ("sparse", False, None, False),
    ],
)
def test_results(table, layout, weighted, max_length, graph):
    weights = [[0.5 + i for i in range(len(bag))] for bag in BAGS]
    feature = lodestar.Feature(
        table,
        "mean",
        padding_id=0,
        max_length=max_length,
        padding_counts=True,
    )
    collection = EmbeddingCollection({"a": feature, "b": 2})
    ids = batch(layout, BAGS, tf.int64)
    ws = batch(layout, weights, tf.float32) if weighted else None
    calls = [
        lambda ids, ws: collection(
            {"a": ids, "b": tf.constant([1], tf.int64)},
            weights=None if ws is None else {"a": ws},
        )["a"]
    ]
    if max_length is None:
        layer = DynamicEmbedding(
            table=table, combiner="mean", padding_id=0, padding_counts=True
        )
        calls.append(lambda ids, ws: layer(ids, weights=ws))
    wanted = reference(
        rows_of(table), layout, weights if weighted else None, max_length
    )
    for call in calls:
        found = (tf.function(call) if graph else call)(ids, ws)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_gradients(table):
    layer = DynamicEmbedding(
        table=table, combiner="mean", padding_id=0, padding_counts=True
    )
    ids = tf.ragged.constant([[1, 0, 2, 0], [2]], dtype=tf.int64)
    weights = tf.ragged.constant([[1.0, 2, 3, 4], [5.0]])
    flat = weights.flat_values
    with tf.GradientTape() as tape:
        tape.watch(flat)
        rows = layer(ids, weights=weights.with_flat_values(flat), training=True)
        loss = tf.reduce_sum(rows)
    by_table, by_weights = tape.gradient(loss, [table, flat])
    sums = dict(zip(by_table.indices.numpy(), by_table.values.numpy()[:, 0]))
    assert sums == pytest.approx({1: 0.1, 2: 0.3 + 1})
    # d/dw of sum(w x) / sum(w).
    x = np.array([3.0, 0, 7, 0])  # sums of the rows
    mean = (x * [1, 2, 3, 4]).sum() / 10
    np.testing.assert_allclose(by_weights[:4], (x - mean) / 10, rtol=1e-5)
    np.testing.assert_allclose(by_weights[4], 0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_other_row_dtypes(dtype):
    t = lodestar.EmbeddingVariable(2, dtype=dtype)
    t.insert_or_assign([1], [[1.0, 2.0]])
    rows = t.lookup(
        [[1, 0, 0, 0]], combiner="mean", padding_id=0, padding_counts=True
    )
    assert rows.dtype == t._row_dtype
    np.testing.assert_array_equal(tf.cast(rows, tf.float32), [[0.25, 0.5]])


def test_inner_axes(table):
    ids = tf.ragged.constant(
        [[[1, 0], [2]], [], [[3, 0, 0, 0]]], dtype=tf.int64
    )
    rows = table.lookup(ids, combiner="mean", padding_id=0, padding_counts=True)
    assert rows.to_list() == [[[0.5, 1.0], [3.0, 4.0]], [], [[1.25, 1.5]]]


def test_files_and_exports(tmp_path):
    ids = keras.Input((4,), dtype="int64", name="ids")
    layer = DynamicEmbedding(
        2, combiner="mean", padding_id=0, padding_counts=True, name="l"
    )
    collection = EmbeddingCollection(
        {
            "a": lodestar.Feature(
                layer.table, "mean", padding_id=0, padding_counts=True
            )
        }
    )
    both = keras.layers.Concatenate()([layer(ids), collection({"a": ids})["a"]])
    model = keras.Model(ids, both)
    layer.table.insert_or_assign([1, 2], [[1.0, 2.0], [3.0, 4.0]])
    x = np.array([[1, 0, 2, 0], [0, 0, 0, 0]])
    wanted = [[1.0, 1.5, 1.0, 1.5], [0, 0, 0, 0]]
    np.testing.assert_array_equal(model.predict(x, verbose=0), wanted)
    model.save(str(tmp_path / "m.keras"))
    again = keras.models.load_model(str(tmp_path / "m.keras"))
    np.testing.assert_array_equal(again.predict(x, verbose=0), wanted)
    lodestar.export.save(model, str(tmp_path / "export"))
    lodestar.export.save_plain(model, str(tmp_path / "plain"))
    for folder in ("export", "plain"):
        loaded = tf.saved_model.load(str(tmp_path / folder))
        serve = loaded.signatures["serving_default"]
        (found,) = serve(ids=tf.constant(x)).values()
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "options",
    [
        {"combiner": "sum", "padding_id": 0},
        {"combiner": "mean"},
        {"combiner": None, "padding_id": 0},
        {"combiner": "mean", "padding_id": 0, "default_id": 1},
    ],
)
def test_what_it_needs(options):
    message = "`padding_counts` needs combiner='mean', a `padding_id` and no"
    t = lodestar.EmbeddingVariable(2)
    for make in (
        lambda **x: lodestar.Feature(t, **x),
        lambda **x: DynamicEmbedding(2, **x),
        lambda **x: t.lookup([[1]], **x),
    ):
        with pytest.raises(ValueError, match=message):
            make(padding_counts=True, **options)
    with pytest.raises(ValueError, match="`padding_counts`=1 is not a Python"):
        lodestar.Feature(t, padding_counts=1)
