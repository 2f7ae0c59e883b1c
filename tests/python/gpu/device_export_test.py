"""Exports of models with tables in GPU memory, and serving on GPUs."""

import emulated

emulated.load()

import functools  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402

import keras  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402

import lodestar  # noqa: E402
from lodestar._library import gen_ops  # noqa: E402

PLACES = {
    "gpu": ["/GPU:0"],
    "two gpus": ["/GPU:0", "/GPU:1"],
    "both": ["/CPU:0", "/GPU:0"],
}


every_export = pytest.mark.parametrize(
    "place, combiner",
    [(place, "mean") for place in PLACES]
    + [("two gpus", "max"), ("both", None)],
)


def model(devices, combiner="mean"):
    """Returns a trained model of one table, and ids to score."""
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 60, (64, 3))
    inputs = keras.Input([3], dtype="int64", name="ids")
    embed = lodestar.layers.DynamicEmbedding(
        4, combiner=combiner, devices=devices, seed=(1, 2), name="table"
    )
    rows = keras.layers.Flatten()(embed(inputs))
    outputs = keras.layers.Dense(1, name="score")(rows)
    built = keras.Model(inputs, outputs)
    built.compile(lodestar.optimizers.Adagrad(0.1), "mse")
    train(built, ids)
    # Also ids without a row.
    return built, rng.integers(0, 90, (20, 3))


@functools.cache
def shared(place, combiner="mean"):
    """Returns a `model` that tests only read."""
    return model(PLACES[place], combiner)


def train(model, ids):
    model.fit(ids, np.sum(ids % 5, 1, keepdims=True), verbose=0, shuffle=False)


def scores(function, ids, name="ids"):
    with tf.device("/CPU:0"):
        (output,) = function(**{name: tf.constant(ids)}).values()
    return output.numpy()


def devices_of(loaded):
    table = loaded.tables["table"]
    parts = [getattr(table, "rows", table)]
    if hasattr(table, "rows_1"):
        parts.append(table.rows_1)
    return [part.resource_handle.device[-5:] for part in parts]


@every_export
def test_an_export_serves_on_the_devices_and_without_them(
    tmp_path, place, combiner
):
    exported, ids = shared(place, combiner)
    wanted = exported.predict(ids, verbose=0)
    lodestar.export.save(exported, tmp_path / "served")
    loaded = tf.saved_model.load(tmp_path / "served")
    assert devices_of(loaded) == [name[1:] for name in PLACES[place]]
    served = loaded.signatures["serving_default"]
    np.testing.assert_allclose(
        scores(served, ids), wanted, rtol=1e-5, atol=1e-5
    )
    if combiner != "mean":
        return
    # In a process without GPUs.
    np.save(tmp_path / "ids", ids)
    np.save(tmp_path / "wanted", wanted)
    program = f"""
import numpy as np, tensorflow as tf, lodestar
folder = {str(tmp_path)!r}
loaded = tf.saved_model.load(folder + "/served")
assert not tf.config.list_physical_devices("GPU")
ids = tf.constant(np.load(folder + "/ids.npy"))
(output,) = loaded.signatures["serving_default"](ids=ids).values()
wanted = np.load(folder + "/wanted.npy")
np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-5)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("place", PLACES)
def test_keras_and_tensorflow_export_too(tmp_path, place):
    exported, ids = shared(place)
    wanted = exported.predict(ids, verbose=0)
    exported.export(tmp_path / "keras", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "keras")
    np.testing.assert_allclose(loaded.serve(ids), wanted, rtol=1e-5, atol=1e-5)
    tf.saved_model.save(exported, tmp_path / "tf")
    loaded = tf.saved_model.load(tmp_path / "tf")
    found = scores(loaded.signatures["serving_default"], ids, "inputs")
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@every_export
def test_an_export_of_plain_tensorflow_ops(tmp_path, place, combiner):
    exported, ids = shared(place, combiner)
    wanted = exported.predict(ids, verbose=0)
    lodestar.export.save_plain(exported, tmp_path)
    with tf.device("/CPU:0"):
        loaded = tf.saved_model.load(tmp_path)
        (output,) = loaded.signatures["serving_default"](
            ids=tf.constant(ids)
        ).values()
        found = loaded.tables["table"].lookup(tf.constant([1, 2], tf.int64))
    np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-5)
    rows, _ = exported.get_layer("table").table.find([1, 2])
    np.testing.assert_array_equal(found, rows)


@pytest.mark.parametrize("place", PLACES)
def test_rows_on_a_gpu_are_stored_as_they_are(tmp_path, place):
    exported, _ = shared(place)
    with pytest.raises(
        ValueError, match="the table 'table' is on /device:GPU:0"
    ):
        lodestar.export.save(exported, tmp_path / "served", dtype="int8")
    with tf.device("/GPU:0"):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="a GPU cannot"
        ):
            gen_ops.lodestar_embedding_variable(
                dim=2, dtype=tf.float32, stored_as="int8"
            )


def test_a_collection_is_exported(tmp_path):
    inputs = {name: keras.Input([2], dtype="int64", name=name) for name in "ab"}
    embed = lodestar.layers.EmbeddingCollection(
        {
            "a": lodestar.Feature(output_dim=3, combiner="sum"),
            "b": lodestar.Feature(output_dim=2, combiner="max"),
        },
        devices=["/GPU:0", "/GPU:1"],
        plan={"a": ("/GPU:0", "/GPU:1"), "b": "/GPU:1"},
    )
    exported = keras.Model(
        inputs, keras.layers.Concatenate()([*embed(inputs).values()])
    )
    exported.compile(lodestar.optimizers.SGD(0.1), "mse")
    ids = {name: np.arange(12).reshape(6, 2) % 5 for name in "ab"}
    exported.train_on_batch(ids, np.ones([6, 5]))
    wanted = exported.predict(ids, verbose=0)
    lodestar.export.save(exported, tmp_path / "ours")
    lodestar.export.save_plain(exported, tmp_path / "plain")
    for kind in ("ours", "plain"):
        with tf.device("/CPU:0"):
            loaded = tf.saved_model.load(tmp_path / kind)
            served = loaded.signatures["serving_default"]
            (output,) = served(
                **{name: tf.constant(value) for name, value in ids.items()}
            ).values()
        np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("consistency", ["call", "row"])
@pytest.mark.parametrize("place", PLACES)
def test_a_live_model_follows_snapshots_on_gpus(tmp_path, place, consistency):
    trained, ids = model(PLACES[place])
    lodestar.export.save(trained, tmp_path / "served")
    snapshots = tmp_path / "snapshots"
    live = lodestar.serving.LiveModel(
        tmp_path / "served",
        snapshots,
        poll_seconds=None,
        consistency=consistency,
    )

    def check(kind):
        info = lodestar.snapshot.save(trained, snapshots, delta=kind == "delta")
        assert info.kind == kind
        assert live.poll()
        wanted = trained.predict(ids, verbose=0)
        found = scores(live.signatures["serving_default"], ids)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
        table = trained.get_layer("table").table
        assert live.stats()["rows"] == {"table": int(table.size())}

    train(trained, ids)
    check("full")
    for step in range(3):
        train(trained, ids + step)
        trained.get_layer("table").table.remove([step, 40 + step])
        check("delta")
    # The first version of each copy.
    assert live.stats()["full_updates"] == (2 if consistency == "call" else 1)
    live.close()
