"""Tests of the Evict callback."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.callbacks import Evict

X = np.arange(8)[:, None]
Y = np.ones((8, 1), np.float32)


def model(**options):
    keras.utils.set_random_seed(1)
    ids = keras.Input((1,), dtype="int64")
    layers = [
        lodestar.layers.DynamicEmbedding(
            2, combiner="sum", name=name, **options
        )
        for name in ("user", "item")
    ]
    rows = keras.layers.Concatenate()([layer(ids) for layer in layers])
    m = keras.Model(ids, keras.layers.Dense(1)(rows))
    m.compile(lodestar.optimizers.SGD(), "mse", run_eagerly=True)
    return m


def ids_of(m, name="user"):
    return m.get_layer(name).table.export().ids.numpy().tolist()


def fit(m, callback, **options):
    return m.fit(
        X,
        Y,
        **{"batch_size": 1, "shuffle": False, "verbose": 0, **options},
        callbacks=[callback],
    )


def test_every_few_batches():
    # After batch 6, of ids 0 to 5, age 3 is that of id 2.
    m = model()
    fit(m, Evict(lodestar.MaxAge(3), 3))
    for name in ("user", "item"):
        assert ids_of(m, name) == [3, 4, 5, 6, 7]


def test_every_epoch():
    m = model()
    sizes = []
    seen = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: sizes.append(len(ids_of(m)))
    )
    m.fit(
        X, Y, batch_size=1, epochs=2, shuffle=False, verbose=0,
        callbacks=[seen, Evict(lodestar.MaxAge(2))],
    )  # fmt: skip
    assert sizes[:8] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert sizes[8] == 3  # two rows of the first epoch are left
    assert ids_of(m) == [6, 7]


def test_rows_are_handed_on():
    kept = []
    m = model()
    fit(
        m,
        Evict(
            lodestar.MaxAge(0),
            4,
            on_evict=lambda table, ids, rows: kept.append(
                (table.name, ids.tolist(), rows.shape)
            ),
        ),
    )
    assert sorted(kept) == [
        ("item", [0, 1, 2, 3], (4, 2)),
        ("item", [4, 5, 6, 7], (4, 2)),
        ("user", [0, 1, 2, 3], (4, 2)),
        ("user", [4, 5, 6, 7], (4, 2)),
    ]


def test_nothing_is_handed_on_without_evicted_rows():
    calls = []
    m = model()
    fit(m, Evict(lodestar.MaxAge(99), 1, on_evict=lambda *x: calls.append(x)))
    assert not calls


def train(m, folder, callbacks, epochs):
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(1)
    lodestar.train.fit(
        m,
        data,
        epochs=epochs,
        verbose=0,
        callbacks=callbacks,
        snapshots=lodestar.callbacks.Snapshot(folder, every_n_steps=5),
    )


def test_train_fit_resumes_the_count(tmp_path):
    def evict():
        return Evict(lodestar.MaxAge(3), 3)

    whole = model()
    train(whole, str(tmp_path / "whole"), [evict()], 2)

    class Stop(Exception):
        pass

    class StopAt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 6:
                raise Stop

    with pytest.raises(Stop):
        train(model(), str(tmp_path / "cut"), [StopAt(), evict()], 2)
    resumed = model()
    train(resumed, str(tmp_path / "cut"), [evict()], 2)
    a, b = (m.get_layer("user").table.export() for m in (whole, resumed))
    np.testing.assert_array_equal(a.ids, b.ids)
    np.testing.assert_array_equal(a.rows, b.rows)


def test_the_count_goes_on_over_steps_per_execution():
    m = model()
    m.compile(lodestar.optimizers.SGD(), "mse", steps_per_execution=4)
    fit(m, Evict(lodestar.MaxAge(0), 3))
    assert ids_of(m) == []  # after batches 4 and 8


@pytest.mark.parametrize("every", [0, -1, 2.5, None, "batch", True])
def test_bad_every(every):
    with pytest.raises(
        ValueError, match="`every` must be 'epoch' or an integer"
    ):
        Evict(lodestar.MaxAge(1), every)


def test_other_bad_arguments():
    with pytest.raises(ValueError, match="`policy` must be MaxAge, .* got 3"):
        Evict(3)
    with pytest.raises(ValueError, match="`policy` must be at least one"):
        Evict([])
    with pytest.raises(ValueError, match="`on_evict` must be a function .* 3"):
        Evict(lodestar.MaxAge(1), on_evict=3)
    plain = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    plain.compile("sgd", "mse")
    with pytest.raises(ValueError, match="the model has no table"):
        fit(plain, Evict(lodestar.MaxAge(1), 1))
