"""Training in several replicas equals training in one with the whole batch."""

import contextlib

import dense_reference as reference
import keras
import numpy as np
import own_optimizers
import pytest
import tensorflow as tf
import two_replicas

import lodestar

optimizers = keras.optimizers
wrap = lodestar.optimizers.wrap
Scaled = lodestar.optimizers.LossScaleOptimizer

OPTIMIZERS = {
    "clipvalue": lambda: optimizers.Adagrad(0.1, clipvalue=0.01),
    "global_clipnorm": lambda: optimizers.SGD(
        0.1, loss_scale_factor=64.0, global_clipnorm=0.05
    ),
    "nesterov": lambda: optimizers.SGD(
        optimizers.schedules.ExponentialDecay(0.2, 1, 0.5),
        momentum=0.9,
        nesterov=True,
        weight_decay=0.05,
    ),
    "adamw": lambda: optimizers.AdamW(0.05, weight_decay=0.1, clipnorm=0.05),
    "nadam": lambda: optimizers.Nadam(0.05, weight_decay=0.1),
    "replayed": lambda: own_optimizers.Own(global_clipnorm=0.05),
}


@pytest.fixture(scope="module")
def two():
    return two_replicas.two_replicas()


@pytest.fixture(scope="module")
def three():
    # TensorFlow's collectives allow a device in groups of one size only.
    return tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1", "CPU:2"],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )


def scope_of(strategy):
    return strategy.scope() if strategy else contextlib.nullcontext()


def parts(strategy, array):
    """Returns each replica's part of a batch."""
    pieces = np.array_split(array, strategy.num_replicas_in_sync)
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(pieces[context.replica_id_in_sync_group])
    )


def make(strategy, optimizer):
    with scope_of(strategy):
        model, _ = reference.models(seed=3)
        return model, optimizer()


def train(strategy, model, optimizer, data, graph=True):
    size = len(data[0][1])

    def replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x, training=True) - y) ** 2) / size
            loss = optimizer.scale_loss(loss * 5.0)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    step = replica
    if strategy:
        step = lambda *batch: strategy.run(replica, args=batch)  # noqa: E731
    # One replica is the reference, and needs no graph, which is slower.
    if graph and strategy:
        step = tf.function(step, reduce_retracing=True)
    for places, labels in data:
        batch = reference.KEYS[places], labels
        if strategy:
            batch = [parts(strategy, x) for x in batch]
        step(*batch)


def assert_same_training(strategy, optimizer, data, graph=True):
    one, several = make(None, optimizer), make(strategy, optimizer)
    train(None, *one, data)
    train(strategy, *several, data, graph)
    reference.assert_same(one[0], several[0])
    assert_same_tables(one[0].embed.table, several[0].embed.table)
    assert int(one[1].iterations.numpy()) == several[1].iterations.numpy()
    return one, several


def assert_same_tables(one, several):
    a, b = one.export(), several.export()
    for name in ("ids", "frequencies", "last_seen"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), name)
    np.testing.assert_allclose(a.rows, b.rows, 0, 1e-5)
    for name, slot in a.optimizer_slots.items():
        np.testing.assert_allclose(slot, b.optimizer_slots[name], 1e-4, 1e-5)
    assert int(one.step) == int(several.step)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_replicas_equal_one(name, two):
    data = reference.batches(all_rows=True, count=3)
    assert_same_training(two, lambda: wrap(OPTIMIZERS[name]()), data)


@pytest.mark.parametrize("name", ["nesterov", "global_clipnorm"])
def test_three_replicas_of_uneven_parts_equal_one(name, three):
    data = reference.batches(all_rows=True, count=3)
    assert_same_training(three, lambda: wrap(OPTIMIZERS[name]()), data)


@pytest.mark.parametrize("name", ["nadam", "replayed"])
def test_eager_replicas_equal_one(name, two):
    data = reference.batches(all_rows=True, count=2)
    assert_same_training(two, lambda: wrap(OPTIMIZERS[name]()), data, False)


def scaled(name="adamw"):
    return Scaled(wrap(OPTIMIZERS[name]()), initial_scale=8.0)


@pytest.mark.parametrize("graph", [True, False], ids=["graph", "eager"])
def test_loss_scaling(graph, two):
    data = reference.batches(all_rows=True, count=3)
    assert_same_training(two, scaled, data, graph)


@pytest.mark.parametrize("example", [0, -1], ids=["first", "last"])
def test_a_gradient_that_is_not_finite_skips_the_step_in_all_replicas(
    example, two
):
    data = reference.batches(all_rows=True, count=3)
    data[1][1][example] = np.inf
    one, several = assert_same_training(
        two, lambda: scaled("global_clipnorm"), data
    )
    for _, optimizer in (one, several):
        assert optimizer.iterations.numpy() == 2
        assert optimizer.dynamic_scale.numpy() == 4.0


@pytest.mark.parametrize("graph", [True, False], ids=["graph", "eager"])
def test_refused_calls_change_nothing(graph, two):
    data = reference.batches(count=1)
    data[0][1][-1] = np.nan
    model, optimizer = make(two, lambda: wrap("adam"))
    before = reference.rows(model), model.dense.kernel.numpy()
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not finite"):
        train(two, model, optimizer, data, graph)
    np.testing.assert_array_equal(reference.rows(model), before[0])
    np.testing.assert_array_equal(model.dense.kernel.numpy(), before[1])
    assert optimizer.iterations.numpy() == 0


def refuse_a_dense_gradient(strategy, model, optimizer, graph=True):
    """Only the last replica has a gradient that is not finite."""
    table = model.embed.table

    def replica(keys, factor):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(keys, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients = [
            gradient if variable is table else gradient * factor[-1, 0]
            for gradient, variable in zip(
                gradients, model.trainable_variables, strict=True
            )
        ]
        optimizer.apply(gradients, model.trainable_variables)

    def step(*batch):
        strategy.run(replica, args=batch)

    ((places, labels),) = reference.batches(count=1)
    labels = np.ones_like(labels)
    labels[-1] = np.nan
    batch = [parts(strategy, x) for x in (reference.KEYS[places], labels)]
    before = model.dense.kernel.numpy()
    with pytest.raises(tf.errors.InvalidArgumentError, match="weight '.*dense"):
        (tf.function(step) if graph else step)(*batch)
    np.testing.assert_array_equal(model.dense.kernel.numpy(), before)
    assert optimizer.iterations.numpy() == 0 == int(table.step)
    rows = table.export()
    assert not any(
        np.any(slot.numpy() != rows.slot_inits[name])
        for name, slot in rows.optimizer_slots.items()
    )


@pytest.mark.parametrize("clip", [None, "global_clipnorm"])
@pytest.mark.parametrize("graph", [True, False], ids=["graph", "eager"])
def test_a_dense_gradient_of_one_replica(clip, graph, two):
    inner = OPTIMIZERS[clip] if clip else lambda: "adam"
    model, optimizer = make(two, lambda: wrap(inner()))
    refuse_a_dense_gradient(two, model, optimizer, graph)


# model.fit


def fit(strategy, optimizer, size=80, eager=False):
    data = reference.batches(all_rows=True)
    x = np.concatenate([reference.KEYS[places] for places, _ in data])[:size]
    y = np.concatenate([labels for _, labels in data])[:size]
    with scope_of(strategy):
        model, _ = reference.models(seed=3)
        model.compile(optimizer(), "mse", metrics=["mae"], run_eagerly=eager)
    logs = model.fit(x, y, 16, epochs=2, shuffle=False, verbose=0).history
    logs["evaluated"] = model.evaluate(x, y, 16, verbose=0)
    logs["predicted"] = model.predict(x, 16, verbose=0)
    return model, logs


@pytest.mark.parametrize(
    "optimizer, eager",
    [
        (lambda: wrap("adagrad"), True),
        (lambda: wrap(optimizers.Adam(0.05, global_clipnorm=0.05)), False),
        (lambda: scaled(), False),
    ],
    ids=["eager", "clipped", "scaled"],
)
def test_fit(optimizer, eager, two):
    one, logs = fit(None, optimizer, eager=True)
    several, logs_of_several = fit(two, optimizer, eager=eager)
    reference.assert_same(one, several)
    assert_same_tables(one.embed.table, several.embed.table)
    for name, values in logs.items():
        np.testing.assert_allclose(values, logs_of_several[name], 0, 1e-5)


def test_fit_continues_if_a_replica_has_an_empty_batch(two):
    model, _ = fit(two, lambda: wrap("adam"), size=65)
    assert np.isfinite(reference.rows(model)).all()
    assert int(model.embed.table.step) == 10


@pytest.mark.parametrize("clip", [{}, {"clipnorm": 0.05}, {"clipvalue": 0.01}])
def test_a_model_without_tables(clip, two, rng):
    x, y = rng.normal(size=(2, 32, 5)).astype(np.float32)
    kernels = []
    for strategy in (None, two):
        with scope_of(strategy):
            dense = keras.layers.Dense(5, kernel_initializer="ones")
            model = keras.Sequential([keras.Input((5,)), dense])
            model.compile(wrap(optimizers.SGD(0.1, **clip)), "mse")
        model.fit(x, y, 8, epochs=2, shuffle=False, verbose=0)
        kernels.append(dense.kernel.numpy())
    np.testing.assert_allclose(*kernels, 0, 1e-6)


# Ragged ids, weights, several tables, policies

LENGTHS = [3, 0, 4, 1, 2, 5, 1, 2, 3, 1, 4, 2, 0, 0, 0, 0]  # a half is empty


def ragged_batches():
    rng = np.random.default_rng(1)
    ids = rng.integers(-12, 12, sum(LENGTHS))
    ids = tf.RaggedTensor.from_row_lengths(ids, LENGTHS)
    weights = ids.with_values(rng.random(sum(LENGTHS)).astype(np.float32))
    labels = rng.normal(size=(len(LENGTHS), 1)).astype(np.float32)
    features = {"ids": ids, "text": tf.strings.as_string(ids)}
    data = tf.data.Dataset.from_tensor_slices((features, weights, labels))
    return data.batch(8)


def train_collection(strategy, inner, epochs=3, **of_table):
    with scope_of(strategy):
        a = lodestar.EmbeddingVariable(4, seed=1, name="a", **of_table)
        b = lodestar.EmbeddingVariable(3, seed=2, name="b")
        features = {
            "mean": lodestar.Feature(a, combiner="mean"),
            "weighted": lodestar.Feature(a, combiner="sum"),
            "max": lodestar.Feature(b, combiner="max"),
            "text": lodestar.Feature(b, combiner="sum", column="text"),
        }
        embed = lodestar.layers.EmbeddingCollection(features)
        dense = keras.layers.Dense(1, kernel_initializer="ones")
        dense.build((None, 14))
        optimizer = wrap(inner())

    def replica(x, weights, y):
        given = dict.fromkeys(features, x["ids"]) | {"text": x["text"]}
        with tf.GradientTape() as tape:
            rows = embed(given, weights={"weighted": weights}, training=True)
            out = dense(tf.concat(list(rows.values()), 1))
            loss = tf.reduce_sum((out - y) ** 2) / 8.0
        variables = embed.trainable_variables + dense.trainable_variables
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables))

    step, data = replica, ragged_batches()
    if strategy:
        step = lambda *batch: strategy.run(replica, args=batch)  # noqa: E731
        data = strategy.experimental_distribute_dataset(data)
        step = tf.function(step, reduce_retracing=True)
    for _ in range(epochs):
        for batch in data:
            step(*batch)
    return a, b, dense.kernel.numpy()


@pytest.mark.parametrize(
    "of_table",
    [
        {},
        {"admission": lodestar.MinCount(3)},
        {
            "admission": lodestar.CountingBloom(2, 0.01, 1000),
            "default_row": lodestar.SharedRows(3),
        },
        {"eviction": lodestar.MaxAge(2), "optimizer": "nadam"},
    ],
    ids=["all", "admission", "bloom", "eviction"],
)
def test_ragged_ids_of_several_tables(of_table, two):
    clipped = lambda: optimizers.Adagrad(0.1, global_clipnorm=0.5)  # noqa: E731
    *tables, kernel = train_collection(None, clipped, **of_table)
    *of_two, kernel_of_two = train_collection(two, clipped, **of_table)
    for one, several in zip(tables, of_two, strict=True):
        assert int(one.size()) > 0
        assert_same_tables(one, several)
    np.testing.assert_allclose(kernel, kernel_of_two, 0, 1e-5)


@pytest.mark.parametrize("dtype", ["int64", "string"])
def test_fit_of_ragged_ids(dtype, two):
    data = ragged_batches().map(
        lambda x, _, y: (x["text" if dtype == "string" else "ids"], y)
    )
    tables, logs = [], []
    for strategy in (None, two):
        with scope_of(strategy):
            ids = keras.Input((None,), dtype=dtype, ragged=True)
            embed = lodestar.layers.DynamicEmbedding(
                4, combiner="sum", name="e"
            )
            scores = keras.layers.Dense(1, kernel_initializer="ones")(
                embed(ids)
            )
            model = keras.Model(ids, scores)
            model.compile(wrap("adagrad"), "mse", metrics=["mae"])
        if strategy:
            fit, evaluate = lodestar.train.fit, lodestar.train.evaluate
        else:
            fit, evaluate = keras.Model.fit, keras.Model.evaluate
        logs.append(
            fit(model, data, epochs=2, validation_data=data, verbose=0).history
        )
        for _ in range(2):
            found = evaluate(model, data, verbose=0)
        logs[-1]["mae at the end"] = found["mae"] if strategy else found[1]
        tables.append(embed.table)
    assert_same_tables(*tables)
    for name, values in logs[0].items():
        np.testing.assert_allclose(logs[1][name], values, 0, 1e-5)


def test_fit_of_sparse_ids_and_numbers(two):
    ids = tf.sparse.from_dense(np.arange(64).reshape(16, 4) % 7)
    cube = tf.sparse.from_dense(np.arange(96.0).reshape(16, 3, 2) % 2)
    data = tf.data.Dataset.from_tensor_slices(
        ({"ids": ids, "cube": cube}, np.ones((16, 1)))
    ).batch(6)  # the last one has 4
    tables, losses = [], []
    for strategy in (None, two):
        with scope_of(strategy):
            inputs = {
                "ids": keras.Input((4,), dtype="int64", sparse=True),
                "cube": keras.Input((3, 2), sparse=True),
            }
            embed = lodestar.layers.DynamicEmbedding(
                4, combiner="sum", name="e"
            )
            numbers = keras.layers.Lambda(
                lambda x: tf.sparse.reduce_sum(x, [1, 2])[:, tf.newaxis],
                output_shape=(1,),
            )(inputs["cube"])
            scores = keras.layers.Dense(1, kernel_initializer="ones")(
                keras.layers.Concatenate()([embed(inputs["ids"]), numbers])
            )
            model = keras.Model(inputs, scores)
            model.compile(wrap("adagrad"), "mse")
        fit = lodestar.train.fit if strategy else keras.Model.fit
        losses.append(fit(model, data, epochs=2, verbose=0).history["loss"])
        tables.append(embed.table)
    assert int(tables[0].size()) == 6  # a 0 is no value
    assert_same_tables(*tables)
    np.testing.assert_allclose(*losses, 0, 1e-5)


def test_fit_of_replicas_needs_finite_batches(two):
    data = tf.data.Dataset.range(1)
    with pytest.raises(ValueError, match="`data` has no batch"):
        lodestar.train.fit(small_model(two), data.take(0))
    with pytest.raises(ValueError, match="`data` is endless"):
        lodestar.train.evaluate(small_model(two), data.repeat())


# Tables and replicas


@pytest.mark.parametrize("missing", ["zeros", lodestar.SharedRows(3)])
def test_occurrences_are_not_counted_by_several_replicas(missing, two):
    by_occurrence = lodestar.MinCount(2, unit="occurrence")
    options = {"admission": by_occurrence, "default_row": missing}
    message = "'t' has MinCount.* 2 replicas of the strategy .*unit='step'"
    with pytest.raises(NotImplementedError, match=message), two.scope():
        lodestar.EmbeddingVariable(2, name="t", **options)
    with pytest.raises(NotImplementedError, match=message), two.scope():
        lodestar.layers.DynamicEmbedding(2, name="t", **options)([1, 2])
    # A table that was created without the strategy.
    table = lodestar.EmbeddingVariable(2, name="t", **options)
    step = counting_step(two, lambda: table, wrap("adagrad"))
    with pytest.raises(NotImplementedError, match=message):
        tf.function(step)()
    assert int(table.size()) == 0
    # A strategy of one replica counts them as without a strategy.
    alone = tf.distribute.MirroredStrategy(["CPU:0"])
    with alone.scope():
        table = lodestar.EmbeddingVariable(2, **options)
        table.lookup([1, 2, 1], training=True)
    np.testing.assert_array_equal(table.export().ids, [1])


def rows_of(table):
    return table.export().rows.numpy().tolist()


def counting_step(strategy, table, optimizer):
    """Adds -1 to the rows of 1 and of 2 or 3, in each replica."""

    def replica(ids):
        with tf.GradientTape() as tape:
            hook = table()
            loss = tf.reduce_sum(table().lookup(ids, training=True))
        optimizer.apply_gradients([(tape.gradient(loss, hook), hook)])

    ids = parts(strategy, np.array([1, 2, 1, 3]))
    return lambda: strategy.run(replica, args=(ids,))


@pytest.mark.parametrize("graph", [True, False], ids=["graph", "eager"])
@pytest.mark.parametrize("place", ["scope", "outside", "replica"])
def test_replicas_read_one_table_wherever_it_is_made(place, graph, two):
    made = []

    def table():
        if not made:
            made.append(
                lodestar.EmbeddingVariable(2, embeddings_initializer="zeros")
            )
        return made[0]

    if place == "outside":
        table()
    with two.scope():
        optimizer = wrap(optimizers.SGD(1.0))
        if place == "scope":
            table()
    step = counting_step(two, table, optimizer)
    if graph:
        step = tf.function(step)
    step()
    assert rows_of(table()) == [[-2, -2], [-1, -1], [-1, -1]]
    assert int(table().step) == optimizer.iterations.numpy() == 1
    np.testing.assert_array_equal(table().frequency([1, 2, 3]), [1, 1, 1])


def test_a_table_that_only_one_replica_reads(two):
    with two.scope():
        tables = [
            lodestar.EmbeddingVariable(2, embeddings_initializer="zeros")
            for _ in range(2)
        ]
        optimizer = wrap(optimizers.SGD(1.0))
    hooks = [table for table in tables]

    def replica(ids):
        context = tf.distribute.get_replica_context()
        place = tf.get_static_value(context.replica_id_in_sync_group)
        with tf.GradientTape() as tape:
            rows = tables[place].lookup(ids, training=True)
            loss = tf.reduce_sum(rows)
        optimizer.apply_gradients(zip(tape.gradient(loss, hooks), hooks))

    ids = parts(two, np.array([1, 2, 1, 3]))
    tf.function(lambda: two.run(replica, args=(ids,)), autograph=False)()
    assert [rows_of(t) for t in tables] == [[[-1, -1], [-1, -1]]] * 2
    assert [int(t.step) for t in tables] == [1, 1]


def test_a_cap_holds_in_several_replicas(two):
    with two.scope():
        table = lodestar.EmbeddingVariable(2, eviction=lodestar.MaxRows(5))
        optimizer = wrap("sgd")

    @tf.function
    def step(ids):
        def replica(ids):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(table.lookup(ids, training=True))
            gradient = tape.gradient(loss, table)
            optimizer.apply_gradients([(gradient, table)])
            return table.size()

        return two.run(replica, args=(ids,))

    for first in range(0, 40, 8):
        sizes = step(parts(two, np.arange(first, first + 8)))
        assert max(map(int, two.experimental_local_results(sizes))) <= 5
    assert int(table.size()) == 5 and int(table.step) == 5


# Saving


def small_model(strategy):
    with scope_of(strategy):
        ids = keras.Input((7,), dtype="int64")
        embed = lodestar.layers.DynamicEmbedding(3, combiner="sum", name="e")
        kernel = keras.initializers.RandomNormal(seed=3)
        out = keras.layers.Dense(1, kernel_initializer=kernel)(embed(ids))
        model = keras.Model(ids, out)
        model.compile(wrap("adam"), "mse")
        model.optimizer.build(model.trainable_variables)
    return model


def through_checkpoint(model, other, path):
    saved = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(
        str(path / "checkpoint")
    )
    tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(
        saved
    ).assert_existing_objects_matched()
    return other


def through_snapshot(model, other, path):
    lodestar.snapshot.save(model, path)
    lodestar.snapshot.restore(other, path)
    return other


def through_file(model, other, path):
    model.save(path / "m.keras")
    return keras.models.load_model(path / "m.keras")


@pytest.mark.parametrize(
    "way, there",
    [
        (through_checkpoint, None),
        (through_snapshot, "two"),
        (through_file, None),
        (through_file, "two"),
    ],
)
def test_training_continues_in_other_replicas(way, there, two, tmp_path):
    data = reference.batches(count=2)
    x = np.concatenate([reference.KEYS[places] for places, _ in data])
    y = np.concatenate([labels for _, labels in data])
    model = small_model(two)
    model.fit(x, y, 16, shuffle=False, verbose=0)
    there = there and two
    with scope_of(there if way is through_file else None):
        other = way(model, small_model(there), tmp_path)
    for trained in (model, other):
        trained.fit(x, y, 16, shuffle=False, verbose=0)
    np.testing.assert_allclose(
        model.predict(x, verbose=0), other.predict(x, verbose=0), 0, 1e-5
    )
    assert other.optimizer.iterations.numpy() == 4


# Errors


def test_gradient_accumulation_is_refused(two):
    with pytest.raises(
        NotImplementedError,
        match="gradient_accumulation_steps=2 is not supported in several "
        "replicas of MirroredStrategy, nor by Keras. Use batches of 2 times",
    ):
        fit(two, lambda: wrap(optimizers.SGD(gradient_accumulation_steps=2)))


def test_several_steps_per_execution_are_refused(two):
    model = small_model(two)
    with two.scope():
        model.compile(wrap("sgd"), "mse", steps_per_execution=2)
    with pytest.raises(
        NotImplementedError,
        match="steps_per_execution=2 is not supported in several replicas of "
        "MirroredStrategy, nor by Keras. Leave it out.",
    ):
        model.fit(np.ones((8, 7), int), np.ones((8, 1)), 4, verbose=0)


def test_a_step_outside_of_replicas_is_refused(two):
    with two.scope():
        table = lodestar.EmbeddingVariable(2, name="t")
        optimizer = wrap("sgd")
        gradient = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]))
        with pytest.raises(
            RuntimeError,
            match="'t' is trained in the scope of MirroredStrategy, but not in "
            "a replica. Call the step by strategy.run",
        ):
            optimizer.apply([gradient], [table])


def test_other_strategies_are_refused_where_a_table_is_made():
    strategy = tf.distribute.experimental.CentralStorageStrategy(
        ["CPU:0", "CPU:1"], "CPU:0"
    )
    with strategy.scope():
        with pytest.raises(
            NotImplementedError,
            match="The table 't' is made under CentralStorageStrategy, but "
            "its rows are in the memory of one process. Make and train the model "
            "without a strategy, or under tf.distribute.MirroredStrategy.",
        ):
            lodestar.layers.DynamicEmbedding(2, name="t")


def test_other_strategies_are_refused_where_a_table_is_trained():
    table = lodestar.EmbeddingVariable(2, name="t")
    strategy = tf.distribute.experimental.CentralStorageStrategy(
        ["CPU:0", "CPU:1"], "CPU:0"
    )
    with strategy.scope():
        step = counting_step(strategy, lambda: table, wrap("sgd"))
        with pytest.raises(
            NotImplementedError, match="'t' is trained by 2 replicas of Central"
        ):
            step()
