"""What each of several workers runs, at the same time; workers_test.py.

Each trains one model with the others, and another one alone on all of the
batch, and compares them.
"""

import dense_reference as reference
import keras
import numpy as np
import replicas_test as replicas
import tensorflow as tf

import lodestar

wrap = replicas.wrap
one_step = reference.batches(count=1)


def make(strategy, optimizer):
    with replicas.scope_of(strategy):
        layer = lodestar.layers.DynamicEmbedding(3, seed=3, name="t")
        model = reference.TwoTower(layer)
        model.dense.build((None, 6))
        optimizer = optimizer()
        optimizer.build(model.trainable_variables)
    return model, optimizer


def compare(one, several):
    replicas.assert_same_tables(one[0].embed.table, several[0].embed.table)
    for a, b in zip(one[0].dense.weights, several[0].dense.weights):
        np.testing.assert_allclose(a.numpy(), b.numpy(), 0, 1e-5)


def train_both(strategy, optimizer, data, graph=True):
    one, several = make(None, optimizer), make(strategy, optimizer)
    replicas.train(None, *one, data)
    replicas.train(strategy, *several, data, graph)
    compare(one, several)
    return one, several


def clipped(strategy):
    data = reference.batches(all_rows=True, count=2)
    inner = replicas.OPTIMIZERS["global_clipnorm"]
    _, (model, _) = train_both(strategy, lambda: wrap(inner()), data)
    # Each has its part of the ten rows.
    table = model.embed.table
    assert table.workers.count == 2 and 0 < int(table.size()) < 10
    assert len(table.export().ids) == 10


def eager(strategy):
    train_both(strategy, lambda: wrap("adam"), one_step, graph=False)


def loss_scaling(strategy):
    data = reference.batches(all_rows=True, count=3)
    data[1][1][-1] = np.inf
    _, (_, optimizer) = train_both(strategy, replicas.scaled, data)
    assert optimizer.iterations.numpy() == 2


def not_finite(strategy):
    data = reference.batches(count=1)
    data[0][1][-1] = np.nan
    model, optimizer = make(strategy, lambda: wrap("adam"))
    try:
        replicas.train(strategy, model, optimizer, data)
    except tf.errors.InvalidArgumentError as error:
        assert "table 't': the gradient is not finite" in error.message
    assert optimizer.iterations.numpy() == 0 == int(model.embed.table.step)


def collection(strategy):
    def clipped():
        return keras.optimizers.Adagrad(0.1, global_clipnorm=0.5)

    admission = lodestar.MinCount(3)
    one = replicas.train_collection(None, clipped, admission=admission)
    several = replicas.train_collection(strategy, clipped, admission=admission)
    for a, b in zip(one[:2], several[:2]):
        replicas.assert_same_tables(a, b)
    np.testing.assert_allclose(one[2], several[2], 0, 1e-5)


def checkpoint(strategy, folder):
    several = make(strategy, lambda: wrap("adam"))
    replicas.train(strategy, *several, one_step)
    # All workers save, each to a place of its own.
    saved = tf.train.Checkpoint(model=several[0], optimizer=several[1]).save(
        f"{folder}/{several[0].embed.table.workers.index}"
    )
    restored = [make(None, lambda: wrap("adam"))]
    restored.append(make(strategy, lambda: wrap("adam")))
    for (model, optimizer), where in zip(restored, (None, strategy)):
        tf.train.Checkpoint(model=model, optimizer=optimizer).restore(
            saved
        ).assert_existing_objects_matched()
        replicas.train(where, model, optimizer, one_step)
    compare(*restored)
    assert restored[1][0].embed.table.size() == several[0].embed.table.size()


def refused(strategy):
    model, _ = make(strategy, lambda: wrap("adam"))
    table = model.embed.table
    for call, words in (
        (lambda: table.lookup([1]), "look them up together: call the step by"),
        (lambda: table.find([1]), "are spread over 2 workers"),
        (
            lambda: lodestar.snapshot.save("never", table),
            "Save it by tf.train.Checkpoint",
        ),
        (
            lambda: tf.function(table.export_all, autograph=False)(),
            "Restore a checkpoint in a process without a strategy",
        ),
        (
            lambda: replicas.make(strategy, lambda: wrap("adam")),
            "look them up together",
        ),
    ):
        try:
            call()
        except (RuntimeError, NotImplementedError) as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)
    for options in (
        {"missing": lodestar.SharedRows(2)},
        {"admission": lodestar.MinCount(2, unit="occurrence")},
        {"devices": ["/CPU:0"]},
    ):
        try:
            with strategy.scope():
                lodestar.EmbeddingVariable(2, name="t", **options)
        except NotImplementedError as error:
            assert "MultiWorkerMirroredStrategy" in str(error)
        else:
            raise AssertionError(options)


def import_and_assign(strategy):
    with strategy.scope():
        table = lodestar.EmbeddingVariable(2, name="t")
        capped = lodestar.EmbeddingVariable(2, eviction=lodestar.MaxRows(10))
    ids = tf.range(20, dtype=tf.int64)
    table.insert_or_assign(ids, tf.ones([20, 2]))
    assert 0 < int(table.size()) < 20
    whole = table.export()
    np.testing.assert_array_equal(whole.ids, ids)
    table.clear()
    table.import_(whole)
    np.testing.assert_array_equal(table.export().ids, ids)
    capped.insert_or_assign(ids, tf.ones([20, 2]))
    assert int(capped.size()) <= 5
