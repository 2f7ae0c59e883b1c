"""Snapshots of tables in GPU memory, during training and across devices."""

import emulated

emulated.load()

import threading  # noqa: E402

import keras  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402

import lodestar  # noqa: E402

PLACES = {
    "cpu": None,
    "gpu": ["/GPU:0"],
    "two gpus": ["/GPU:0", "/GPU:1"],
    "both": ["/CPU:0", "/GPU:0"],
}


def model(devices=None, optimizer="Adagrad", **kwargs):
    """Returns a model of one table on `devices`."""
    inputs = keras.Input([2], dtype="int64")
    with tf.device("/CPU:0"):
        embed = lodestar.layers.DynamicEmbedding(
            4, devices=devices, seed=(1, 2), name="table", **kwargs
        )
    rows = embed(inputs)
    outputs = keras.layers.Dense(1, kernel_initializer="ones")(
        keras.layers.Flatten()(rows)
    )
    built = keras.Model(inputs, outputs)
    built.compile(getattr(lodestar.optimizers, optimizer)(0.1), "mse")
    return built


def train(model, rng, batches=3):
    for _ in range(batches):
        ids = rng.integers(0, 60, (32, 2))
        model.train_on_batch(ids, np.sum(ids % 7, 1, keepdims=True) * 1.0)


def content(model):
    table = model.get_layer("table").table
    return {k: v.numpy() for k, v in table._export_all().items()}


def assert_same(a, b):
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


# Each place saves, and each restores, in at least two pairs.
@pytest.mark.parametrize(
    "saved_on, restored_on, optimizer",
    [
        ("cpu", "gpu", "Adagrad"),
        ("cpu", "both", "RowWiseAdagrad"),
        ("gpu", "cpu", "RowWiseAdagrad"),
        ("gpu", "gpu", "Adagrad"),
        ("gpu", "two gpus", "Adagrad"),
        ("two gpus", "gpu", "RowWiseAdagrad"),
        ("two gpus", "both", "Adagrad"),
        ("both", "cpu", "Adagrad"),
        ("both", "two gpus", "RowWiseAdagrad"),
    ],
)
def test_snapshots_move_between_devices(
    tmp_path, saved_on, restored_on, optimizer
):
    rng = np.random.default_rng(3)
    saved = model(PLACES[saved_on], optimizer)
    restored = model(PLACES[restored_on], optimizer)
    train(saved, rng)
    info = lodestar.snapshot.save(saved, tmp_path)
    assert info.kind == "full"
    lodestar.snapshot.restore(restored, tmp_path)
    assert_same(content(restored), content(saved))
    # Both train further in the same way, with the optimizer's slots.
    for one in (saved, restored):
        train(one, np.random.default_rng(4))
    np.testing.assert_allclose(
        content(restored)["rows"], content(saved)["rows"], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    "place, optimizer",
    [
        ("gpu", "Adagrad"),
        ("two gpus", "RowWiseAdagrad"),
        ("both", "Adagrad"),
    ],
)
def test_deltas_contain_changes_and_removals(tmp_path, place, optimizer):
    rng = np.random.default_rng(5)
    saved = model(PLACES[place], optimizer)
    table = saved.get_layer("table").table
    train(saved, rng)
    lodestar.snapshot.save(saved, tmp_path)
    train(saved, rng, batches=1)
    table.remove(list(range(10)))
    info = lodestar.snapshot.save(saved, tmp_path, delta=True)
    assert info.kind == "delta"
    on_cpu = model(optimizer=optimizer)
    lodestar.snapshot.restore(on_cpu, tmp_path)
    assert_same(content(on_cpu), content(saved))
    # A restored table of as many parts continues the chain.
    restored = model(PLACES[place], optimizer)
    lodestar.snapshot.restore(restored, tmp_path)
    assert_same(content(restored), content(saved))
    train(restored, rng, batches=1)
    info = lodestar.snapshot.save(restored, tmp_path, delta=True)
    assert info.kind == "delta"
    again = model(PLACES[place], optimizer)
    lodestar.snapshot.restore(again, tmp_path)
    assert_same(content(again), content(restored))


@pytest.mark.parametrize(
    "place, optimizer", [("two gpus", "Adagrad"), ("both", "RowWiseAdagrad")]
)
def test_a_snapshot_has_one_point_of_time_while_training_goes_on(
    tmp_path, place, optimizer
):
    saved = model(PLACES[place], optimizer)
    rng = np.random.default_rng(6)
    train(saved, rng)
    before = content(saved)
    pending = lodestar.snapshot.save(saved, tmp_path, blocking=False)
    train(saved, rng, batches=5)
    pending.wait()
    restored = model(optimizer=optimizer)
    lodestar.snapshot.restore(restored, tmp_path)
    assert_same(content(restored), before)
    assert len(content(saved)["ids"]) >= len(before["ids"])


def test_steps_of_other_threads_are_in_whole_or_not_at_all(tmp_path):
    """Two tables of one model on two GPUs get the same ids in each step."""
    inputs = keras.Input([1], dtype="int64")
    towers = []
    for gpu in range(2):
        with tf.device("/CPU:0"):
            towers.append(
                lodestar.layers.DynamicEmbedding(
                    2,
                    devices=[f"/GPU:{gpu}"],
                    embeddings_initializer="zeros",
                    name=f"table{gpu}",
                )(inputs)
            )
    outputs = keras.layers.Flatten()(keras.layers.add(towers))
    both = keras.Model(inputs, outputs)
    both.compile(lodestar.optimizers.SGD(0.5), "mse")
    stop = threading.Event()
    both.train_on_batch(np.zeros([1, 1], np.int64), np.ones([1, 2]))

    def steps():
        rng = np.random.default_rng(8)
        while not stop.is_set():
            ids = rng.integers(0, 5, (4, 1))
            both.train_on_batch(ids, np.ones([4, 2]))

    thread = threading.Thread(target=steps)
    thread.start()
    try:
        infos = [
            lodestar.snapshot.save(both, tmp_path, delta=delta)
            for delta in (False, True, True)
        ]
    finally:
        stop.set()
        thread.join()
    assert [info.kind for info in infos] == ["full", "delta", "delta"]
    for info in infos:
        other = keras.models.clone_model(both)
        lodestar.snapshot.restore(
            other, tmp_path, version=info.version, optimizer_slots="reset"
        )
        tables = [other.get_layer(f"table{t}").table for t in range(2)]
        first, second = ([*t.export()] for t in tables)
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "policies",
    [
        {"admission": lodestar.MinCount(2)},
        {"admission": lodestar.CountingBloom(2, 0.01, 1000)},
        {"eviction": lodestar.MaxRows(40)},
    ],
    ids=["min count", "bloom", "max rows"],
)
@pytest.mark.parametrize("place", ["gpu", "two gpus"])
def test_policies(tmp_path, place, policies):
    rng = np.random.default_rng(7)
    saved = model(PLACES[place], **policies)
    train(saved, rng)
    lodestar.snapshot.save(saved, tmp_path)
    train(saved, rng, batches=1)
    lodestar.snapshot.save(saved, tmp_path, delta=True)
    for restored_on in ("cpu", place):
        restored = model(PLACES[restored_on], **policies)
        lodestar.snapshot.restore(restored, tmp_path)
        assert_same(content(restored), content(saved))


def test_errors_name_what_differs(tmp_path):
    saved = model(PLACES["gpu"])
    train(saved, np.random.default_rng(9))
    lodestar.snapshot.save(saved, tmp_path)
    capped = model(PLACES["gpu"], eviction=lodestar.MaxRows(3))
    with pytest.raises(
        lodestar.snapshot.SnapshotError, match="`max_rows` of the table is 3"
    ):
        lodestar.snapshot.restore(capped, tmp_path)
    other = model(PLACES["gpu"])
    other.compile(lodestar.optimizers.Adam(), "mse")
    train(other, np.random.default_rng(9), batches=1)
    before = content(other)
    with pytest.raises(
        lodestar.snapshot.SnapshotError, match="Adagrad|adagrad"
    ):
        lodestar.snapshot.restore(other, tmp_path)
    assert_same(content(other), before)
    lodestar.snapshot.restore(other, tmp_path, optimizer_slots="reset")
    np.testing.assert_array_equal(
        content(other)["rows"], content(saved)["rows"]
    )
