"""Tests of `serve` of a loaded export, and of its errors."""

import keras
import numpy as np
import plain_served
import pytest
import tensorflow as tf

import lodestar
from lodestar.export.served_function import ServedFunction

IDS = np.array([[1, 2, 3], [4, 5, 6]])
RAGGED = tf.ragged.constant([[1, 2], [3]], tf.int64)


def exported(path, inputs, export=lodestar.export.save):
    rows = [
        lodestar.layers.DynamicEmbedding(2, combiner="sum")(x) for x in inputs
    ]
    score = keras.layers.Dense(1)(sum(rows))
    model = keras.Model({x.name: x for x in inputs}, score)
    export(model, path)
    return tf.saved_model.load(str(path))


def dense_input(name="ids"):
    return keras.Input((3,), dtype="int64", name=name)


def ragged_input(name="clicks"):
    return keras.Input((None,), dtype="int64", ragged=True, name=name)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """Returns a model with one dense input."""
    return exported(tmp_path_factory.mktemp("one") / "m", [dense_input()])


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Returns a model with a dense and a ragged input."""
    inputs = [dense_input(), ragged_input()]
    return exported(tmp_path_factory.mktemp("two") / "m", inputs)


@pytest.mark.parametrize(
    "features", [IDS, tf.constant(IDS), IDS.tolist(), {"ids": IDS}]
)
def test_one_input(one, features):
    want = one.serve({"ids": tf.constant(IDS)})["output_0"]
    np.testing.assert_array_equal(one.serve(features)["output_0"], want)


@pytest.mark.parametrize(
    "export", [lodestar.export.save, lodestar.export.save_plain]
)
def test_one_ragged_input(tmp_path, export):
    loaded = exported(tmp_path / "m", [ragged_input()], export)
    serve = loaded.serve
    want = serve({"clicks": RAGGED})["output_0"]
    np.testing.assert_array_equal(serve(RAGGED)["output_0"], want)
    with pytest.raises(ValueError, match="Use tf.ragged.constant"):
        serve(IDS)


@pytest.mark.parametrize(
    "ids, message",
    [
        (IDS + 0.5, r"must be dense int64 \(None, 3\), got dense float64"),
        ([[1.5, 2.0, 3.0]], "must be dense int64 .*, got dense float64"),
        (np.array([["a"] * 3]), "must be dense int64 .*, got dense string"),
    ],
)
def test_arrays_of_other_numbers(one, ids, message):
    with pytest.raises(ValueError, match=message):
        one.serve(ids)


@pytest.mark.parametrize("dtype", [np.int32, np.uint64, np.int8])
def test_arrays_of_other_integers(one, dtype):
    want = one.serve(IDS)["output_0"]
    got = one.serve(IDS.astype(dtype))["output_0"]
    np.testing.assert_array_equal(got, want)


def test_integers_that_do_not_fit(tmp_path):
    ids = keras.Input((3,), dtype="int32", name="ids")
    loaded = exported(tmp_path / "m", [ids])
    assert loaded.serve(IDS)["output_0"].shape == (2, 1)
    for wide in (IDS + 2**32, (IDS + 2**32).tolist()):
        with pytest.raises(ValueError, match="numbers outside of .-2147483648"):
            loaded.serve(wide)


def test_in_graphs(one):
    want = one.serve(IDS)["output_0"]
    got = tf.function(lambda x: one.serve(x)["output_0"])(tf.constant(IDS))
    np.testing.assert_array_equal(got, want)
    for elements in (IDS, {"ids": IDS}):
        data = tf.data.Dataset.from_tensors(elements).map(one.serve)
        np.testing.assert_array_equal(next(iter(data))["output_0"], want)
    with pytest.raises(ValueError, match="'ids' must be dense int64"):
        tf.function(one.serve)(tf.zeros([2, 3]))


@pytest.mark.parametrize(
    "features, message",
    [
        (
            {"id": IDS, "clicks": RAGGED},
            r"must have the inputs \['clicks', 'ids'\], but \['ids'\] are "
            r"missing, got \['id', 'clicks'\]. Did you mean 'ids'\?",
        ),
        ({"clicks": RAGGED}, r"but \['ids'\] are missing, got \['clicks'\]\.$"),
        (
            {"ids": IDS, "clicks": RAGGED, "age": IDS},
            r"must have only .*'ids'\], got also \['age'\]. Leave them out",
        ),
        (IDS, r"must be a dict of the inputs \['clicks', 'ids'\], got a nda"),
        (
            {"ids": tf.constant(IDS, tf.int32), "clicks": RAGGED},
            r"The input 'ids' must be dense int64 \(None, 3\), got dense int32 "
            r"\(2, 3\). Convert it with tf.cast\(x, tf.int64\).",
        ),
        (
            {"ids": IDS[0], "clicks": RAGGED},
            r"'ids' must be dense int64 \(None, 3\), got dense int64 \(3,\)",
        ),
        (
            {"ids": IDS, "clicks": tf.constant(IDS)},
            r"'clicks' must be ragged int64 .*, got dense int64 \(2, 3\). Use tf",
        ),
        (
            {"ids": IDS, "clicks": RAGGED.with_row_splits_dtype(tf.int32)},
            "'clicks' must be ragged .* axes, got ragged .* int32 row splits",
        ),
        (
            {"ids": [["a"] * 3], "clicks": RAGGED},
            r"'ids' must be dense int64 \(None, 3\), got dense string \(1, 3\)\.",
        ),
        (
            {"ids": object(), "clicks": RAGGED},
            "'ids' must be dense .*, got the type object",
        ),
    ],
)
def test_other_features(two, features, message):
    with pytest.raises(ValueError, match=message) as raised:
        two.serve(features)
    assert "TraceType" not in str(raised.value)


def test_errors_of_the_graph_are_unchanged(tmp_path):
    ids = keras.Input((), dtype="string", name="ids")
    numbers = keras.layers.Lambda(
        lambda x: tf.strings.to_number(x), output_shape=()
    )(ids)
    lodestar.export.save(keras.Model(ids, numbers), tmp_path / "m")
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="correctly conv"):
        loaded.serve(tf.constant(["a"]))


def test_saved_again(tmp_path):
    first = exported(
        tmp_path / "m", [dense_input()], lodestar.export.save_plain
    )
    want = first.serve(IDS)["output_0"]
    tf.saved_model.save(first, str(tmp_path / "n"))
    again = tf.saved_model.load(str(tmp_path / "n"))
    np.testing.assert_array_equal(again.serve(IDS)["output_0"], want)


def test_without_the_package(tmp_path):
    path = tmp_path / "m"
    exported(path, [dense_input()], lodestar.export.save_plain)
    plain_served.process().run(
        """
import sys
import tensorflow as tf
loaded = tf.saved_model.load(sys.argv[1])
ids = tf.constant([[1, 2, 3]], tf.int64)
assert loaded.serve({"ids": ids})["output_0"].shape == (1, 1)
assert loaded.signatures["serving_default"](ids)["output_0"].shape == (1, 1)
""",
        path,
    )


def test_loaded_by_tensorflow_alone(tmp_path):
    class Plain(tf.Module):
        @tf.function(input_signature=[{"x": tf.TensorSpec([None])}])
        def __call__(self, features):
            return {"y": features["x"]}

    module = tf.Module()
    module.serve = Plain()
    tf.saved_model.save(module, str(tmp_path / "m"))
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    serve = ServedFunction.of(loaded.serve)
    assert isinstance(serve, ServedFunction)
    np.testing.assert_array_equal(serve([1.0])["y"], [1.0])
