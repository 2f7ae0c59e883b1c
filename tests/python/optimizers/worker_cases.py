"""Programs that several workers run concurrently, for workers_test.py.

Each worker trains one model together with the others, and another one alone on
the whole batch, and compares them.
"""

import os
import random
import re
import shutil
import socket
import struct

import dense_reference as reference
import keras
import numpy as np
import pytest
import replicas_test as replicas
import tensorflow as tf

import lodestar

wrap = replicas.wrap
one_step = reference.batches(count=1)


def expect(kind, words, call):
    with pytest.raises(kind, match=re.escape(words)):
        call()


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
    workers = strategy.num_replicas_in_sync
    assert table._workers.count == workers and 0 < int(table.size()) < 10
    if table._workers.index == 0:  # alone: the others need not read
        assert np.positive(table).shape == (int(table.size()), 3)
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
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="the gradient is not finite.*NaN in labels",
    ):
        replicas.train(strategy, model, optimizer, data)
    assert optimizer.iterations.numpy() == 0 == int(model.embed.table.step)


def dense_not_finite(strategy):
    for inner in ("adam", replicas.OPTIMIZERS["global_clipnorm"]()):
        model, optimizer = make(strategy, lambda inner=inner: wrap(inner))
        replicas.refuse_a_dense_gradient(strategy, model, optimizer)


def collection(strategy):
    def clipped():
        return keras.optimizers.Adagrad(0.1, global_clipnorm=0.5)

    options = {"epochs": 1, "admission": lodestar.MinCount(2)}
    one = replicas.train_collection(None, clipped, **options)
    several = replicas.train_collection(strategy, clipped, **options)
    assert int(one[0].size()) > 0
    for a, b in zip(one[:2], several[:2]):
        replicas.assert_same_tables(a, b)
    np.testing.assert_allclose(one[2], several[2], 0, 1e-5)


def occurrences(strategy):
    """Ids get rows by their occurrences in the batches of all workers."""
    options = {"admission": lodestar.MinCount(3, unit="occurrence")}
    inner = keras.optimizers.Adagrad
    one = replicas.train_collection(None, inner, epochs=1, **options)
    several = replicas.train_collection(strategy, inner, epochs=1, **options)
    assert 0 < int(one[0].size()) < 24
    for a, b in zip(one[:2], several[:2]):
        replicas.assert_same_tables(a, b)


def train_tables(strategy, batches):
    """Trains tables of several dtypes on ids that are uneven over replicas."""
    dtypes = ("float16", "float32")
    with replicas.scope_of(strategy):
        tables = [
            lodestar.EmbeddingVariable(
                2 * place + 1, dtype=name, seed=5, name=name
            )
            for place, name in enumerate(dtypes)
        ]
        layer = lodestar.layers.EmbeddingCollection(
            {table.name: lodestar.Feature(table) for table in tables}
        )
        optimizer = wrap(keras.optimizers.Adagrad(0.1, clipnorm=0.01))
        optimizer.build(layer.trainable_variables)

    def replica(ids):
        with tf.GradientTape() as tape:
            rows = layer(dict.fromkeys(dtypes, ids), training=True)
            loss = tf.add_n(
                [tf.reduce_sum(tf.cast(x, tf.float32)) for x in rows.values()]
            )
        gradients = tape.gradient(loss, layer.trainable_variables)
        optimizer.apply_gradients(zip(gradients, layer.trainable_variables))

    step = replica
    if strategy is not None:
        step = tf.function(
            lambda ids: strategy.run(replica, args=(ids,)),
            reduce_retracing=True,
        )
    for ids in batches:
        step(replicas.parts(strategy, ids) if strategy else tf.constant(ids))
    return tables


def collection_of_dtypes(strategy):
    # Some replicas have no ids, and some parts get none.
    batches = [np.arange(size, dtype=np.int64) % 7 for size in (1, 30, 0, 9)]
    several = train_tables(strategy, batches)
    for a, b in zip(train_tables(None, batches), several):
        a, b = a.export(), b.export()
        np.testing.assert_array_equal(a.ids, b.ids)
        tolerance = 1e-5 if a.rows.dtype.size > 2 else 1e-2
        np.testing.assert_allclose(
            tf.cast(a.rows, tf.float64),
            tf.cast(b.rows, tf.float64),
            tolerance,
            tolerance,
        )


def sent_bytes():
    """Returns the bytes that this process has sent over its TCP connections."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            connection = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            info = connection.getsockopt(
                socket.IPPROTO_TCP, socket.TCP_INFO, 136
            )
            # tcpi_bytes_acked of linux/tcp.h.
            total += struct.unpack_from("<Q", info.ljust(136, b"\0"), 120)[0]
    return total


def bytes_per_step(strategy):
    """Checks that each worker sends its ids, rows and gradients once."""
    dim, unique, workers = 24, 3000, strategy.num_replicas_in_sync
    with strategy.scope():
        table = lodestar.EmbeddingVariable(dim, name="t")
        optimizer = wrap("adagrad")
        optimizer.build([table])

    def replica(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(table.lookup(ids, training=True))
        optimizer.apply([tape.gradient(loss, table)], [table])

    step = tf.function(
        lambda ids: strategy.run(replica, args=(ids,)), reduce_retracing=True
    )
    rng = np.random.default_rng(9)
    used = []
    for _ in range(4):
        ids = [rng.permutation(9 * unique)[:unique] for _ in range(workers)]
        ids = replicas.parts(strategy, np.repeat(np.concatenate(ids), 2))
        table._placement.exchange(b"")
        before = sent_bytes()
        step(ids)
        table._placement.exchange(b"")
        used.append(sent_bytes() - before)
    ratio = min(used) / (unique * (8 + 4 * dim) * 2)
    remote = (workers - 1) / workers  # the rest are this worker's own rows
    assert 0.9 * remote < ratio < 1.2 * remote, used


def checkpoint(strategy, folder):
    several = make(strategy, lambda: wrap("adam"))
    replicas.train(strategy, *several, one_step)
    # All workers save, each to its own path.
    saved = tf.train.Checkpoint(model=several[0], optimizer=several[1]).save(
        f"{folder}/{several[0].embed.table._workers.index}"
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
        (lambda: table.lookup([1]), "look them up together. Call the step by"),
        (lambda: table.find([1]), "restore a snapshot there without a strat"),
        (
            lambda: lodestar.train.predict(fit_model(strategy), fit_data()),
            "use model.predict there",
        ),
        (
            lambda: tf.function(table._export_all, autograph=False)(),
            "process without a strategy, and export the model there",
        ),
        (
            lambda: tf.train.Checkpoint(table=table).save(
                "never written",
                tf.train.CheckpointOptions(
                    experimental_enable_async_checkpoint=True
                ),
            ),
            "gather its rows between two steps",
        ),
        (
            lambda: replicas.make(strategy, lambda: wrap("adam")),
            "look them up together",
        ),
    ):
        expect((RuntimeError, NotImplementedError, ValueError), words, call)
    under = "nder MultiWorkerMirroredStrategy"
    for options, words in (
        (
            {"default_row": lodestar.SharedRows(2)},
            "Use default_row='initial'",
        ),
        ({"dtype": "bfloat16"}, "Use 'float16' or 'float32'"),
        ({"devices": ["/CPU:0"]}, f"{under}, whose workers hold the rows. "),
    ):
        with (
            strategy.scope(),
            pytest.raises(NotImplementedError, match=words),
        ):
            lodestar.EmbeddingVariable(2, name="t", **options)


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
    table.load_rows(whole)
    np.testing.assert_array_equal(table.export().ids, ids)
    capped.insert_or_assign(ids, tf.ones([20, 2]))
    assert int(capped.size()) <= 5
    # Ten rows, seven of which belong to one worker.
    full = lodestar.EmbeddingVariable(2, eviction=lodestar.MaxRows(10))
    full.insert_or_assign(whole.ids[9:19], tf.ones([10, 2]))
    capped.load_rows(full.export())
    assert len(capped.export().ids) == 8


def fit_model(strategy):
    with replicas.scope_of(strategy):
        ids = keras.Input((None,), dtype="int64", ragged=True)
        x = keras.Input((1,))
        rows = lodestar.layers.DynamicEmbedding(
            3, combiner="sum", name="e", seed=1
        )(ids)
        hidden = keras.layers.Concatenate()([rows, x])
        out = keras.layers.Dense(1, kernel_initializer="ones")(hidden)
        model = keras.Model([ids, x], out)
        inner = keras.optimizers.Adam(0.05, global_clipnorm=0.5)
        model.compile(
            wrap(inner),
            "mse",
            metrics=[keras.metrics.AUC(9, name="auc", from_logits=True)],
        )
    return model


def fit_data():
    return replicas.ragged_batches().map(
        lambda x, _, y: ((x["ids"], y), tf.cast(y > 0, tf.float32))
    )


def fit(strategy):
    """Trains on ragged ids, with validation and metrics."""
    data = fit_data()
    one, several = fit_model(None), fit_model(strategy)
    history = one.fit(data, epochs=2, validation_data=data.take(1), verbose=0)
    seen = []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(logs["loss"])
    )
    found = lodestar.train.fit(
        several,
        data,
        epochs=2,
        validation_data=data.take(1),
        callbacks=[note],
        verbose=0,
    )
    assert len(seen) == 4
    tables = [m.get_layer("e").table for m in (one, several)]
    replicas.assert_same_tables(*tables)
    for name, values in history.history.items():
        np.testing.assert_allclose(found.history[name], values, 0, 1e-5)
    evaluated = one.evaluate(data, verbose=0, return_dict=True)
    for name, value in lodestar.train.evaluate(
        several, data, verbose=0
    ).items():
        np.testing.assert_allclose(evaluated[name], value, 0, 1e-5)
    index = tables[1]._workers.index
    with pytest.raises(ValueError, match="a shuffle needs a seed"):
        lodestar.train.fit(several, data.skip(index), verbose=0)


def few_examples(strategy):
    """Every worker needs an example of each batch, also of the last one."""
    model = fit_model(strategy)
    data = fit_data().unbatch()
    for batches in (data.batch(1), data.take(5).batch(4)):
        for options in ({"data": batches}, {"validation_data": batches}):
            arguments = {"data": data.batch(4), **options}
            name = next(iter(options))
            with pytest.raises(
                ValueError,
                match="the mean loss of none is NaN, but a batch of "
                f"`{name}` has 1. Use batches of at least 2",
            ):
                lodestar.train.fit(model, verbose=0, **arguments)
    found = lodestar.train.fit(model, data.batch(2), verbose=0).history
    assert np.isfinite(found["loss"]).all()


def unequal(strategy):
    """Checks that differences between workers are errors on all of them."""
    index = int(strategy.cluster_resolver.task_id)
    model = fit_model(strategy)
    data = fit_data()

    def fit(data=data, **options):
        return lodestar.train.fit(model, data, verbose=0, **options)

    def unknown(batches):
        return data.take(batches).filter(lambda x, y: True)

    def fails(x, y):
        bad = tf.reduce_max(y) < 2.0 * index
        tf.debugging.Assert(~bad, ["a bad record"])
        return x, y

    step = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: setattr(model, "_initial_epoch", index + 1)
    )
    for words, call in (
        (
            "same `steps_per_epoch`, because they run each step together, got [1, 2]",
            lambda: fit(data.repeat(), steps_per_epoch=1 + index),
        ),
        ("`epochs`", lambda: fit(epochs=1 + index)),
        (
            "`validation_data`",
            lambda: fit(validation_data=data if index else None),
        ),
        (
            "the same `restored epoch`",
            lambda: fit(epochs=3, callbacks=[step]),
        ),
        ("`number of batches`", lambda: fit(data.take(1 + index))),
        (
            "worker 0 has no more, but worker 1 has",
            lambda: fit(unknown(1 + index)),
        ),
        (
            "`steps`",
            lambda: lodestar.train.evaluate(
                model, data, steps=1 + index, verbose=0
            ),
        ),
    ):
        expect(ValueError, words, call)
        model._initial_epoch = None
    expect(
        tf.errors.InvalidArgumentError if index else RuntimeError,
        "a bad record" if index else "Worker 1 could not read a batch",
        lambda: fit(data.map(fails)),
    )
    # They stay synchronized.
    assert fit().epoch == [0]


def stopped(strategy, folder):
    """If one worker requests a stop, both stop, with a snapshot."""
    index = int(strategy.cluster_resolver.task_id)

    def train(told, plain=False):
        model = fit_model(strategy)
        reader = lodestar.snapshot.ResumableDataset(fit_data().repeat())
        snapshots = lodestar.callbacks.Snapshot(folder, 99, iterator=reader)

        def tell(batch, logs):
            if index == told and batch == 1:
                model.stop_training = True

        tell = keras.callbacks.LambdaCallback(on_train_batch_end=tell)
        options = {"epochs": 2, "steps_per_epoch": 4, "verbose": 0}
        if plain:
            lodestar.train.fit(model, reader, callbacks=[tell], **options)
        else:
            lodestar.train.fit(
                *(model, reader),
                callbacks=[tell],
                snapshots=snapshots,
                **options,
            )
        return int(model.optimizer.iterations.numpy())

    assert train(1, plain=True) == 2
    assert train(0) == 2
    assert lodestar.snapshot.versions(folder)[-1].step == 2
    assert train(None) == 8


def snapshots(strategy, folder):
    """Each worker writes and reads its part of snapshots, also of a delta."""

    def make(strategy, **options):
        with replicas.scope_of(strategy):
            return lodestar.EmbeddingVariable(2, name="t", **options)

    def equal(a, b):
        replicas.assert_same_tables(a, b)

    several = make(strategy)
    several.insert_or_assign(range(20), np.ones([20, 2]))
    info = lodestar.snapshot.save(several, folder, dense={"x": [1.0]})
    assert info.rows == 20 and len(info.tables["t"].files) == 2
    several.insert_or_assign([3, 30], np.zeros([2, 2]))
    several.remove(range(10, 12))
    pending = lodestar.snapshot.save(several, folder, True, blocking=False)
    assert pending.done()
    info = pending.wait()
    assert (info.kind, info.rows, info.removed) == ("delta", 2, 2)
    for where in (None, strategy):
        restored = make(where)
        report = lodestar.snapshot.restore(restored, folder)
        assert report.restored == {"t": 19}
        equal(several, restored)
    info = lodestar.snapshot.save(restored, folder, delta=True)
    assert (info.kind, info.rows) == ("delta", 0)
    report = lodestar.snapshot.restore({}, folder, version=1, on_extra="ignore")
    np.testing.assert_array_equal(report.dense["x"], [1.0])

    # From one process, with a maximum that leaves each its part.
    one = make(None, eviction=lodestar.MaxRows(19))
    lodestar.snapshot.restore(one, folder)
    alone = f"{folder}/alone"
    if several._workers.index == 0:
        lodestar.snapshot.save(one, alone)
    several._placement.exchange(b"")  # waits for it
    capped = make(strategy, eviction=lodestar.MaxRows(19))
    lodestar.snapshot.restore(capped, alone)
    assert 10 < len(capped.export().ids) <= 19

    # A failure on one worker is an error on all, and leaves no version.
    dense = {"x": "y" if several._workers.index else 1.0}
    expect(
        *((ValueError, lodestar.snapshot.SnapshotError), "'x'"),
        lambda: lodestar.snapshot.save(several, folder, dense=dense),
    )
    assert len(lodestar.snapshot.versions(folder)) == 3


def unnamed(strategy, folder):
    """Checks tables whose seed each process would draw itself."""

    def make(strategy):
        with replicas.scope_of(strategy):
            layer = lodestar.layers.DynamicEmbedding(2)
            return layer.table, lodestar.EmbeddingVariable(3)

    random.seed(int(strategy.cluster_resolver.task_id))
    several = make(strategy)
    said = several[0]._placement.exchange(
        str((several[1]._seed, several[1]._salt)).encode()
    )
    assert said[0] == said[1]
    for table in several:
        table.insert_or_assign(range(9), np.ones([9, table.output_dim]))
    lodestar.snapshot.save(list(several), folder)
    alone = make(None)
    lodestar.snapshot.restore(list(alone), folder)
    for a, b in zip(several, alone):
        replicas.assert_same_tables(a, b)


class Died(Exception):
    """Ends a training."""


def goes_on(strategy, folder):
    """Resumes a `fit` that died within an epoch, on two workers and on one."""

    def train(where, name, dies=None):
        model = fit_model(where)
        reader = lodestar.snapshot.ResumableDataset(
            fit_data().repeat().shuffle(4, seed=3)
        )
        calls = lodestar.callbacks.Snapshot(
            f"{folder}/{name}", 2, iterator=reader, keep=2
        )

        def die(batch, logs):
            if int(model.optimizer.iterations.numpy()) == dies:
                raise Died

        callbacks = [keras.callbacks.LambdaCallback(on_train_batch_begin=die)]
        early = lodestar.callbacks.EarlyStopping("loss", patience=9)
        lodestar.train.fit(
            *(model, reader),
            snapshots=calls,
            epochs=2,
            steps_per_epoch=3,
            callbacks=[*callbacks, early],
            validation_data=fit_data(),
            verbose=0,
        )
        return model

    whole = train(strategy, "whole")
    with pytest.raises(Died):
        train(strategy, "died", 5)
    index = whole.get_layer("e").table._workers.index
    copy = f"died-{index}"
    shutil.copytree(f"{folder}/died", f"{folder}/{copy}")
    for model in (train(strategy, "died"), train(None, copy)):
        assert int(model.optimizer.iterations.numpy()) == 6
        replicas.assert_same_tables(
            whole.get_layer("e").table, model.get_layer("e").table
        )
        np.testing.assert_allclose(
            whole.layers[-1].kernel, model.layers[-1].kernel, 0, 1e-5
        )
