"""Stochastic rounding keeps the mean of small updates, and is repeatable."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from own_optimizers import unfused

import lodestar

DTYPES = pytest.mark.parametrize("dtype", ["float16", "bfloat16"])


def table(dtype, rounding="stochastic", dim=8, **kwargs):
    return lodestar.EmbeddingVariable(
        dim,
        dtype=dtype,
        rounding=rounding,
        **({"seed": (1, 2), "name": "t"} | kwargs),
    )


def update(t, optimizer, ids, value):
    values = tf.fill([len(ids), t.output_dim], tf.constant(value, tf.float32))
    gradient = tf.IndexedSlices(
        values, tf.constant(ids, tf.int64), tf.constant([-1, t.output_dim])
    )
    optimizer.apply([gradient], [t])


def rows_of(t):
    return np.asarray(t.export().rows).astype(np.float64)


@pytest.mark.parametrize("own", [False, True])
@DTYPES
def test_small_updates_add_up_on_average(dtype, own):
    make = unfused(keras.optimizers.SGD) if own else keras.optimizers.SGD
    ids = np.arange(2000)
    means = {}
    for rounding in ("nearest", "stochastic"):
        t = table(dtype, rounding)
        t.insert_or_assign(ids, np.full([2000, 8], 1.0, np.float32))
        optimizer = lodestar.optimizers.wrap(make(1.0))
        # A sixteenth of the last place of numbers above 1.
        step = 2.0**-11 if dtype == "bfloat16" else 2.0**-14
        for _ in range(8):
            update(t, optimizer, ids, -step)
        moved = (rows_of(t) - 1.0) / step
        means[rounding] = moved.mean()
    assert means["nearest"] == 0
    # A number is 0 or 16 steps with variance of at most 8 * 8 * 4.
    assert abs(means["stochastic"] - 8) < 5 * 16 / np.sqrt(2000 * 8)


@DTYPES
def test_shards_and_devices_change_no_bit(dtype):
    ids = np.arange(500)
    results = []
    for kwargs in (
        {"num_shards": 1},
        {"num_shards": 16},
        {"devices": ["/CPU:0", "/CPU:0"]},
    ):
        t = table(dtype, **kwargs)
        t.lookup(ids, training=True)
        optimizer = lodestar.optimizers.Adam(1e-4)
        for _ in range(3):
            update(t, optimizer, ids, 0.5)
        results.append(rows_of(t))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@DTYPES
def test_other_tables_and_steps_have_other_bits(dtype):
    ids = np.arange(500)
    results = []
    for seed, steps in (((1, 2), 0), ((1, 3), 0), ((1, 2), 1)):
        t = table(dtype, seed=seed, embeddings_initializer="ones")
        t.lookup(ids, training=True)
        optimizer = lodestar.optimizers.SGD(1.0)
        for _ in range(steps):
            update(t, optimizer, ids, 0.0)
        np.testing.assert_array_equal(rows_of(t), 1.0)
        update(t, optimizer, ids, 3 * 2.0**-12)
        results.append(rows_of(t))
    assert (results[0] != results[1]).mean() > 0.1
    assert (results[0] != results[2]).mean() > 0.1


@DTYPES
def test_assigned_rows_are_rounded_to_nearest(dtype):
    rows = np.random.default_rng(1).normal(size=(100, 8)).astype(np.float32)
    t = table(dtype)
    t.insert_or_assign(np.arange(100), rows)
    wanted = tf.cast(rows, dtype).numpy()
    np.testing.assert_array_equal(t.find(np.arange(100))[0], wanted)


def test_training_resumes_from_a_snapshot_bit_for_bit(tmp_path):
    def make():
        ids = keras.Input([2], dtype="int64")
        t = table("bfloat16", dim=4, optimizer=lodestar.optimizers.Adam(1e-3))
        embed = lodestar.layers.DynamicEmbedding(table=t, name="embed")
        flat = keras.layers.Flatten()(embed(ids))
        out = keras.layers.Dense(1, kernel_initializer="ones")(flat)
        model = keras.Model(ids, out)
        model.compile(lodestar.optimizers.Adam(1e-3), "mse")
        return model, t

    x = np.arange(64).reshape(32, 2) % 20
    y = np.sin(x.sum(1, keepdims=True))
    (model, first), (other, second) = make(), make()
    model.fit(x, y, epochs=2, shuffle=False, verbose=0)
    lodestar.snapshot.save(model, tmp_path)
    lodestar.snapshot.restore(other, tmp_path)
    for trained in (model, other):
        trained.fit(x, y, epochs=2, shuffle=False, verbose=0)
    np.testing.assert_array_equal(rows_of(first), rows_of(second))


def test_a_config_has_the_rounding():
    t = table("bfloat16")
    again = lodestar.EmbeddingVariable.from_config(t.get_config())
    assert again.get_config()["rounding"] == "stochastic"
    assert lodestar.EmbeddingVariable(2).get_config()["rounding"] == "nearest"


def test_wide_rows_are_refused():
    with pytest.raises(
        ValueError,
        match="`rounding`='stochastic' is for float16 and bfloat16 rows, but "
        "the rows are float32",
    ):
        table("float32")
    with pytest.raises(ValueError, match="`rounding`='down'"):
        table("float16", "down")


def test_the_op_refuses_wide_rows():
    from lodestar._library import gen_ops

    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="`rounding` is 'stochastic', but the rows are float32",
    ):
        gen_ops.lodestar_embedding_variable(dim=2, rounding="stochastic")
