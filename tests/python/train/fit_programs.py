"""Programs of fit_test.py, run in a process that is connected to a cluster."""

import concurrent.futures
import contextlib
import os
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar._library import gen_ops
from lodestar.optimizers.update_attempt import UpdateLogs
from lodestar.train import Scheduler, evaluate, fit
from lodestar.train.scheduled_step import ScheduledStep

CLUSTER = lodestar.testing.LocalCluster(
    ps=int(os.environ.get("SERVERS", 2)), workers=2
)
STRATEGY = tf.distribute.ParameterServerStrategy(CLUSTER.resolver)
COORDINATOR = tf.distribute.coordinator.ClusterCoordinator(STRATEGY)

_RNG = np.random.default_rng(7)
X = _RNG.normal(size=(96, 4)).astype(np.float32)
Y = (X.sum(1, keepdims=True) > 0).astype(np.float32)
DATA = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)  # 12 batches


class Samples(keras.metrics.Sum):
    """Counts samples."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(tf.ones_like(y_true))


class Clicks(keras.metrics.Sum):
    """Sums labels."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(y_true)


def model(optimizer=None, scope=None, **options):
    """Returns a small model with fixed weights, in the strategy's scope."""
    with scope or STRATEGY.scope():
        made = keras.Sequential([keras.Input((4,))])
        for units, activation in ((8, "tanh"), (1, "sigmoid")):
            start = keras.initializers.GlorotUniform(seed=units)
            made.add(keras.layers.Dense(units, activation, True, start))
        metrics = ["AUC", "accuracy", Samples(name="samples")]
        made.compile(
            optimizer or keras.optimizers.Adam(0.05),
            "binary_crossentropy",
            metrics=metrics,
            **options,
        )
    return made


def weights(of):
    """Returns the dense weights in order."""
    return [v.numpy() for v in of.trainable_variables]


class Calls(keras.callbacks.Callback):
    """Records calls of callbacks, and checks that no step is running."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __getattribute__(self, name):
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        def call(number=None, logs=None):
            assert COORDINATOR.done()
            number = number if isinstance(number, int) else None
            self.calls.append((name, number))

        return call


def one_step_a_round_is_model_fit():
    """Compares callbacks, history and weights."""
    here, there = Calls(), Calls()
    alone = model(scope=contextlib.nullcontext())
    options = {"epochs": 2, "verbose": 0, "validation_data": DATA.take(3)}
    wanted = alone.fit(DATA, callbacks=[here], **options)
    ours = model()
    found = fit(ours, DATA, callbacks=[there], steps_per_round=1, **options)
    assert found is ours.history and found.epoch == [0, 1]
    assert found.history.keys() == wanted.history.keys()
    for name, values in wanted.history.items():
        np.testing.assert_allclose(found.history[name], values, 1e-4, 1e-5)
    for a, b in zip(weights(ours), weights(alone), strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)
    assert ours.optimizer.iterations.numpy() == 24
    assert there.calls == here.calls


def steps_of_all_workers_are_counted():
    """`iterations` and metrics count all steps, in any order."""
    ours = model(steps_per_execution=3)
    history = fit(ours, DATA, epochs=3, verbose=0).history
    assert history["samples"] == [96, 96, 96]
    assert ours.optimizer.iterations.numpy() == 36
    assert history["loss"][2] < history["loss"][0]
    read = fit(
        ours, lambda context: DATA.shuffle(12), steps_per_epoch=50, verbose=0
    )
    assert read.history["samples"] == [400]
    assert ours.optimizer.iterations.numpy() == 86
    auc = keras.metrics.AUC()
    scores = ours(X)
    auc.update_state(Y, scores)
    loss = tf.reduce_mean(keras.losses.binary_crossentropy(Y, scores))
    found = evaluate(ours, DATA, verbose=0)
    np.testing.assert_allclose(found["loss"], loss, 1e-4)
    # With other batches a score may cross a threshold.
    np.testing.assert_allclose(found["AUC"], float(auc.result()), 0, 0.01)
    assert found["samples"] == 96
    assert evaluate(ours, DATA, steps=5, verbose=0)["samples"] == 40


def data_is_read_once_an_epoch():
    """The data do not serve to build the model; a function is called once."""
    begun = []

    def read(context=None):
        begun.append(context)
        return ((X[i : i + 8], Y[i : i + 8]) for i in range(0, 96, 8))

    data = tf.data.Dataset.from_generator(
        read, output_signature=DATA.element_spec
    )
    assert (
        fit(model(), data, epochs=2, verbose=0).history["samples"] == [96] * 2
    )
    assert len(begun) == 2

    def by_workers(context):
        begun.append(context)
        return DATA

    fit(model(), by_workers, steps_per_epoch=2, verbose=0)
    assert len(begun) == 3


def callbacks_are_called_between_rounds():
    """The dataset is repeated, and the last round is shorter."""
    seen = Calls()
    ours = model()
    fit(
        *(ours, DATA),
        epochs=2,
        initial_epoch=1,
        steps_per_epoch=30,
        steps_per_round=20,
        callbacks=[seen],
        verbose=0,
    )
    assert [c for c in seen.calls if c[1] is not None] == [
        ("on_epoch_begin", 1),
        ("on_train_batch_begin", 0),
        ("on_train_batch_end", 19),
        ("on_train_batch_begin", 20),
        ("on_train_batch_end", 29),
        ("on_epoch_end", 1),
    ]
    assert ours.history.history["samples"] == [240]


def a_callback_stops_training():
    """Training stops after the round or epoch in which the callback asks for it."""

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs):
            self.model.stop_training = True

    ours = model()
    options = {"epochs": 5, "verbose": 0}
    fit(ours, DATA, callbacks=[Stop()], steps_per_round=4, **options)
    assert ours.optimizer.iterations.numpy() == 4
    best = keras.callbacks.EarlyStopping(
        "loss", mode="max", restore_best_weights=True
    )
    history = fit(ours, DATA, callbacks=[best], **options)
    assert len(history.epoch) == 2 and best.best_epoch == 0


def validation_is_every_nth_epoch():
    """Each validation uses the given number of steps, on the same batches."""
    options = {"validation_data": DATA, "validation_steps": 2, "verbose": 0}
    still = model(keras.optimizers.SGD(0.0))
    found = fit(still, DATA, epochs=4, validation_freq=2, **options)
    assert found.history["val_samples"] == [16, 16]
    first, second = found.history["val_loss"]
    np.testing.assert_allclose(first, second, 1e-6)


def the_sum_of_gradients_is_pushed():
    """Gradients of `sync_every` steps are summed, then clipped."""
    ours = model(keras.optimizers.SGD(0.1, clipvalue=0.3))
    wanted = weights(ours)
    batches = list(DATA)
    for begin in range(0, 12, 5):  # the last one has two steps
        alone = model(scope=contextlib.nullcontext())
        alone.set_weights(wanted)
        sums = [np.zeros_like(weight) for weight in wanted]
        for x, y in batches[begin : begin + 5]:
            with tf.GradientTape() as tape:
                loss = alone.compute_loss(x, y, alone(x))
            for total, gradient in zip(
                sums, tape.gradient(loss, alone.trainable_variables)
            ):
                total += gradient.numpy()
        assert max(np.abs(total).max() for total in sums) > 0.3
        for weight, total in zip(wanted, sums):
            weight -= 0.1 * np.clip(total, -0.3, 0.3)
    fit(ours, DATA, sync_every=5, steps_per_round=5, verbose=0)
    for a, b in zip(weights(ours), wanted, strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)
    assert ours.optimizer.iterations.numpy() == 12


def a_push_that_is_run_again_moves_no_dense_weight():
    """Moments do not move weights either, on the server that created them."""
    ours = click_model()
    fit(ours, clicks(), steps_per_epoch=4, sync_every=2, verbose=0)
    push = ScheduledStep.of(ours, None, []).push
    logs = UpdateLogs.of(STRATEGY)
    updates = tf.constant([logs._next, logs._next], tf.int64)
    logs._next += 2
    batches = list(clicks().take(2))
    found = []
    for _ in range(2):
        COORDINATOR.schedule(push, (batches, tf.constant(2), updates))
        COORDINATOR.join()
        found.append(ours.layers[-1].get_weights())
    np.testing.assert_equal(*found)
    assert ours.optimizer.iterations.numpy() == 6


def what_layers_keep_is_kept():
    """Layer losses, moving averages and seeds, wherever the weights are stored."""

    class Penalty(keras.layers.Layer):
        def call(self, x):
            self.add_loss(tf.constant(100.0))
            return x

    for sync_every in (1, 4):
        with STRATEGY.scope():
            ours = keras.Sequential(
                [
                    keras.Input((4,)),
                    keras.layers.BatchNormalization(momentum=0.5),
                    keras.layers.Dropout(0.5, seed=3),
                    Penalty(),
                    keras.layers.Dense(1, kernel_regularizer="l2"),
                ]
            )
            ours.compile("sgd", "mse", metrics=[Samples(name="samples")])
        before = [v.numpy() for v in ours.non_trainable_variables]
        history = fit(
            ours,
            lambda context: DATA,
            steps_per_epoch=20,
            sync_every=sync_every,
            verbose=0,
        ).history
        assert 100 < history["loss"][0] < 110
        assert history["samples"] == [160]
        assert ours.optimizer.iterations.numpy() == 20
        for old, now in zip(before, ours.non_trainable_variables, strict=True):
            assert (old != now.numpy()).any(), (sync_every, now)


def click_model(scope=None, optimizer=None):
    """Returns a model of bags of ids; the servers store the rows in a scope."""
    with scope or STRATEGY.scope():
        ids = keras.Input((None,), dtype="int64", ragged=True)
        embed = lodestar.layers.DynamicEmbedding(
            4, combiner="mean", seed=(1, 1), name="items"
        )
        start = keras.initializers.GlorotUniform(seed=1)
        score = keras.layers.Dense(1, "sigmoid", True, start)(embed(ids))
        made = keras.Model(ids, score)
        inner = optimizer or keras.optimizers.Adam(0.05)
        made.compile(
            lodestar.optimizers.wrap(inner),
            "binary_crossentropy",
            metrics=["AUC", Samples(name="samples"), Clicks(name="clicks")],
        )
    return made


def clicks():
    """Returns 24 batches of ragged ids."""
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 5, 384)
    values = rng.integers(0, 200, lengths.sum())
    ids = tf.RaggedTensor.from_row_lengths(values, lengths)
    sums = tf.reduce_sum(tf.cast(ids % 3 - 1, tf.float32), 1)
    labels = tf.cast(sums[:, tf.newaxis] > 0, tf.float32)
    return tf.data.Dataset.from_tensor_slices((ids, labels)).batch(16)


def rows_of_tables_are_trained_on_the_servers():
    """Compares with one process step by step, then uses all workers at once."""
    data = clicks()
    alone = click_model(contextlib.nullcontext())
    alone.fit(data, epochs=2, verbose=0)
    ours = click_model()
    fit(ours, data, epochs=2, steps_per_round=1, verbose=0)
    there, here = (m.get_layer("items").table.export() for m in (ours, alone))
    np.testing.assert_array_equal(there.ids, here.ids)
    np.testing.assert_allclose(there.rows, here.rows, 1e-4, 1e-5)
    np.testing.assert_array_equal(there.frequencies, here.frequencies)
    for sync_every in (1, 3):
        ours = click_model()
        history = fit(
            ours, data, epochs=4, sync_every=sync_every, verbose=0
        ).history
        assert history["samples"] == [384] * 4
        assert history["AUC"][-1] > 0.9
        table = ours.get_layer("items").table
        assert ours.optimizer.iterations.numpy() == 96
        assert int(table.step) == 96
        assert len(table.devices) == 2
        counts = table.export().frequencies.numpy().sum()
        # An id counts once per step, and two workers may share a step.
        wanted = 2 * here.frequencies.numpy().sum()
        assert 0.5 * wanted < counts <= wanted


def what_cannot_be_trained_is_named():
    """Errors are raised before any step is scheduled."""
    with STRATEGY.scope():
        bare = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])

        class Own(keras.Model):
            def train_step(self, data):
                return {}

        own = Own(bare.inputs, bare.outputs)
        eager = keras.Model(bare.inputs, bare.outputs)
        recent = lodestar.metrics.BatchAUC(slide_steps=2)
        bare.compile("sgd", "mse", metrics=["mae", recent])
    own.compile("sgd", "mse")
    eager.compile("sgd", "mse", run_eagerly=True)
    sums = keras.optimizers.SGD(gradient_accumulation_steps=2)
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    ours = model()
    one = {"steps_per_epoch": 1}
    not_a_sum = r"'batch_auc' \(BatchAUC\).*several workers"
    for made, data, options, message in (
        (own, DATA, {}, "Own must not override `train_step`"),
        (eager, DATA, {}, "run_eagerly"),
        (model(lodestar.optimizers.wrap(sums)), DATA, {}, "gradient_accumul"),
        (model(scaled), DATA, {}, "A LossScaleOptimizer needs"),
        (bare, DATA, {}, not_a_sum),
        (ours, DATA, {"validation_data": [DATA]}, "`validation_data` must be"),
        (ours, DATA.take(0), {}, "`data` has no batch"),
        (ours, lambda context: DATA, {}, "endless. Pass `steps_per_epoch`"),
        (ours, lambda context: X, one, "`data` must return a tf.data.Data"),
        (
            *(ours, lambda context: DATA, one | {"snapshots": "unused"}),
            "`snapshots` works only if `data` i",
        ),
        (ours, [DATA], {"threads": 2}, "under ParameterServerStrategy"),
        (ours, DATA.repeat(), {}, "`data` is endless. Pass the number"),
        (ours, DATA, {"steps_per_round": 0}, "`steps_per_round`"),
        (ours, DATA, {"validation_freq": 0}, "`validation_freq`"),
        (ours, DATA, {"steps_per_epoch": 0}, "`steps` must be"),
        (ours, DATA, {"sync_every": 0}, "`sync_every`"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            fit(made, data, **options)
    with pytest.raises(ValueError, match=not_a_sum):
        evaluate(bare, DATA)
    with pytest.raises(ValueError, match="`data` has no batch"):
        evaluate(ours, DATA.take(0))


def an_error_of_a_step_ends_all_and_is_raised():
    """The model can be trained again."""
    ours = model()
    bad = DATA.map(lambda x, y: (tf.debugging.check_numerics(x / 0, "of x"), y))
    for x in (bad, lambda context: bad):
        with pytest.raises(tf.errors.InvalidArgumentError, match="of x"):
            fit(ours, x, steps_per_epoch=20, verbose=0)
        assert COORDINATOR.done()

    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs):
            raise KeyError("of a callback")

    with pytest.raises(KeyError, match="of a callback"):
        fit(ours, DATA, callbacks=[Fails()], verbose=0)
    assert fit(ours, DATA, verbose=0).history["samples"] == [96]


def training_goes_on_without_a_killed_worker():
    """The worker continues after its restart; no batch counts twice."""
    ours = model()

    class Kill(keras.callbacks.Callback):
        """Kills a worker, usually in the middle of the second round."""

        def on_train_batch_begin(self, batch, logs=None):
            if batch == 100:
                self.timer = threading.Timer(0.2, CLUSTER.kill, ("worker", 1))
                self.timer.start()
            elif batch == 200:
                self.timer.join()
                assert ("worker", 1) not in CLUSTER.processes

    history = fit(
        *(ours, DATA),
        steps_per_epoch=400,
        steps_per_round=100,
        callbacks=[Kill()],
        verbose=0,
    ).history
    assert history["samples"] == [3200]
    CLUSTER.start("worker", 1)
    # A step of the killed worker may have finished without its reply.
    assert 400 <= ours.optimizer.iterations.numpy() <= 401
    assert fit(ours, DATA, verbose=0).history["samples"] == [96]


def training_waits_for_its_workers():
    """All of the workers, where none is left."""

    class Restart(keras.callbacks.Callback):
        restarting = False

        def on_train_batch_begin(self, batch, logs=None):
            if batch == 8:
                for worker in range(2):
                    CLUSTER.kill("worker", worker)
                self.timer = threading.Timer(1.0, self.start)
                self.timer.start()

        def start(self):
            self.restarting = True  # one may do all remaining steps
            for worker in range(2):
                CLUSTER.start("worker", worker)

    restart = Restart()
    options = {"steps_per_round": 8, "callbacks": [restart], "verbose": 0}
    assert fit(model(), DATA, **options).history["samples"] == [96]
    assert restart.restarting
    restart.timer.join()
    assert len(CLUSTER.processes) == 4


def tables_take_each_update_once():
    """Workers are killed and restarted, and late calls of lost workers arrive."""
    ids = tf.range(64, dtype=tf.int64)  # of both servers
    with STRATEGY.scope():
        inputs = keras.Input((), dtype="int64")
        rows = [
            lodestar.layers.DynamicEmbedding(
                2, embeddings_initializer="zeros", name=name, devices=devices
            )(inputs)
            # The server under another of its names.
            for name, devices in (("rows", None), ("own", ["/job:ps/task:0"]))
        ]
        ours = keras.Model(inputs, keras.ops.sum(rows[0] + rows[1], -1))
        ours.compile(
            lodestar.optimizers.SGD(-1.0),
            # Each element of each row has the gradient 1.
            lambda y, y_pred: 64.0 * y_pred * (1.0 + y),
            steps_per_execution=2,
        )
    data = tf.data.Dataset.from_tensors((ids, tf.zeros([64]))).repeat()
    logs = UpdateLogs.of(STRATEGY)
    last_log = list(logs._logs.values())[-1]

    def committed():
        return last_log.call(gen_ops.lodestar_close_updates, logs._next).numpy()

    def begin_late(update):
        """Begins an update late, like a lost worker, usually during another attempt."""
        before = 0
        # Too late if the update is already forgotten.
        with contextlib.suppress(tf.errors.FailedPreconditionError):
            while True:
                (_, attempt), done = last_log.call(
                    gen_ops.lodestar_begin_update, [update, 0]
                )
                if done or int(attempt) > before + 1:
                    return
                before = int(attempt)

    class Kill(keras.callbacks.Callback):
        """Kills a worker in the middle of each round except the last."""

        def __init__(self):
            super().__init__()
            self.delays = [0.05, 0.15]
            self.timer = None

        def on_train_batch_begin(self, batch, logs=None):
            self.revive()
            if self.delays:
                self.timer = threading.Timer(
                    self.delays.pop(), CLUSTER.kill, ("worker", 1)
                )
                self.timer.start()

        def revive(self):
            if self.timer is not None:
                self.timer.join()
                CLUSTER.start("worker", 1)
                self.timer = None

    tables = [ours.get_layer(name).table for name in ("rows", "own")]

    def assert_steps(count):
        for table in tables:
            rows, found = table.find(ids)
            assert found.numpy().all()
            assert rows.numpy().tolist() == [[float(count)] * 2] * 64
            assert int(table.step) == count

    for epoch, x in enumerate((data, lambda context: data), 1):
        kill = Kill()
        first = logs._next
        fit(
            *(ours, x),
            steps_per_epoch=600,
            steps_per_round=200,
            callbacks=[kill],
            verbose=0,
        )
        # Updates from before the last time without running steps are forgotten,
        # which includes all of the previous round.
        kept = committed()[:, 0].tolist()
        assert kept == [*range(max(kept[0], first + 400), first + 600)]
        assert not kill.delays and kill.timer is None
        assert_steps(600 * epoch)

    @tf.function
    def step(iterator):
        return STRATEGY.run(count_of_step, (next(iterator),))

    def count_of_step(batch):
        with tf.GradientTape() as tape:
            loss = ours.compute_loss(None, batch[1], ours(batch[0]))
        hooks = ours.trainable_variables
        ours.optimizer.apply_gradients(zip(tape.gradient(loss, hooks), hooks))
        return tf.constant(1)

    iterator = iter(COORDINATOR.create_per_worker_dataset(data))
    scheduler = Scheduler(COORDINATOR)
    kill = Kill()
    kill.delays = [0.1]
    for _ in range(2):
        kill.on_train_batch_begin(0)
        steps = [scheduler.schedule(step, (iterator,)) for _ in range(200)]
        scheduler.join()
        assert committed()[-1, 0] == logs._next - 1
        # The killed worker's step may have been finished by another.
        assert 199 <= sum(step.fetch() for step in steps) <= 200
    assert_steps(1600)
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        first = logs._next
        late = [
            threads.submit(begin_late, first + update)
            for update in range(10, 90, 10)
        ]
        inner = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: fit(
                ours, data, steps_per_epoch=2, verbose=0
            )
        )
        fit(
            *(ours, data),
            steps_per_epoch=100,
            steps_per_round=50,
            callbacks=[inner],
            verbose=0,
        )
        for call in late:
            call.result()
    for table in tables:
        assert table.find(ids)[0].numpy().tolist() == [[1704.0] * 2] * 64
    # An error ends steps on all servers; none remains on one server only.
    labels = tf.data.Dataset.range(64).map(
        lambda n: (ids, tf.fill([64], np.inf if n == 41 else 0.0))
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="not finite"):
        fit(ours, labels, verbose=0)
    assert not committed().size
    for table in tables:
        assert np.unique(table.find(ids)[0]).size == 1
    assert np.unique(tables[0].export().ids).size == 64


def keras_restores_where_it_was(folder):
    """BackupAndRestore resumes from an interrupted epoch."""

    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    def backup():
        return keras.callbacks.BackupAndRestore(f"{folder}/backup")

    ours = model()
    with pytest.raises(KeyboardInterrupt):
        fit(ours, DATA, epochs=4, callbacks=[backup(), Interrupt()], verbose=0)
    again = model()
    history = fit(again, DATA, epochs=4, callbacks=[backup()], verbose=0)
    assert history.epoch == [2, 3]
    assert again.optimizer.iterations.numpy() == 48
