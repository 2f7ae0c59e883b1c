"""RowWiseAdagrad equals a NumPy model bit for bit, and its slots have one number."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

RowWiseAdagrad = lodestar.optimizers.RowWiseAdagrad
IDS = np.array([7, -(2**63), 0, 2**63 - 1, 12], np.int64)


def mean_square(gradient):
    """Returns the mean square of each row, added in the documented order."""
    rows, dim = gradient.shape
    sums = np.zeros([rows, 16], gradient.dtype)
    for c in range(dim):
        sums[:, c % 16] += gradient[:, c] * gradient[:, c]
    for half in (8, 4, 2, 1):
        sums[:, :half] += sums[:, half : 2 * half]
    return sums[:, :1] / gradient.dtype.type(dim)


class Model:
    """Rows and accumulators of a table in NumPy."""

    def __init__(self, rows, initial=0.1, epsilon=1e-7, decay=0.0):
        self.rows = rows
        self.accumulator = np.full([len(rows), 1], initial, np.float32)
        self.epsilon = np.float32(epsilon)
        self.decay = np.float32(decay)

    def update(self, gradient, rate):
        rate = np.float32(rate)
        gradient = gradient.astype(np.float32)
        rows = self.rows.astype(np.float32)
        rows -= rows * self.decay * rate
        self.accumulator += mean_square(gradient)
        rows -= rate / (np.sqrt(self.accumulator) + self.epsilon) * gradient
        self.rows = rows.astype(self.rows.dtype)


def make(dim, dtype="float32", **kwargs):
    return lodestar.EmbeddingVariable(
        dim, dtype=dtype, seed=(1, 2), name="t", **kwargs
    )


def gradient_of(ids, dim, dtype, seed):
    values = np.random.default_rng(seed).normal(size=(len(ids), dim))
    return values.astype(tf.as_dtype(dtype).as_numpy_dtype)


def slices(ids, values):
    return tf.IndexedSlices(
        tf.convert_to_tensor(values),
        tf.convert_to_tensor(ids),
        tf.constant([-1, 1]),
    )


@pytest.mark.parametrize(
    "dim, graph",
    [(1, False), (2, True), (15, False), (16, False), (17, True)]
    + [(33, False), (1030, True)],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_table_equals_the_numpy_model(dtype, dim, graph):
    t = make(dim, dtype)
    model = Model(t.lookup(IDS, training=True).numpy(), 0.25, 1e-3, 0.125)
    optimizer = RowWiseAdagrad(0.5, 0.25, 1e-3, weight_decay=0.125)

    def step(ids, values):
        optimizer.apply([slices(ids, values)], [t])

    if graph:
        step = tf.function(
            step,
            input_signature=[
                tf.TensorSpec([None], tf.int64),
                tf.TensorSpec([None, None], tf.float32),
            ],
        )
    for seed in range(3):
        values = gradient_of(IDS, dim, dtype, seed).astype(np.float32)
        step(tf.constant(IDS), tf.constant(values))
        model.update(values, 0.5)
    np.testing.assert_array_equal(t.find(IDS)[0].numpy(), model.rows)
    exported = t.export()
    assert exported.optimizer == "row_wise_adagrad"
    slot = np.asarray(exported.optimizer_slots["accumulator"])
    assert slot.shape == (len(IDS), 1) and slot.dtype == np.float32
    order = np.argsort(IDS)
    np.testing.assert_array_equal(slot, model.accumulator[order])
    inspected = t.inspect(np.append(IDS, 99))
    slot = np.asarray(inspected.optimizer_slots["accumulator"])
    np.testing.assert_array_equal(slot[:-1], model.accumulator)
    assert slot.shape == (len(IDS) + 1, 1) and slot[-1] == 0


def test_gradients_of_equal_ids_are_added_before_they_are_squared():
    t = make(2)
    model = Model(t.lookup([5], training=True).numpy())
    values = np.array([[1.0, 2.0], [3.0, -2.0]], np.float32)
    RowWiseAdagrad(0.1).apply([slices(np.array([5, 5]), values)], [t])
    model.update(values.sum(0, keepdims=True), 0.1)
    np.testing.assert_array_equal(t.find([5])[0], model.rows)


def test_a_step_without_ids_and_an_id_without_a_row():
    t = make(3)
    before = t.lookup([1], training=True).numpy()
    optimizer = RowWiseAdagrad(0.1)
    empty = np.zeros([0, 3], np.float32)
    optimizer.apply([slices(np.zeros(0, np.int64), empty)], [t])
    optimizer.apply([slices(np.array([2]), np.ones([1, 3], np.float32))], [t])
    np.testing.assert_array_equal(t.find([1])[0], before)
    assert t.size() == 1
    assert t.export().optimizer_slots["accumulator"].shape == (1, 1)


def trained(shards=16, steps=2, **kwargs):
    t = make(37, num_shards=shards, **kwargs)
    optimizer = RowWiseAdagrad(0.1)
    rng = np.random.default_rng(3)
    for _ in range(steps):
        ids = rng.integers(0, 5000, 20000)
        values = rng.normal(size=(len(ids), 37)).astype(np.float32)
        t.lookup(ids, training=True)
        optimizer.apply([slices(ids, values)], [t])
    return t


def assert_same(a, b):
    a, b = a._export_all(), b._export_all()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def assert_same_rows(a, b):
    a, b = a.export(), b.export()
    for one, two in ((a.rows, b.rows), (a.ids, b.ids)):
        np.testing.assert_array_equal(one, two)
    for name, slot in a.optimizer_slots.items():
        np.testing.assert_array_equal(slot, b.optimizer_slots[name])


def test_the_number_of_shards_and_devices_changes_no_bit():
    one = trained(1)
    assert_same(one, trained(16))
    assert_same(one, trained(16, devices=["/CPU:0", "/CPU:0"]))


def test_shared_rows_are_trained():
    t = make(
        3,
        admission=lodestar.MinCount(100),
        default_row=lodestar.SharedRows(2),
    )
    ids = np.arange(6)
    t.lookup(ids, training=True)
    before = t._export_all()["shared_rows"].numpy()
    RowWiseAdagrad(0.1).apply([slices(ids, np.ones([6, 3], np.float32))], [t])
    saved = t._export_all()
    assert saved["shared_slots"].shape == (1, 2, 1)
    counts = (saved["shared_slots"].numpy()[0] - np.float32(0.1)) ** 0.5
    np.testing.assert_allclose(counts.sum(), 6, rtol=1e-5)
    steps = before - saved["shared_rows"].numpy()
    wanted = 0.1 * counts / np.sqrt(saved["shared_slots"].numpy()[0])
    np.testing.assert_allclose(steps, np.tile(wanted, (1, 3)), 1e-4, 1e-6)


def test_rows_and_slots_survive_an_import():
    t, other = trained(steps=1), make(37)
    other.load_rows(t.export())
    assert_same_rows(t, other)
    wrong = t.export()._replace(
        optimizer_slots={"accumulator": np.zeros([t.size(), 37], np.float32)}
    )
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="`slots` must have .* elements"
    ):
        other.load_rows(wrong)


def test_a_row_is_smaller_by_almost_a_slot():
    def bytes_per_row(optimizer):
        t = make(32)
        for ids in np.split(np.arange(200_000), 4):
            t.lookup(ids, training=True)
            ones = np.ones([len(ids), 32], np.float32)
            optimizer.apply([slices(ids, ones)], [t])
        stats = t.stats()
        return stats["bytes"] / stats["rows"]

    saved = bytes_per_row(lodestar.optimizers.Adagrad()) - bytes_per_row(
        RowWiseAdagrad()
    )
    assert saved > 4 * 31


def test_dense_weights_are_trained_as_by_adagrad():
    weight = keras.Variable(np.array([[1.0, 2.0]], np.float32))
    optimizer = RowWiseAdagrad(0.5, epsilon=0.25)
    gradient = np.array([[3.0, -4.0]], np.float32)
    wanted, accumulator = weight.numpy(), np.full([1, 2], 0.1)
    for _ in range(2):
        optimizer.apply([tf.constant(gradient)], [weight])
        accumulator += gradient**2
        wanted = wanted - 0.5 * gradient / np.sqrt(accumulator + 0.25)
    np.testing.assert_allclose(weight.numpy(), wanted, 1e-6)
    assert optimizer.variables[-1].shape == (1, 2)


@pytest.mark.parametrize("name", ["RowWiseAdagrad", "rowwiseadagrad"])
def test_it_has_a_name(name):
    layer = lodestar.layers.DynamicEmbedding(2, optimizer=name)
    assert type(layer.optimizer) is RowWiseAdagrad
    assert type(lodestar.optimizers.wrap(name)) is RowWiseAdagrad


def fit(optimizer, own=None):
    ids = keras.Input([3], dtype="int64")
    embed = lodestar.layers.DynamicEmbedding(
        2, combiner="mean", name="embed", seed=(1, 2), optimizer=own
    )
    out = keras.layers.Dense(1, kernel_initializer="ones")(embed(ids))
    model = keras.Model(ids, out)
    model.compile(optimizer, "mse")
    x = np.arange(24).reshape(8, 3) % 10
    model.fit(
        x,
        np.sin(x.sum(1, keepdims=True)),
        batch_size=4,
        verbose=0,
        shuffle=False,
    )
    return model


def table_of(model):
    return model.get_layer("embed").table


def test_it_is_the_optimizer_of_one_table():
    model = fit(lodestar.optimizers.Adam(), own="RowWiseAdagrad")
    assert table_of(model).export().optimizer == "row_wise_adagrad"
    again = keras.Model.from_config(model.get_config())
    assert type(again.get_layer("embed").optimizer) is RowWiseAdagrad


@pytest.mark.parametrize(
    "first, second",
    [("row_wise_adagrad", "adagrad"), ("adagrad", "row_wise_adagrad")],
)
def test_a_snapshot_of_another_optimizer_names_both(tmp_path, first, second):
    made = {
        "adagrad": lodestar.optimizers.Adagrad,
        "row_wise_adagrad": RowWiseAdagrad,
    }
    # Equal names, so only the slots of the table differ.
    saved, other = (
        fit(lodestar.optimizers.SGD(name="sgd"), own=made[rule](name="own"))
        for rule in (first, second)
    )
    lodestar.snapshot.save(saved, tmp_path)
    before = table_of(other).export()
    with pytest.raises(
        lodestar.snapshot.SnapshotError,
        match=f"slots of '{second}', but the update uses '{first}'",
    ):
        lodestar.snapshot.restore(other, tmp_path)
    assert table_of(other).export().optimizer == second
    np.testing.assert_array_equal(table_of(other).export().rows, before.rows)
    lodestar.snapshot.restore(other, tmp_path, optimizer_slots="reset")
    np.testing.assert_array_equal(
        table_of(other).export().rows, table_of(saved).export().rows
    )


def test_a_new_optimizer_replaces_the_slots():
    model = fit(lodestar.optimizers.Adagrad(0.1))
    for optimizer, width in (
        (RowWiseAdagrad(0.1), 1),
        (lodestar.optimizers.Adam(0.1), 2),
        (RowWiseAdagrad(0.1), 1),
    ):
        model.compile(optimizer, "mse")
        x = np.arange(12).reshape(4, 3)
        with pytest.warns(UserWarning, match="starts with fresh slots"):
            model.fit(x, np.ones([4, 1]), verbose=0)
        slots = table_of(model).export().optimizer_slots
        assert {slot.shape[1] for slot in slots.values()} == {width}


@pytest.mark.parametrize("kind", ["Adagrad", "RowWiseAdagrad"])
@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_accumulators_below_0_are_refused(kind, value):
    t = make(2)
    t.lookup([1], training=True)
    before = t.export().rows
    optimizer = getattr(lodestar.optimizers, kind)(
        0.1, initial_accumulator_value=value
    )
    gradient = slices(np.array([1]), np.ones([1, 2], np.float32))
    with pytest.raises(
        ValueError,
        match=f"`initial_accumulator_value` .* at least 0, got {value}",
    ):
        optimizer.apply([gradient], [t])
    np.testing.assert_array_equal(t.export().rows, before)


def test_a_subclass_with_its_own_update_is_refused():
    class Half(RowWiseAdagrad):
        def update_step(self, gradient, variable, learning_rate):
            super().update_step(gradient, variable, learning_rate * 0.5)

    class Renamed(RowWiseAdagrad):
        pass

    t = make(2)
    t.lookup([1], training=True)
    gradient = slices(np.array([1]), np.ones([1, 2], np.float32))
    with pytest.raises(
        NotImplementedError,
        match="Half has no row-wise update .* overrides `update_step`",
    ):
        Half(0.1).apply([gradient], [t])
    Renamed(0.1).apply([gradient], [t])
    assert t.export().optimizer == "row_wise_adagrad"
