"""Tests of Keras's tools that handle `model.weights` alone.

They are refused; related tools must still work.
"""

import keras
import numpy as np
import pytest

import lodestar

X = np.arange(24).reshape(8, 3)
Y = np.sin(np.arange(8.0)).reshape(8, 1)
REFUSED = "lodestar.callbacks.EarlyStopping"


def functional(**options):
    ids = keras.Input((3,), dtype="int64")
    layer = lodestar.layers.DynamicEmbedding(2, combiner="sum", name="rows")
    out = keras.layers.Dense(1, name="dense")(layer(ids))
    model = keras.Model(ids, out)
    inner = keras.optimizers.Adam(0.1, **options)
    model.compile(lodestar.optimizers.wrap(inner), "mse")
    return model


def collection():
    ids = keras.Input((3,), dtype="int64")
    feature = lodestar.Feature(
        lodestar.EmbeddingVariable(2, name="rows"), combiner="mean"
    )
    layer = lodestar.layers.EmbeddingCollection({"f": feature}, name="rows")
    out = keras.layers.Dense(1, name="dense")(layer({"f": ids})["f"])
    return keras.Model(ids, out)


@pytest.mark.parametrize("make", [functional, collection])
@pytest.mark.parametrize("of", ["model", "layer"])
def test_get_weights(make, of):
    model = make()
    model(X, training=True)
    thing = model if of == "model" else model.get_layer("rows")
    with pytest.raises(RuntimeError, match=REFUSED):
        thing.get_weights()


def test_set_weights():
    model = functional()
    arrays = [np.zeros(w.shape, np.float32) for w in model.weights]
    with pytest.raises(RuntimeError, match="save_weights"):
        model.set_weights(arrays)


@pytest.mark.parametrize("make", [functional, collection])
def test_set_weights_of_a_layer(make):
    layer = make().get_layer("rows")
    for arrays in ([], [np.zeros((5, 2))], [np.zeros((0, 2))]):
        with pytest.raises(RuntimeError, match="insert_or_assign.ids, r"):
            layer.set_weights(arrays)


def test_clone_gets_no_weights():
    model = functional()
    clone = keras.models.clone_model(model)
    with pytest.raises(RuntimeError, match=REFUSED):
        clone.set_weights(model.get_weights())


def test_state_tree():
    with pytest.raises(RuntimeError, match=REFUSED):
        functional().get_state_tree(value_format="numpy_array")


def test_legacy_h5_file(tmp_path):
    with pytest.raises(RuntimeError, match="legacy .h5 files"):
        functional().save(tmp_path / "m.h5")


def test_table_held_by_a_model_itself():
    class Direct(keras.Model):
        def __init__(self):
            super().__init__()
            self.table = lodestar.EmbeddingVariable(2, name="t")

        def call(self, ids):
            return self.table.lookup(ids, combiner="sum", training=True)

    model = Direct()
    model(X)
    with pytest.raises(RuntimeError, match="represents the rows"):
        model.get_weights()
    with pytest.raises(RuntimeError, match="represents the rows"):
        model.set_weights([np.zeros((24, 2), np.float32)])
    with pytest.raises(ValueError, match="is not compatible"):
        model.set_weights([np.zeros((0, 2), np.float32)])


def test_legacy_h5_file_of_a_layer_with_a_table(tmp_path):
    class Direct(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.table = lodestar.EmbeddingVariable(2, name="t")

        def call(self, ids):
            return self.table.lookup(ids, combiner="sum")

    ids = keras.Input((3,), dtype="int64")
    model = keras.Model(ids, Direct()(ids))
    with pytest.raises(RuntimeError, match="legacy .h5 files"):
        model.save(tmp_path / "m.h5")


# Tools that must still work.


def test_dense_layers():
    model = functional()
    kernel, bias = model.get_layer("dense").get_weights()
    model.get_layer("dense").set_weights([kernel + 1.0, bias])
    np.testing.assert_array_equal(
        model.get_layer("dense").kernel.numpy(), kernel + 1.0
    )


def test_early_stopping_of_keras_without_weights():
    model = functional()
    stop = keras.callbacks.EarlyStopping("loss", patience=3)
    model.fit(X, Y, epochs=2, verbose=0, callbacks=[stop])


def test_backup_and_restore_continues_after_an_interruption(tmp_path):
    class Interrupt(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    def train(model, *callbacks):
        backup = keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))
        model.fit(
            X,
            Y,
            batch_size=4,
            epochs=4,
            shuffle=False,
            verbose=0,
            callbacks=[backup, *callbacks],
        )
        return model

    straight = functional()
    straight.get_layer("dense").set_weights([np.ones((2, 1)), np.zeros(1)])
    other = keras.models.clone_model(straight)
    again = functional()
    for model in (other, again):
        model.compile(
            lodestar.optimizers.Adam(0.1),
            "mse",
        )
    other.get_layer("dense").set_weights([np.ones((2, 1)), np.zeros(1)])
    straight.fit(X, Y, batch_size=4, epochs=4, shuffle=False, verbose=0)
    with pytest.raises(KeyboardInterrupt):
        train(other, Interrupt())
    train(again)
    np.testing.assert_array_equal(
        straight.predict(X, verbose=0), again.predict(X, verbose=0)
    )
    assert int(again.optimizer.iterations) == 8


def test_average_weights_callback_is_refused():
    """The wrapper refuses averages of tables before it swaps anything."""
    model = functional(use_ema=True)
    with pytest.raises(NotImplementedError, match="use_ema"):
        model.fit(X, Y, verbose=0)
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    with pytest.raises(RuntimeError, match="no moving average"):
        model.fit(X, Y, verbose=0, callbacks=[swap])
