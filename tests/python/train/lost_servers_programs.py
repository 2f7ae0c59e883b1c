"""Programs of lost_servers_test.py, connected to a cluster."""

import faulthandler
import os
import signal

import keras
import pytest
import tensorflow as tf

import lodestar
from lodestar import _servers
from lodestar.train import fit, predict

# Only a failing test takes this long.
faulthandler.dump_traceback_later(240, exit=True)
# A stopped server is noticed sooner.
_servers._DEADLINE, _servers._MISSES = 1.5, 3

CLUSTER = lodestar.testing.LocalCluster(ps=2, workers=2)
STRATEGY = tf.distribute.ParameterServerStrategy(CLUSTER.resolver)
DATA = tf.data.Dataset.from_tensors(
    (tf.range(64, dtype=tf.int64), tf.zeros([64, 1]))
).repeat(40)
NAMED = "^The parameter server ps 1 is gone, and its part of the model with it"


def model():
    """Returns a model with a table on both servers, and dense weights."""
    with STRATEGY.scope():
        ids = keras.Input((), dtype="int64")
        rows = lodestar.layers.DynamicEmbedding(2, name="items")(ids)
        made = keras.Model(ids, keras.layers.Dense(1)(rows))
        made.compile(lodestar.optimizers.Adagrad(), "mse")
    return made


def all_workers_restart_and_a_server_is_lost():
    """TensorFlow would wait forever for the server."""

    class Restart(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 20:
                for worker in range(2):
                    CLUSTER.kill("worker", worker)
                CLUSTER.kill("ps", 1)
                for worker in range(2):
                    CLUSTER.start("worker", worker)

    with pytest.raises(
        tf.errors.UnavailableError, match=f"{NAMED}: nothing listens on 127"
    ):
        fit(
            *(model(), DATA),
            steps_per_round=20,
            callbacks=[Restart()],
            verbose=0,
        )


def a_server_has_stopped():
    """The server keeps its connections, but does not answer an assignment."""

    class Stop(keras.callbacks.Callback):
        def on_test_begin(self, logs=None):
            os.kill(CLUSTER.processes["ps", 1], signal.SIGSTOP)

    with pytest.raises(
        tf.errors.UnavailableError, match=f"{NAMED}: .* has stopped answering"
    ):
        fit(
            *(model(), DATA),
            callbacks=[Stop()],
            validation_data=DATA,
            verbose=0,
        )


def a_server_comes_back_empty():
    """Another process takes the address in the middle of a round."""

    class Restart(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 20:
                CLUSTER.kill("ps", 1)
                CLUSTER.start("ps", 1)

    ours = model()
    lost = f"{NAMED}: its process was restarted"
    with pytest.raises(tf.errors.UnavailableError, match=lost):
        fit(
            *(ours, DATA),
            steps_per_round=20,
            callbacks=[Restart()],
            verbose=0,
        )
    with pytest.raises(tf.errors.UnavailableError, match=lost):
        predict(ours, DATA.map(lambda ids, labels: ids))


def a_server_is_lost_before_training():
    """The server is lost between the table's creation and the first fit."""
    ours = model()
    CLUSTER.kill("ps", 1)
    CLUSTER.start("ps", 1)
    with pytest.raises(
        tf.errors.UnavailableError,
        match=f"{NAMED}: its process was restarted",
    ):
        fit(ours, DATA, verbose=0)
