"""Trains tables, compares their content, and interrupts disk operations."""

import os
import shutil

import keras
import numpy as np
import tensorflow as tf

import lodestar
from lodestar import snapshot
from lodestar.ops import snapshot_ops


def table(name="t", dim=4, **options):
    return lodestar.EmbeddingVariable(dim, name=name, **options)


def optimizer(name="adagrad"):
    return lodestar.optimizers.wrap(
        keras.optimizers.get(
            {"class_name": name, "config": {"learning_rate": 0.1}}
        )
    )


def train(tables, ids, by, rows=None):
    """Trains one step: each table's rows of `ids` towards their own values."""
    tables = tables if isinstance(tables, list) else [tables]
    with tf.GradientTape() as tape:
        loss = 0.0
        for t in tables:
            found = tf.cast(t.lookup(ids, training=True), tf.float32)
            loss += tf.reduce_sum(
                (found - tf.cast(ids, tf.float32)[:, None]) ** 2
            )
    hooks = [t for t in tables]
    by.apply(tape.gradient(loss, hooks), hooks)


def content(t):
    """Returns the complete content of a table, for bitwise comparison."""
    return {
        name: (
            tensor.shape.as_list(),
            repr(np.array(tensor.numpy()).tolist())
            if tensor.dtype == tf.string
            else tensor.numpy().tobytes(),
        )
        for name, tensor in t._export_all().items()
    }


def dense(path, version=None):
    """The arrays that `save` took as `dense`."""
    return snapshot.restore({}, path, version=version, on_extra="ignore").dense


def rows_of(t):
    exported = t.export()
    return dict(
        zip(exported.ids.numpy().tolist(), exported.rows.numpy().tolist())
    )


def ids_of(t):
    return t.export().ids.numpy().tolist()


def numbers(*values):
    return tf.constant(values, tf.int64)


def fill(t, ids, scale=1.0):
    """Assigns rows that identify their ids."""
    ids = np.asarray(ids, np.int64)
    values = scale * (ids[:, None] + np.arange(t.output_dim) / 8)
    t.insert_or_assign(ids, values.astype(t._row_dtype.as_numpy_dtype))


class _Died(BaseException):
    pass


def runs_to_its_end(monkeypatch, steps, call, *args):
    """Returns whether a call completes within a number of disk operations."""
    taken = 0

    def wrap(owner, name):
        original = getattr(owner, name)

        def step(*args, **options):
            nonlocal taken
            taken += 1
            if taken >= steps:
                raise _Died
            return original(*args, **options)

        monkeypatch.setattr(owner, name, step)

    for owner, name in (
        (snapshot_ops, "compact"),
        (snapshot_ops, "write"),
        (snapshot_ops, "write_blobs"),
        (snapshot_ops, "file_crc"),
        (shutil, "copyfile"),
        (shutil, "rmtree"),
        (os, "rename"),
        (os, "unlink"),
        (os, "fsync"),
        (os, "rmdir"),
        (os, "mkdir"),
    ):
        wrap(owner, name)
    try:
        call(*args)
    except _Died:
        return False
    return True
