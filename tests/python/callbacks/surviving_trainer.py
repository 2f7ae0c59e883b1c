"""Trains with every callback that has state, and can kill itself at any point."""

import contextlib
import os
import signal

import lodestar

# isort: split
import keras
import numpy as np
import tensorflow as tf

from lodestar.data import Column, Schema
from lodestar.embedding.table_variable import as_table
from lodestar.paddle.multislot_dataset import MultiSlotDataset

SLOTS = Schema(
    [Column.label("click"), Column.dense("x", [1]), Column.sparse("ids")]
)
EPOCHS = 5
# By epoch. Epoch 1 is the best, and training stops after epoch 3.
SCORES = [0.5, 0.8, 0.7, 0.6, 0.9]


def write_files(folder):
    """Writes two files with 41 samples in all: six batches per epoch."""
    rng = np.random.default_rng(0)
    paths = []
    for name, samples in (("a", 20), ("b", 21)):
        paths.append(os.path.join(folder, name))
        with open(paths[-1], "w") as file:
            for _ in range(samples):
                ids = rng.integers(1, 60, rng.integers(1, 4))
                words = [1, int(ids[0]) % 2, 1, f"{rng.normal():.3f}"]
                print(*words, len(ids), *ids, file=file)
    return paths


def batches(files, padded, **options):
    """Reads batches of eight: ragged, or padded so that replicas get equal parts."""
    data = MultiSlotDataset(
        files, SLOTS, batch_size=8, drop_remainder=padded, **options
    )

    def pad(features, label):
        ids = features["ids"].to_tensor(0, shape=[8, 3])
        return {**features, "ids": ids}, label

    return data.map(pad) if padded else data


def reader(files, kind, padded=False):
    """Reads files and samples in a new order each epoch; the size is unknown."""
    return lodestar.snapshot.ResumableDataset(
        batches(
            files,
            padded,
            shuffle_files=True,
            shuffle=16,
            seed=5,
            repeat=1 if kind == "passes" else None,
        )
    )


def model(padded=False):
    """Returns a model with a table, dense weights, a random seed and metrics."""
    keras.utils.set_random_seed(3)
    ids = keras.Input((None,), dtype="int64", ragged=not padded, name="ids")
    x = keras.Input((1,), name="x")
    rows = lodestar.layers.DynamicEmbedding(
        4, combiner="sum", padding_id=0 if padded else None, name="user"
    )(ids)
    hidden = keras.layers.Dropout(0.2, seed=1)(
        keras.layers.Dense(3)(keras.layers.Concatenate()([rows, x]))
    )
    score = keras.layers.Dense(1, activation="sigmoid")(hidden)
    m = keras.Model({"ids": ids, "x": x}, score)
    m.compile(
        lodestar.optimizers.Adam(0.05),
        "binary_crossentropy",
        metrics=[keras.metrics.AUC(num_thresholds=20, name="auc")],
    )
    return m


def dense_model():
    """Returns a model without tables."""
    m = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    m.compile("sgd", "mse")
    return m


def state(m):
    """Returns the state of training as values that JSON and `==` support."""
    metrics = {id(v) for v in m.metrics_variables}
    variables = [
        v.numpy().tobytes().hex()
        for v in [*m.variables, *m.optimizer.variables]
        if as_table(v) is None and id(v) not in metrics
    ]
    table = m.get_layer("user").table._export_all()
    del table["counters"]  # of lookups, lost steps included
    return variables + [
        repr(np.array(t.numpy()).tolist())
        if t.dtype == tf.string
        else t.numpy().tobytes().hex()
        for t in table.values()
    ]


class Board(keras.callbacks.TensorBoard):
    """Records scalars; without its package TensorBoard writes none."""

    def __init__(self, folder):
        super().__init__(folder, update_freq=1, write_graph=False)
        self.scalars = {}

    @property
    def summary(self):
        return self

    def scalar(self, name, value, step):
        step = int(keras.ops.convert_to_numpy(step))
        self.scalars[f"{name} {step}"] = float(value)

    create_file_writer = staticmethod(tf.summary.create_file_writer)
    record_if = staticmethod(tf.summary.record_if)


class Script(keras.callbacks.Callback):
    """Sets the score, records logs, and ends the process at a given point.

    Args:
        snapshots: The Snapshot callback.
        at: `(event, number)`. The event is "step" for the start of that step, or
            "test", "epoch" or "train" for the start of validation, the end of
            the epoch or the end of training, after that epoch.
        end: Called with the model to end the process.
        punctual: Whether each step waits for the previous snapshot. A snapshot
            that is written after the last batch of an epoch would change the
            order of the next epoch.
    """

    def __init__(self, snapshots, at=None, end=None, punctual=False):
        super().__init__()
        self.logs = {}
        self._snapshots, self._at, self._end = snapshots, at, end
        self._punctual = punctual
        self._epoch = None

    def _wait(self):
        if self._snapshots._writing is not None:
            self._snapshots._writing.wait()

    def _reach(self, *at):
        if at == self._at:
            self._wait()
            self._end(self.model)

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if self._punctual:
            self._wait()
        self._reach("step", int(self.model.optimizer.iterations.numpy()))

    def on_test_begin(self, logs=None):
        self._reach("test", self._epoch)

    def on_epoch_end(self, epoch, logs=None):
        self._reach("epoch", epoch)
        self.logs[str(epoch)] = {k: float(v) for k, v in logs.items()}
        logs["score"] = SCORES[epoch]

    def on_train_end(self, logs=None):
        self._reach("train", self._epoch)


def kill(model):
    """Kills the process like the kernel does, without cleanup."""
    os.kill(os.getpid(), signal.SIGKILL)


def train(
    folder,
    files,
    kind,
    order="BTE",
    at=None,
    end=kill,
    every=4,
    strategy=None,
    **options,
):
    """Trains or resumes; returns the final state."""
    padded = strategy is not None
    with strategy.scope() if strategy else contextlib.nullcontext():
        m = model(padded)
    data = reader(files, kind, padded)
    snapshots = lodestar.callbacks.Snapshot(
        os.path.join(folder, "snapshots"), every, iterator=data, **options
    )
    script = Script(snapshots, at, end, punctual=kind == "passes")
    callbacks = {
        "B": keras.callbacks.BackupAndRestore(
            os.path.join(folder, "backup"), save_freq=3
        ),
        "T": Board(os.path.join(folder, "logs")),
        "E": lodestar.callbacks.EarlyStopping(
            "score", mode="max", patience=2, restore_best_weights=True
        ),
    }
    lodestar.train.fit(
        m,
        data,
        epochs=EPOCHS,
        snapshots=snapshots,
        steps_per_epoch=5 if kind == "steps" else None,
        callbacks=[script, *(callbacks[name] for name in order)],
        validation_data=batches(files, padded).take(2),
        verbose=0,
    )
    early = callbacks["E"]
    return {
        "state": state(m),
        "logs": script.logs,
        "scalars": callbacks["T"].scalars,
        "early": [
            early.wait,
            early.best,
            early.best_epoch,
            early.stopped_epoch,
        ],
    }
