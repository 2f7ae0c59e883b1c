"""The side of TensorFlow Recommenders Addons in results.py.

One dynamic table has the rows of all columns, its fastest form, so the ids of a
column with strings, or whose ids other columns have as well, are hashed with
the name of the column.
"""

import functools
import gc
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import tensorflow as tf
import tensorflow_recommenders_addons as tfra
import tf_keras
from tensorflow_recommenders_addons import dynamic_embedding as de
from tf_keras.optimizers.legacy import Adagrad

from benchmarks.peers import training

_MEASURED = 2**20  # rows, to measure the memory of a row


def _table(name: str, dim: int) -> de.Variable:
    scale = training.ROW_SCALE
    return de.get_variable(
        name,
        key_dtype=tf.int64,
        value_dtype=tf.float32,
        dim=dim,
        devices=["/CPU:0"],
        initializer=tf_keras.initializers.RandomUniform(-scale, scale, seed=1),
    )


def _resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _bytes_per_row(dim: int) -> float:
    """Fills a table for rows and one for accumulators."""
    before = _resident_bytes()
    tables = [_table(f"measured_{i}", dim) for i in range(2)]
    part = 2**16
    for begin in range(0, _MEASURED, part):
        keys = np.random.default_rng(begin).integers(-(2**63), 2**63, part)
        for table in tables:
            table.upsert(tf.constant(keys), tf.zeros([part, dim]))
    return (_resident_bytes() - before) / _MEASURED


class _Ids:
    """Turns columns into one tensor of ids `[B, columns]`."""

    def __init__(self, task: training.Task):
        schema = pq.read_schema(task.train)
        self.types = {
            name: tf.string if schema.field(name).type == "string" else tf.int64
            for name in task.ids
        }
        self._are_unique = bool(task.buckets)  # hashes

    def __call__(self, features):
        return tf.stack(
            [self._of(name, features[name]) for name in self.types], 1
        )

    def _of(self, name, ids):
        if self._are_unique:
            return ids
        if self.types[name] != tf.string:
            ids = tf.strings.as_string(ids)
        return tf.strings.to_hash_bucket_fast(
            tf.strings.join([name + "=", ids]), 2**63 - 1
        )


class _Served(tf.Module):
    """What is exported: a lookup that adds no rows, and the dense layers."""

    def __init__(self, table, dense, ids, task):
        super().__init__()
        self.table, self.dense = table, dense
        self._ids, self._width = ids, len(task.ids) * task.dim
        signature = {
            name: tf.TensorSpec([None], kind)
            for name, kind in ids.types.items()
        }
        if task.numbers:
            signature["numbers"] = tf.TensorSpec([None, len(task.numbers)])
        self.score = tf.function(self._score, input_signature=[signature])

    def _score(self, features):
        ids = tf.reshape(self._ids(features), [-1])
        rows, exist = self.table.lookup(ids, return_exists=True)
        # Other ids would read new random values in each call.
        rows = tf.where(exist[:, None], rows, tf.zeros_like(rows))
        x = tf.reshape(rows, [-1, self._width])
        return tf.sigmoid(self.dense(tf.concat([x, features["numbers"]], 1)))


def _dense_layers(task: training.Task) -> tf_keras.Sequential:
    dense = tf_keras.Sequential()
    for i, (kernel, bias) in enumerate(task.first_weights()):
        activation = None if i == len(task.units) else "relu"
        layer = tf_keras.layers.Dense(len(bias), activation=activation)
        layer.build(kernel.shape[:1])
        layer.set_weights([kernel, bias])
        dense.add(layer)
    return dense


def _train(
    task: training.Task, clock: training.Clock, folder: Path, library: str
) -> training.Trained:
    tf_keras.utils.set_random_seed(1)
    clock.open()
    ids, dense = _Ids(task), _dense_layers(task)
    table = _table("rows", task.dim)
    shadow = de.shadow_ops.ShadowVariable(table, name="shadow")
    adagrad = functools.partial(
        Adagrad,
        task.learning_rate,
        training.INITIAL_ACCUMULATOR,
        epsilon=training.EPSILON,
    )
    optimizer = de.DynamicEmbeddingOptimizer(adagrad())
    loss = tf_keras.losses.BinaryCrossentropy(from_logits=True)
    width = len(task.ids) * task.dim
    served = _Served(table, dense, ids, task)
    features = dict(served.score.input_signature[0])
    label = tf.TensorSpec((None, 1), tf.float32)

    @tf.function(input_signature=[features, label])
    def step(features, labels):
        with tf.GradientTape() as tape:
            flat = tf.reshape(ids(features), [-1])
            rows = de.shadow_ops.embedding_lookup_unique(shadow, flat, task.dim)
            x = tf.reshape(rows, [-1, width])
            logits = dense(tf.concat([x, features["numbers"]], 1))
            error = loss(labels, logits)
        trained = [shadow, *dense.trainable_variables]
        gradients = tape.gradient(error, trained)
        optimizer.apply_gradients(zip(gradients, trained))

    def data(path):
        return tf.data.Dataset.from_generator(
            lambda: task.arrays(path), output_signature=(features, label)
        ).prefetch(1)

    for _ in range(task.epochs):
        for batch, labels in data(task.train):
            step(batch, labels)
            clock.step()
    clock.trained()
    found = [served.score(batch).numpy() for batch, _ in data(task.test)]
    tf.saved_model.save(served, str(folder), signatures=served.score)
    loaded = tf.saved_model.load(str(folder))

    def request(row):
        numbers = [[row[name] for name in task.numbers]]
        fed = {
            name: tf.constant([row[name]], kind)
            for name, kind in ids.types.items()
        }
        fed["numbers"] = tf.constant(numbers, tf.float32)
        return float(loaded.score(fed)[0, 0])

    return training.Trained(
        version=f"TFRA {tfra.__version__} (TensorFlow {tf.__version__})",
        scores=np.concatenate(found)[:, 0],
        table_rows=int(table.size()),
        bytes_per_row=_bytes_per_row(task.dim),
        export=folder,
        request=request,
    )


if __name__ == "__main__":
    training.main(_train)
