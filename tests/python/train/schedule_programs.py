"""Programs of fit_test.py on schedule, in the process of fit_programs.py."""

import contextlib
import functools
import re
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from fit_programs import COORDINATOR, DATA, STRATEGY, model

import lodestar
from lodestar._library import gen_ops
from lodestar.optimizers.update_attempt import UpdateLogs
from lodestar.train import Scheduler, fit


def steps_are_scheduled_once():
    """Arguments and results; functions that were traced before are retraced."""
    with STRATEGY.scope():
        table = lodestar.EmbeddingVariable(
            2, embeddings_initializer="zeros", name="own"
        )
        weight = tf.Variable(0.0)
        sgd = lodestar.optimizers.SGD(-1.0)
        sgd.build([table, weight])
    logs = UpdateLogs.of(STRATEGY)
    scheduler = Scheduler(COORDINATOR)

    def add(ids, times):
        with tf.GradientTape() as tape:
            rows = table.lookup(ids, training=True)
            loss = (tf.reduce_sum(rows) + weight) * times
        gradients = tape.gradient(loss, [table, weight])
        sgd.apply(gradients, [table, weight])
        return {"sum": tf.fill(tf.shape(ids), 2.0)}

    @tf.function
    def step(ids, times=1.0):
        return STRATEGY.run(add, (ids, times))

    def rows():
        return table.find([1, 2])[0].numpy()[:, 0].tolist()

    ids = tf.constant([1, 2], tf.int64)
    COORDINATOR.schedule(step, (ids,))
    COORDINATOR.join()
    for args, kwargs, wanted in (
        ((ids,), None, [2.0, 2.0]),
        ((ids[:1],), {"times": 3.0}, [5.0, 2.0]),
    ):
        result = scheduler.schedule(step, args, kwargs)
        assert result.fetch()["sum"].tolist() == [2.0] * len(args[0])
        scheduler.join()
        assert rows() == wanted
        for log in logs._logs.values():
            found = log.call(gen_ops.lodestar_close_updates, logs._next)
            assert logs._next - 1 in found.numpy()[:, 0]
    assert weight.numpy() == 5.0
    # As if it had begun before, and its worker was lost.
    for log in logs._logs.values():
        attempt, _ = log.call(gen_ops.lodestar_begin_update, [logs._next, 0])
        log.call(gen_ops.lodestar_commit_update, attempt, attempt[1])
    result = scheduler.schedule(step, (ids,))
    assert result.fetch()["sum"].tolist() in ([], [0.0, 0.0])
    assert rows() == [5.0, 2.0] and weight.numpy() == 5.0

    @tf.function
    def twice(ids):
        STRATEGY.run(add, (ids, 1.0))
        STRATEGY.run(add, (ids, 1.0))

    with pytest.raises(ValueError, match="applies gradients of tables twice"):
        scheduler.schedule(twice, (ids,))
    with pytest.raises(TypeError, match="`step` must be a tf.function, got"):
        scheduler.schedule(rows)

    traced = tf.function(add)

    @tf.function
    def calls_traced(ids):
        return STRATEGY.run(traced, (ids, 0.0))

    COORDINATOR.schedule(calls_traced, (ids,))
    COORDINATOR.join()
    with pytest.raises(ValueError, match="add.*traced before. Call a plain"):
        scheduler.schedule(calls_traced, (ids,))

    @tf.function
    def nothing():
        weight.assign_add(1.0)

    scheduler.schedule(nothing)
    COORDINATOR.join()
    assert weight.numpy() == 6.0

    @tf.function(autograph=False)
    def by_its_shape(ids):
        for _ in range(ids.shape[0]):  # unknown, if all batches shared a trace
            weight.assign_add(1.0)
        with pytest.raises(TypeError, match="symbolic `tf.Tensor` as a Python"):
            if ids[0] > 0:
                pytest.fail("AutoGraph has converted this")

    for size in (1, 2):
        scheduler.schedule(by_its_shape, (ids[:size],))
        scheduler.join()
    assert weight.numpy() == 9.0

    @tf.function
    def looped(ids):
        for _ in tf.range(2):
            STRATEGY.run(add, (ids, 1.0))

    with pytest.raises(tf.errors.FailedPreconditionError, match="committed"):
        scheduler.schedule(looped, (ids,))
        scheduler.join()
    scheduler.schedule(step, (ids,))
    fit(model(), DATA, verbose=0)  # in between
    scheduler.schedule(step, (ids,))
    COORDINATOR.join()
    assert rows() == [8.0, 5.0]


def rejected_steps_change_nothing():
    """Dense weights wait for the tables of all servers; steps count once."""
    with STRATEGY.scope():
        ids = keras.Input((None,), dtype="int64")
        layer = lodestar.layers.DynamicEmbedding(4, combiner="sum")
        hidden = keras.layers.Dense(3)(layer(ids))
        made = keras.Model(ids, tf.keras.layers.Dense(1)(hidden))
        made.compile(lodestar.optimizers.Adam(0.1), "mse")

    def data(bad):
        labels = tf.where(tf.range(32) == 3, bad, 1.0)[:, None]
        batches = tf.reshape(tf.range(64, dtype=tf.int64), [32, 2])
        return lambda _: (
            tf.data.Dataset.from_tensor_slices((batches, labels))
            .batch(8)
            .repeat()
        )

    fit(made, data(1.0), steps_per_epoch=8, verbose=0)
    assert int(made.optimizer.iterations.numpy()) == 8
    before = [v.numpy() for v in made.weights if v is not layer.table]
    rows = layer.table.export().rows.numpy()
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not finite"):
        fit(made, data(float("nan")), steps_per_epoch=1, verbose=0)
    after = [v.numpy() for v in made.weights if v is not layer.table]
    assert all((a == b).all() for a, b in zip(before, after, strict=True))
    assert (layer.table.export().rows.numpy() == rows).all()
    assert int(made.optimizer.iterations.numpy()) == 8


class Root(keras.layers.Layer):
    """Adds the root of a weight of 0, whose gradient is infinite."""

    def build(self, shape):
        self.radicand = self.add_weight(shape=(), name="radicand")

    def call(self, x):
        return x + keras.ops.sqrt(self.radicand)


def a_dense_gradient_is_checked_first():
    for tables, options in (
        *((True, {}), (False, {})),
        (True, {"sync_every": 2}),
    ):
        with STRATEGY.scope():
            ids = keras.Input((2,), dtype="int64")
            layer = lodestar.layers.DynamicEmbedding(4, combiner="sum")
            x = layer(ids) if tables else keras.ops.cast(ids, "float32")
            root = Root(name="root")
            made = keras.Model(ids, root(keras.layers.Dense(1)(x)))
            made.compile(lodestar.optimizers.Adam(0.1), "mse")
            root.radicand.assign(1.0)
        batches = tf.data.Dataset.from_tensors(
            (tf.ones([4, 2], tf.int64), tf.zeros([4, 1]))
        ).repeat(4)
        fit(made, batches, verbose=0, **options)
        root.radicand.assign(0.0)
        before = [v.numpy() for v in made.weights if v is not layer.table]
        rows = layer.table.export().rows.numpy()
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="weight 'root/radicand'"
        ):
            fit(made, batches, verbose=0, **options)
        after = [v.numpy() for v in made.weights if v is not layer.table]
        assert all((a == b).all() for a, b in zip(before, after, strict=True))
        assert (layer.table.export().rows.numpy() == rows).all()


def servers_equal_one_process():
    """Trains a table, sparse and dense gradients with several optimizers."""
    batches = tf.reshape(tf.range(64, dtype=tf.int64) % 11, [32, 2])
    labels = tf.cast(tf.reduce_sum(batches, 1, keepdims=True), tf.float32)
    data = tf.data.Dataset.from_tensor_slices((batches, labels)).batch(8)
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)

    def train(scope, fit, optimizer):
        with scope:
            ids = keras.Input((2,), dtype="int64")
            layer = lodestar.layers.DynamicEmbedding(
                4, embeddings_initializer="ones", combiner="sum"
            )
            starts = keras.initializers.GlorotUniform(seed=3)
            sparse = keras.layers.Embedding(11, 4, starts)(ids)
            x = layer(ids) + keras.ops.sum(sparse, 1)
            x = keras.layers.Dense(3, kernel_initializer=starts)(x)
            x = keras.layers.Dense(1, kernel_initializer=starts)(x)
            made = keras.Model(ids, x)
            made.compile(optimizer(), "mse")
        fit(made, data, epochs=2, verbose=0)
        assert int(made.optimizer.iterations.numpy()) == 8
        dense = [v.numpy() for v in made.weights if v is not layer.table]
        return [layer(batches).numpy(), *dense]

    for optimizer in (
        lambda: lodestar.optimizers.Adam(schedule, clipnorm=0.5),
        lambda: lodestar.optimizers.SGD(0.01, global_clipnorm=0.5),
        lambda: lodestar.optimizers.wrap(keras.optimizers.Nadam(0.1)),
    ):
        alone = train(contextlib.nullcontext(), keras.Model.fit, optimizer)
        ours = train(
            STRATEGY.scope(),
            functools.partial(fit, steps_per_round=1),
            optimizer,
        )
        for a, b in zip(ours, alone, strict=True):
            np.testing.assert_allclose(a, b, 1e-4, 1e-5)


def few_tensors_are_sent():
    """Counts the tensors that a step sends to and from each server."""
    graphs, loop = [], tf.while_loop

    def looped(*arguments):
        result = loop(*arguments)
        graphs.append(tf.compat.v1.get_default_graph().as_graph_def())
        return result

    # Wide rows of each lookup, and wide gradients of one table, are not packed.
    for dims, there, back in (([4], 3, 3), ([128] * 2, 4, 6)):
        with STRATEGY.scope():
            ids = keras.Input((None,), dtype="int64")
            layers = [
                lodestar.layers.DynamicEmbedding(dim, combiner="sum")
                for dim in dims
            ]
            outputs = keras.ops.concatenate([x(ids) for x in layers], -1)
            outputs = keras.layers.Dense(3)(outputs)
            made = keras.Model(ids, keras.layers.Dense(1)(outputs))
            made.compile(lodestar.optimizers.Adam(0.1), "mse")
        batch = tf.ones([8, 2], tf.int64), tf.ones([8, 1])
        with mock.patch.object(tf, "while_loop", looped):
            fit(
                made,
                lambda _, b=batch: tf.data.Dataset.from_tensors(b).repeat(),
                steps_per_epoch=2,
                verbose=0,
            )
        sent = sent_tensors(graphs.pop())
        for server in range(2):
            # The number of the update, ids of each lookup, and gradients.
            assert len(sent["", server]) == there, sent
            # Dense weights, lookups, and whether the update is staged.
            assert len(sent[server, ""]) == back, sent
        assert len(sent) == 4, sent


def sent_tensors(graph):
    """Returns the tensors between processes in the body of a loop."""
    (body,) = (
        f for f in graph.library.function if "while_body" in f.signature.name
    )

    def place(node):
        if node.op == "ReadVariableOp":  # placed where the variable is
            return "variable"
        server = re.search("job:ps.*task:([0-9]+)", node.device)
        return int(server[1]) if server else ""

    places = {node.name: place(node) for node in body.node_def}
    sent = {}
    for node in body.node_def:
        here = places[node.name]
        for tensor in node.input:
            source = places.get(tensor.partition(":")[0], here)
            on_server = source == "variable" and here != ""
            if source != here and not on_server and tensor[0] != "^":
                sent.setdefault((source, here), set()).add(tensor)
    return sent
