"""Sample weights and optional labels, from a file to the loss."""

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import lodestar
from lodestar.data import Column, DataError, Schema, open_dataset, open_writer

FRAME = pd.DataFrame(
    {
        "x": [0.5, 1.5, 2.5, 3.5],
        "w": [1.0, 0.5, 0.0, 2.0],
        "click": [1, 0, 1, 1],
        "buy": [1.0, np.nan, 0.0, np.nan],
    }
)
CLICK = Column.label("click")
BUY = Column.label("buy", optional=True)
WEIGHT = Column.sample_weight("w")
X = Column.dense("x")


def stored(tmp_path, kind):
    """Returns FRAME in a source of a kind."""
    path = tmp_path / f"in.{kind}"
    if kind == "csv":
        FRAME.to_csv(path, index=False)
    elif kind == "parquet":
        FRAME.to_parquet(path)
    elif kind == "tfrecord":
        with open_writer(path, Schema([CLICK, BUY, WEIGHT, X])) as writer:
            for row in FRAME.to_dict("records"):
                writer.write(row)
    else:
        return FRAME
    return path


def read(source, *columns, **options):
    (batch,) = open_dataset(source, Schema(columns), 8, **options)
    return tf.nest.map_structure(lambda x: x.numpy().tolist(), batch)


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet", "tfrecord"])
def test_the_third_element_of_a_batch(tmp_path, kind):
    source = stored(tmp_path, kind)
    features, label, weights = read(source, CLICK, WEIGHT, X)
    assert features == {"x": [[0.5], [1.5], [2.5], [3.5]]}
    assert label == [[1], [0], [1], [1]]
    assert weights == [1, 0.5, 0, 2]
    _, label, weights = read(source, BUY, X)
    assert label == [[1], [0], [0], [0]] and weights == [1, 0, 1, 0]
    _, label, weights = read(source, WEIGHT, BUY, X)
    assert weights == [1, 0, 0, 0]
    _, labels, weights = read(source, CLICK, BUY, WEIGHT, X)
    assert labels["click"] == [[1], [0], [1], [1]]
    assert weights == {"click": [1, 0.5, 0, 2], "buy": [1, 0, 0, 0]}
    _, labels, weights = read(source, CLICK, BUY, X)
    assert weights == {"click": [1, 1, 1, 1], "buy": [1, 0, 1, 0]}


def test_named_in_the_call():
    dataset = open_dataset(
        FRAME,
        label="click",
        sample_weight="w",
        declare=[BUY],
        verbose=False,
    )
    assert dataset.schema["w"].kind == "sample_weight"
    (batch,) = dataset
    assert set(batch[2]) == {"click", "buy"}


def test_a_source_without_labels_has_features_only():
    assert read(FRAME[["x"]], CLICK, WEIGHT, X) == {
        "x": [[0.5], [1.5], [2.5], [3.5]]
    }


@pytest.mark.parametrize("missing", [np.nan, None, np.inf])
def test_a_weight_must_be_a_finite_number(missing):
    frame = FRAME.assign(w=[1.0, 2.0, 3.0, missing])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="row 3: column 'w': found"
    ):
        read(frame, CLICK, WEIGHT, X)


def test_an_optional_label_must_still_be_valid():
    for column in BUY, Column.label("buy", optional=True, binary=False):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="row 1: column 'buy': found"
        ):
            value = 2.0 if column.binary else np.inf
            read(FRAME.assign(buy=[1.0, value, 0.0, np.nan]), column, X)


def test_text_labels_may_be_missing():
    column = Column.label("y", positive="yes", negative="no", optional=True)
    frame = pd.DataFrame({"y": ["yes", None, "no", "NA"], "x": 1.0})
    _, label, weights = read(frame, column, X)
    assert label == [[1], [0], [0], [0]] and weights == [1, 0, 1, 0]


def model_of(schema):
    inputs = schema.inputs()
    score = keras.layers.Dense(
        1, use_bias=False, kernel_initializer="ones", name="click"
    )(inputs["x"])
    other = keras.layers.Dense(
        1, use_bias=False, kernel_initializer="ones", name="buy"
    )(inputs["x"])
    model = keras.Model(inputs, {"click": score, "buy": other})
    model.compile(keras.optimizers.SGD(0.1), {"click": "mse", "buy": "mse"})
    return model


@pytest.mark.parametrize(
    "fit",
    [
        lambda model, data: model.fit(data, verbose=0, shuffle=False),
        lambda model, data: lodestar.train.fit(model, data, verbose=0),
        lambda model, data: lodestar.train.fit(
            model, data, verbose=0, threads=2
        ),
    ],
    ids=["keras", "lodestar", "threads"],
)
def test_the_loss_is_weighted(tmp_path, fit):
    schema = Schema([CLICK, BUY, WEIGHT, X])
    model = model_of(schema)
    fit(model, open_dataset(stored(tmp_path, "csv"), schema, 8))
    x = FRAME["x"].to_numpy()
    for name, weights in (
        ("click", FRAME["w"]),
        ("buy", FRAME["w"] * FRAME["buy"].notna()),
    ):
        y = FRAME[name].fillna(0)
        gradient = float(np.sum(weights * 2 * (x - y) * x) / len(x))
        (kernel,) = model.get_layer(name).get_weights()
        np.testing.assert_allclose(kernel, [[1 - 0.1 * gradient]], rtol=1e-5)


def test_written_columns_keep_missing_labels(tmp_path):
    schema = Schema([CLICK, BUY, WEIGHT, X])
    for name in "out.csv", "out.parquet", "out.tfrecord":
        with open_writer(tmp_path / name, schema) as writer:
            for columns in open_dataset(FRAME, schema, 8, as_columns=True):
                writer.write_batch(columns)
        assert read(tmp_path / name, *schema) == read(FRAME, *schema)


def test_at_most_one_column_of_weights():
    with pytest.raises(ValueError, match="one column of sample weights, got"):
        Schema([WEIGHT, Column.sample_weight("v"), X])
    with pytest.raises(DataError, match="declared twice"):
        open_dataset(FRAME, label="click", sample_weight="click")
