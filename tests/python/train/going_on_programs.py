"""Programs of fit_test.py on data and snapshots, in the process of fit_programs."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from fit_programs import CLUSTER, DATA, Calls, click_model, clicks, model

import lodestar
from lodestar.train import evaluate, fit, predict


class Died(Exception):
    """Ends a training."""


class Die(keras.callbacks.Callback):
    """Raises after the last batch of the first epoch."""

    def on_epoch_end(self, epoch, logs=None):
        raise Died


class Stop(keras.callbacks.Callback):
    """Stops before the first batch of an epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self.model.stop_training = epoch == 1


def an_element_of_unknown_rank_is_named():
    """The element's rank does not suffice to build the model."""

    def unknown(x, y):
        return tf.numpy_function(lambda a: a, [x], tf.float32), y

    data = DATA.map(unknown)
    with pytest.raises(
        ValueError, match=r"element\[0\] .* must have a known rank"
    ):
        fit(model(), data, verbose=0)
    data = data.map(lambda x, y: (tf.ensure_shape(x, [None, 4]), y))
    assert fit(model(), data, verbose=0).history["samples"] == [96]


def an_epoch_has_no_batch_left(folder):
    """tf.data does not know the number of batches; the stop precedes them."""
    data = clicks().take(4).filter(lambda *_: True)
    reader = lodestar.snapshot.ResumableDataset(data)
    snapshots = lodestar.callbacks.Snapshot(folder, 4, iterator=reader)
    ours = click_model()

    def train(*callbacks, epochs=2):
        return fit(
            ours,
            reader,
            epochs=epochs,
            snapshots=snapshots,
            callbacks=list(callbacks),
            steps_per_round=2,
            verbose=0,
        ).history

    def place():
        return lodestar.snapshot.versions(folder)[-1].metadata

    with pytest.raises(Died):
        train(Die())
    history = train(epochs=1)  # waits for the snapshot, and restores it
    assert history["samples"] == [64]
    assert ours.optimizer.iterations.numpy() == 4
    assert place() == {"epoch": 0, "batch": 3, "epoch_ended": True}
    # A round is trained to its end, like a batch in Keras.
    assert train(Stop())["samples"] == [32]
    assert place() == {"epoch": 1, "batch": 1, "epoch_ended": False}
    assert train()["samples"] == [64]
    assert ours.optimizer.iterations.numpy() == 8


def in_the_folder(folder):
    """Returns shuffled clicks, and a callback that saves their position."""
    reader = lodestar.snapshot.ResumableDataset(clicks().shuffle(24, seed=5))
    return reader, lodestar.callbacks.Snapshot(folder, 8, iterator=reader)


def a_lost_parameter_server_is_named(folder):
    """Must run last, because its variables are lost."""

    class Kill(keras.callbacks.Callback):
        """Kills a server when the newest snapshot is within an epoch."""

        def on_train_batch_begin(self, batch, logs=None):
            newest = lodestar.snapshot.versions(folder)[-1:]
            if newest and not newest[0].metadata["epoch_ended"]:
                CLUSTER.kill("ps", 1)

    ours = click_model()
    names = "^The parameter server ps 1 is gone, and its part of the model"
    with pytest.raises(tf.errors.UnavailableError, match=names):
        reader, snapshots = in_the_folder(folder)
        fit(
            *(ours, reader),
            epochs=99,
            callbacks=[Kill()],
            snapshots=snapshots,
            steps_per_round=8,
            verbose=0,
        )
    for train in (fit, evaluate, predict):
        options = {} if train is predict else {"verbose": 0}
        with pytest.raises(tf.errors.UnavailableError, match=names):
            train(ours, clicks(), **options)
    CLUSTER.start("ps", 1)  # another one, in its place
    with pytest.raises(tf.errors.UnavailableError, match=names):
        fit(ours, clicks(), verbose=0)


def training_goes_on_from_a_snapshot(folder):
    """In another process, on a cluster of another size, with the next batch."""
    ours = click_model()
    seen = Calls()
    reader, snapshots = in_the_folder(folder)
    place = snapshots.restore(ours).metadata
    assert not place["epoch_ended"] and place["batch"] in (7, 15, 23)
    first, done = place["epoch"], place["batch"] + 1
    table = ours.get_layer("items").table
    assert len(table.devices) == 3
    assert ours.optimizer.iterations.numpy() == 24 * first + done
    history = fit(
        *(ours, reader),
        snapshots=snapshots,
        epochs=first + 3,
        callbacks=[seen],
        steps_per_round=8,
        validation_data=clicks(),
        verbose=0,
    )
    begun = [number for name, number in seen.calls if "batch_begin" in name]
    assert begun[:2] == [done % 24, (done + 8) % 24]
    history = history.history
    # Each sample of each epoch once, including those before the snapshot.
    assert history["samples"][-3:] == history["val_samples"][-3:] == [384] * 3
    np.testing.assert_array_equal(history["clicks"], history["val_clicks"])
    assert history["AUC"][-1] > 0.9
    assert ours.optimizer.iterations.numpy() == 24 * (first + 3)
    alone = click_model(contextlib.nullcontext())
    lodestar.snapshot.restore(alone, folder)
    here = alone.get_layer("items").table.export()
    np.testing.assert_array_equal(table.export().ids, here.ids)
    np.testing.assert_array_equal(table.export().rows, here.rows)
