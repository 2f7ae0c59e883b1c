"""Tests of the registered gradients with respect to rows and weights."""

import numpy as np
import pytest
import tensorflow as tf

import lodestar

COMBINERS = ("sum", "mean", "sqrtn", "max", "first", "last")
BAGS = [[3, 1, 3], [], [7], [1, 2, 3, 4]]
IDS = [1, 2, 3, 4, 7]


def table(**options):
    t = lodestar.EmbeddingVariable(3, name="gradient", **options)
    t.lookup(IDS, training=True)
    return t


def by_id(slices):
    """Returns {id: summed row} of an IndexedSlices."""
    result = {}
    rows = zip(slices.indices.numpy(), slices.values.numpy(), strict=True)
    for i, row in rows:
        result[int(i)] = result.get(int(i), 0) + row
    return result


def numeric(t, loss, step=1e-2):
    """Returns {id: d loss / d row}, changing one element of one row at a time."""
    result = {}
    for i in IDS:
        row = t.lookup([i]).numpy()
        result[i] = np.zeros(3)
        for c in range(3):
            ends = []
            for sign in (1, -1):
                moved = row.copy()
                moved[0, c] += sign * step
                t.insert_or_assign([i], moved)
                ends.append(float(loss()))
            result[i][c] = (ends[0] - ends[1]) / (2 * step)
        t.insert_or_assign([i], row)
    return result


def check(t, loss, graph=False):
    def gradient():
        with tf.GradientTape() as tape:
            value = loss()
        return tape.gradient(value, t)

    slices = (tf.function(gradient) if graph else gradient)()
    got, want = by_id(slices), numeric(t, loss)
    for i in IDS:
        np.testing.assert_allclose(got.get(i, np.zeros(3)), want[i], atol=2e-3)
    return slices


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_rows(training, graph):
    t = table()
    ids = np.array([[3, 1], [3, 7]])
    slices = check(
        t,
        lambda: tf.reduce_sum(tf.sin(t.lookup(ids, training) * 3.0)),
        graph,
    )
    # in order of first occurrence
    assert slices.indices.numpy().tolist() == [3, 1, 7]
    assert slices.dense_shape.numpy().tolist() == [-1, 3]
    assert slices.dense_shape.dtype == tf.int32


@pytest.mark.parametrize(
    "training, graph", [(False, False), (True, True)], ids=str
)
@pytest.mark.parametrize("combiner", COMBINERS)
def test_pooled_rows(combiner, training, graph):
    t = table(embeddings_initializer="normal")
    t.insert_or_assign(IDS, np.arange(15).reshape(5, 3) / 10.0)
    ids = tf.ragged.constant(BAGS, tf.int64)
    check(
        t,
        lambda: tf.reduce_sum(tf.sin(t.lookup(ids, training, None, combiner))),
        graph,
    )


@pytest.mark.parametrize("padding_id, graph", [(None, False), (1, True)])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_weights(combiner, padding_id, graph):
    t = table()
    t.insert_or_assign(IDS, np.arange(15).reshape(5, 3) / 10.0)
    ids = tf.ragged.constant(BAGS, tf.int64)
    start = np.array([0.5, 1.0, 2.0, 3.0, 0.7, 1.5, 1.1, 0.9], np.float32)

    def loss(w):
        pooled = t.lookup(
            ids,
            training=True,
            weights=ids.with_values(w),
            combiner=combiner,
            padding_id=padding_id,
        )
        return tf.reduce_sum(tf.sin(pooled))

    def gradients(w):
        with tf.GradientTape() as tape:
            tape.watch(w)
            value = loss(w)
        return tape.gradient(value, [w, t])

    got, slices = (tf.function(gradients) if graph else gradients)(
        tf.constant(start)
    )
    want = []
    for k in range(len(start)):
        step = np.zeros_like(start)
        step[k] = 1e-2
        want.append(float(loss(start + step) - loss(start - step)) / 2e-2)
    np.testing.assert_allclose(got, want, atol=2e-3)
    assert (padding_id in slices.indices.numpy()) is False
    check(t, lambda: loss(tf.constant(start)))


def test_padding_has_no_gradient():
    t = table()
    for combiner in (None, "mean"):
        with tf.GradientTape() as tape:
            rows = t.lookup([[1, 3]], True, None, combiner, padding_id=1)
            loss = tf.reduce_sum(rows)
        assert list(by_id(tape.gradient(loss, t))) == [3]


def test_several_lookups_concatenate():
    t = table()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(t.lookup([1, 2], True)) + tf.reduce_sum(
            t.lookup([2, 3], True) * 2.0
        )
    slices = tape.gradient(loss, t)
    assert slices.indices.shape == (4,)
    got = by_id(slices)
    assert [got[i][0] for i in (1, 2, 3)] == [1, 3, 2]


def test_persistent_and_nested_tapes():
    t = table()
    with tf.GradientTape(persistent=True) as outer:
        with tf.GradientTape() as inner:
            loss = tf.reduce_sum(t.lookup([1], True) ** 2)
        first = inner.gradient(loss, t)
        norm = tf.reduce_sum(first.values**2)
    for _ in range(2):
        assert by_id(outer.gradient(loss, t))[1].shape == (3,)
    row = t.lookup([1]).numpy()[0]
    np.testing.assert_allclose(by_id(outer.gradient(norm, t))[1], 8 * row, 1e-5)


def test_tape_around_an_inner_function():
    t = table()
    inner = tf.function(lambda x: tf.reduce_sum(t.lookup(x, True) * 3.0))
    for _ in range(2):
        with tf.GradientTape() as tape:
            loss = inner(tf.constant([1, 1, 2], tf.int64))
        got = by_id(tape.gradient(loss, t))
        assert (got[1][0], got[2][0]) == (6, 3)


@pytest.mark.parametrize("taken", [False, True])
def test_conditional_lookup(taken):
    t = table()

    @tf.function
    def step(condition):
        with tf.GradientTape() as tape:
            loss = tf.cond(
                condition,
                lambda: tf.reduce_sum(t.lookup([1, 2], True)),
                lambda: 0.0,
            )
        return tape.gradient(loss, t)

    slices = step(tf.constant(taken))
    assert slices.indices.numpy().tolist() == ([1, 2] if taken else [])


def sgd(rate=1.0):
    return lodestar.optimizers.SGD(rate)


@pytest.mark.parametrize("graph", [False, True])
def test_reading_in_the_middle_of_a_training_step(graph):
    t = table(embeddings_initializer="ones")
    optimizer = sgd()

    def step():
        with tf.GradientTape() as tape:
            trained = t.lookup([1, 100], training=True)
            read = t.lookup([1, 2, 200], training=False)
            loss = tf.reduce_sum(trained) + 2.0 * tf.reduce_sum(read)
        optimizer.apply(tape.gradient(loss, [t]), [t])

    (tf.function(step) if graph else step)()
    # Reads have a gradient as well, but they add no rows, and the gradient of
    # an id without a row is dropped.
    rows, found = t.find([1, 2, 100, 200])
    assert found.numpy().tolist() == [True, True, True, False]
    np.testing.assert_array_equal(rows.numpy()[:, 0], [-2, -1, 0, 0])
    assert t.stats()["gradients_dropped"] == 1


@pytest.mark.parametrize("graph", [False, True])
def test_several_lookups_of_every_kind_in_one_step(graph):
    t = table(embeddings_initializer="ones")
    optimizer = sgd()
    bags = tf.ragged.constant([[1, 2], [2]], tf.int64)

    def step():
        with tf.GradientTape() as tape:
            loss = (
                tf.reduce_sum(t.lookup([1, 1, 3], training=True))
                + tf.reduce_sum(t.lookup(bags, True, None, "sum"))
                + tf.reduce_sum(t.lookup(bags, True, None, "mean"))
            )
        optimizer.apply(tape.gradient(loss, [t]), [t])

    (tf.function(step) if graph else step)()
    want = {1: 2 + 1 + 0.5, 2: 2 + 1.5, 3: 1}
    for i, gradient in want.items():
        np.testing.assert_allclose(t.lookup([i])[0], [1 - gradient] * 3)
    assert int(t.step) == 1 and int(t.frequency(1)) == 1


def test_persistent_tape_applied_twice():
    t = table(embeddings_initializer="ones")
    optimizer = sgd()
    with tf.GradientTape(persistent=True) as tape:
        rows = t.lookup([1], True)
        one, two = tf.reduce_sum(rows), 3.0 * tf.reduce_sum(rows)
    tape.gradient(one, t)  # reading a gradient changes nothing
    np.testing.assert_array_equal(t.lookup([1]), np.ones((1, 3)))
    for loss in (one, two):
        optimizer.apply([tape.gradient(loss, t)], [t])
    np.testing.assert_array_equal(t.lookup([1]), np.full((1, 3), -3.0))
    assert int(t.step) == 2


def test_retracing_trains_one_table():
    t = table(embeddings_initializer="ones")
    optimizer = sgd()
    traces = []

    @tf.function
    def step(ids, weight):
        traces.append(ids.shape)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(t.lookup(ids, True)) * weight
        optimizer.apply(tape.gradient(loss, [t]), [t])

    for ids, weight in (([1], 1.0), ([1, 2], 1.0), ([[1], [2]], 2.0)):
        for _ in range(2):
            step(tf.constant(ids, tf.int64), weight)
    assert len(traces) >= 3
    assert int(t.step) == int(optimizer.iterations) == 6
    np.testing.assert_array_equal(t.lookup([1, 2])[:, 0], [-7.0, -5.0])


@pytest.mark.parametrize("taken", [False, True])
def test_lookups_in_both_branches(taken):
    t = table(embeddings_initializer="ones")
    optimizer = sgd()

    @tf.function
    def step(condition):
        with tf.GradientTape() as tape:
            loss = tf.cond(
                condition,
                lambda: tf.reduce_sum(t.lookup([1, 100], True)),
                lambda: 2.0 * tf.reduce_sum(t.lookup([[2]], True, None, "sum")),
            )
        optimizer.apply(tape.gradient(loss, [t]), [t])

    step(tf.constant(taken))
    want = [0.0, 1.0] if taken else [1.0, -1.0]
    np.testing.assert_array_equal(t.lookup([1, 2])[:, 0], want)
    assert bool(t.find([100])[1]) is taken


@pytest.mark.parametrize("taken", [False, True])
def test_complete_step_in_a_branch(taken):
    t = table(embeddings_initializer="ones")
    optimizer = lodestar.optimizers.Nadam()
    optimizer.build([t])

    def train():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(t.lookup([1], True))
        optimizer.apply(tape.gradient(loss, [t]), [t])
        return True

    @tf.function
    def step(condition):
        return tf.cond(condition, train, lambda: False)

    assert bool(step(tf.constant(taken))) is taken
    assert int(t.step) == int(optimizer.iterations) == int(taken)
    assert (float(t.lookup([1])[0, 0]) != 1.0) is taken


def test_step_inside_a_loop_of_steps():
    t = table(embeddings_initializer="ones")
    optimizer = sgd(0.5)
    optimizer.build([t])

    @tf.function
    def steps(batches):
        for ids in batches:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(t.lookup(ids, True))
            optimizer.apply(tape.gradient(loss, [t]), [t])

    steps(tf.constant([[1, 2], [1, 3], [1, 2]], tf.int64))
    np.testing.assert_array_equal(t.lookup([1, 2, 3])[:, 0], [-0.5, 0.0, 0.5])
    assert int(t.step) == 3


@pytest.mark.parametrize("combiner", [None, "mean"])
def test_no_ids(combiner):
    t = table()
    ids = tf.zeros([2, 0], tf.int64)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(t.lookup(ids, True, None, combiner))
    slices = tape.gradient(loss, t)
    assert slices.values.shape == (0, 3) and slices.indices.shape == (0,)
    optimizer = lodestar.optimizers.Adam()
    optimizer.apply([slices], [t])
    assert int(t.step) == 1


def test_loaded_function_is_differentiable(tmp_path):
    module = tf.Module()
    module.table = table()
    module.loss = tf.function(
        lambda x: tf.reduce_sum(module.table.lookup(x) ** 2),
        input_signature=[tf.TensorSpec([None], tf.int64)],
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    with tf.GradientTape() as tape:
        loss = loaded.loss(tf.constant([1, 1], tf.int64))
    slices = tape.gradient(loss, loaded.table.hook)
    row = module.table.lookup([1]).numpy()
    np.testing.assert_allclose(slices.values, 4 * row, 1e-6)


def test_gradients_of_gradients_of_weights_are_refused():
    t = table()
    weights = tf.constant([[0.5, -2.0, 3.0]])
    with tf.GradientTape() as outer:
        with tf.GradientTape(persistent=True) as inner:
            inner.watch(weights)
            pooled = t.lookup(
                [[1, 2, 3]], True, weights=weights, combiner="sum"
            )
            loss = tf.reduce_sum(pooled**2)
        slope = inner.gradient(loss, weights)
    with pytest.raises(LookupError, match="the gradient of `weights` of bags"):
        outer.gradient(slope, t)
