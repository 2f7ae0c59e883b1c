"""What fit_test.py runs of data and snapshots, in the process of fit_programs.py."""

import keras
import pytest
import tensorflow as tf
from fit_programs import DATA, click_model, clicks, model

import lodestar
from lodestar.train import fit


class Died(Exception):
    """What ends a training."""


class Die(keras.callbacks.Callback):
    """Behind the last batch of the first epoch."""

    def on_epoch_end(self, epoch, logs=None):
        raise Died


class Stop(keras.callbacks.Callback):
    """Before the first batch of an epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self.model.stop_training = epoch == 1


def an_element_of_unknown_rank_is_named():
    """Where the model cannot be built by it."""

    def unknown(x, y):
        return tf.numpy_function(lambda a: a, [x], tf.float32), y

    data = DATA.map(unknown)
    with pytest.raises(
        ValueError, match=r"element\[0\] .* an unknown rank, with"
    ):
        fit(model(), data, verbose=0)
    data = data.map(lambda x, y: (tf.ensure_shape(x, [None, 4]), y))
    assert fit(model(), data, verbose=0).history["samples"] == [96]


def an_epoch_has_no_batch_left(folder):
    """tf.data does not know how many there are; a stop comes before them."""
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
    # A round is trained on, as Keras does a batch.
    assert train(Stop())["samples"] == [32]
    assert place() == {"epoch": 1, "batch": 1, "epoch_ended": False}
    assert train()["samples"] == [64]
    assert ours.optimizer.iterations.numpy() == 8
