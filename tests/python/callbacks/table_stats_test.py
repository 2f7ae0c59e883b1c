"""Tests of the TableStats callback and its event files."""

import csv as csv_lib

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.callbacks import TableStats


def scalars(log_dir):
    """Returns {step: {name: value}} of the event files in a directory."""
    found = {}
    for path in sorted(tf.io.gfile.glob(f"{log_dir}/events*")):
        for record in tf.data.TFRecordDataset(path):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                number = float(tf.make_ndarray(value.tensor))
                found.setdefault(event.step, {})[value.tag] = number
    return found


def model(eager=False):
    ids = keras.Input((2,), dtype="int64", name="ids")
    user = lodestar.EmbeddingVariable(2, name="user")
    features = {
        "a": lodestar.Feature(user, combiner="sum", padding_id=0),
        "b": lodestar.Feature(
            lodestar.EmbeddingVariable(3, name="item"), combiner="sum"
        ),
    }
    layer = lodestar.layers.EmbeddingCollection(features, name="embed")
    rows = layer({"a": ids, "b": ids})
    alone = lodestar.layers.DynamicEmbedding(2, combiner="sum", name="user")
    rows = [*rows.values(), alone(ids)]
    m = keras.Model(
        ids, keras.layers.Dense(1)(keras.layers.Concatenate()(rows))
    )
    m.compile(
        lodestar.optimizers.SGD(),
        "mse",
        run_eagerly=eager,
    )
    return m


X = np.array([[1, 2], [1, 0], [3, 4], [0, 0]])
Y = np.ones((4, 1), np.float32)


@pytest.mark.parametrize("eager", [False, True])
def test_scalars_of_each_epoch(tmp_path, eager):
    m = model(eager)
    m.fit(
        X,
        Y,
        batch_size=2,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=[TableStats(tmp_path)],
    )
    found = scalars(tmp_path)
    assert sorted(found) == [2, 4]
    first, second = found[2], found[4]
    assert first["table/user/rows"] == 4 and first["table/item/rows"] == 5
    # The second table with the same name.
    assert first["table/user_1/rows"] == 5
    for name, value in m.get_layer("embed").tables[0].stats().items():
        if isinstance(value, int):
            assert second[f"table/user/{name}"] == value
    feature = {
        name.rsplit("/", 1)[1]: value
        for name, value in second.items()
        if name.startswith("feature/embed/a/")
    }
    assert feature == {
        "ids": 16,
        "padding": 6,
        "unique": 8,
        "hits": 5,
        "misses": 5,
        "unique_ratio": pytest.approx(0.8),
        "padding_share": pytest.approx(6 / 16),
    }
    assert second["feature/embed/b/padding"] == 0


def test_scalars_of_every_third_batch(tmp_path):
    callback = TableStats(tmp_path, update_freq=3)
    m = model()
    for _ in range(2):  # a second fit continues the count
        m.fit(X, Y, batch_size=1, verbose=0, callbacks=[callback])
    assert sorted(scalars(tmp_path)) == [3, 6]


def test_a_model_without_tables_writes_nothing(tmp_path):
    m = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    m.compile("sgd", "mse")
    m.fit(X, Y, verbose=0, callbacks=[TableStats(tmp_path)])
    assert scalars(tmp_path) == {}


@pytest.mark.parametrize("update_freq", [0, -1, 2.5, None, "batch", True])
def test_bad_update_freq(update_freq, tmp_path):
    with pytest.raises(ValueError, match="`update_freq` must be"):
        TableStats(tmp_path, update_freq=update_freq)


def test_logs_of_each_epoch(tmp_path):
    csv = tmp_path / "log.csv"
    history = model().fit(
        X,
        Y,
        batch_size=2,
        epochs=2,
        verbose=0,
        callbacks=[
            TableStats(
                None, update_freq=1, logs=["rows", "feature/embed/a/padding"]
            ),
            keras.callbacks.CSVLogger(str(csv)),
        ],
    )
    names = [
        *("table/user/rows", "table/item/rows", "table/user_1/rows"),
        "feature/embed/a/padding",
    ]
    assert {name: history.history[name] for name in names} == {
        "table/user/rows": [4, 4],
        "table/item/rows": [5, 5],
        "table/user_1/rows": [5, 5],
        "feature/embed/a/padding": [3, 6],
    }
    assert set(history.history) == {"loss", *names}
    with open(csv) as file:
        first = next(iter(csv_lib.DictReader(file)))
    assert first["table/user/rows"] == "4"
    assert [p.name for p in tmp_path.iterdir()] == ["log.csv"]


@pytest.mark.parametrize(
    ("logs", "some"), [((), 0), ("all", 30), (["rows"], 3)]
)
def test_which_numbers_are_logged(logs, some):
    history = model().fit(
        X, Y, verbose=0, callbacks=[TableStats(None, logs=logs)]
    )
    found = [name for name in history.history if name.startswith("table/")]
    assert len(found) == some if some < 30 else len(found) > some


def test_an_unknown_table_name():
    callback = TableStats(None, logs=["row"])
    with pytest.raises(
        ValueError, match="`logs` has 'row', which is not .*rows"
    ):
        model().fit(X, Y, verbose=0, callbacks=[callback])
    with pytest.raises(
        ValueError, match="`logs` must be 'all' or a list .* 'rows'"
    ):
        TableStats(None, logs="rows")
    with pytest.raises(
        ValueError, match="`logs` must be 'all' or a list .* None"
    ):
        TableStats(None, logs=None)


@pytest.mark.parametrize(
    ("at_once", "update_freq", "wanted"),
    [
        (2, "epoch", [7, 14]),
        (3, "epoch", [7, 14]),
        (3, 3, [3, 6, 10, 13]),
        (3, 1, [3, 6, 7, 10, 13, 14]),
        (20, 5, [7, 14]),
    ],
)
def test_batches_are_counted_with_steps_per_execution(
    tmp_path, at_once, update_freq, wanted
):
    m = model()
    m.compile(
        lodestar.optimizers.SGD(),
        "mse",
        steps_per_execution=at_once,
    )
    m.fit(
        np.tile(X, (7, 1)),
        np.tile(Y, (7, 1)),
        batch_size=4,
        epochs=2,
        verbose=0,
        callbacks=[TableStats(tmp_path, update_freq=update_freq)],
    )
    assert sorted(scalars(tmp_path)) == wanted
