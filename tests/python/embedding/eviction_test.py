"""Tests of evicted rows that are returned, and of tables that raise when full."""

import copy

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.layers.cloning import serialize_table

DEVICES = [None, ["/CPU:0"], ["/CPU:0"] * 3]


def table(**options):
    return lodestar.EmbeddingVariable(2, **{"name": "t", **options})


def ids_of(t):
    return t.export().ids.numpy().tolist()


@pytest.fixture(params=DEVICES, ids=["none", "one", "three"])
def devices(request):
    """Returns the `devices` of a table."""
    return request.param


def model(t, **options):
    """Returns a model of one id per example that trains table `t`."""
    ids = keras.Input((1,), dtype="int64")
    rows = lodestar.layers.DynamicEmbedding(table=t, combiner="sum")(ids)
    m = keras.Model(ids, keras.layers.Dense(1)(rows))
    m.compile(lodestar.optimizers.SGD(0.1), "mse", **options)
    return m


X = np.arange(12)[:, None]
Y = np.ones((12, 1), np.float32)


def test_max_age_acts_in_fit(devices):
    """As the reference removes them: after each step, what is too old."""
    t = table(
        eviction=lodestar.MaxAge(2),
        optimizer=keras.optimizers.SGD(0.1) if devices is None else None,
        devices=devices,
    )
    sizes = []
    seen = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: sizes.append(ids_of(t))
    )
    m = model(t)
    options = {"batch_size": 1, "shuffle": False, "verbose": 0}
    m.fit(X, Y, callbacks=[seen], **options)
    assert sizes == [list(range(max(0, i - 1), i + 1)) for i in range(12)]
    assert t.stats()["evicted"] == 10
    before = t.export()
    m.predict(X, verbose=0)
    m.evaluate(X, Y, verbose=0)
    t.trainable = False
    m.compile(lodestar.optimizers.SGD(0.1), "mse")
    m.fit(X, Y, **options)
    t.set_step(99)
    after = t.export()
    assert after.ids.numpy().tolist() == before.ids.numpy().tolist() == [10, 11]


def test_max_age_acts_in_train_fit_and_with_steps_per_execution():
    for train in (
        lambda m, data: lodestar.train.fit(m, data, verbose=0),
        lambda m, data: lodestar.train.fit(m, [data], threads=1, verbose=0),
        lambda m, data: m.fit(data, verbose=0),
    ):
        t = table(eviction=lodestar.MaxAge(1))
        data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(1)
        train(model(t, steps_per_execution=3), data)
        assert ids_of(t) == [11]


@pytest.mark.parametrize("graph", [False, True])
def test_policies_act_in_a_custom_loop(devices, graph):
    """Frequencies and norms at multiples of `every`, and an LFU cap with ages."""
    t = table(
        eviction=[
            lodestar.MaxRows(90, "lfu"),
            lodestar.MaxAge(7),
            lodestar.MinFrequency(2, every=5),
            lodestar.MinNorm(1e-3, every=4),
        ],
        embeddings_initializer="zeros",
        devices=devices,
    )
    optimizer = lodestar.optimizers.SGD(1.0)

    def step(ids, gradient):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(t.lookup(ids)) * gradient
        optimizer.apply([tape.gradient(loss, t)], [t])

    run = tf.function(step) if graph else step
    wanted = {}
    for number in range(1, 40):
        ids = [number, 100 + number // 3]
        gradient = float(number % 2)
        run(tf.constant(ids, tf.int64), gradient)
        for each in ids:
            seen, count, norm = wanted.get(each, (0, 0, 0.0))
            wanted[each] = (number - 1, count + 1, norm + gradient)
        wanted = {
            each: (seen, count, norm)
            for each, (seen, count, norm) in wanted.items()
            if number - seen <= 7
            and (number % 5 or count >= 2)
            and (number % 4 or norm > 0)
        }
        assert ids_of(t) == sorted(wanted), number


def test_pending_ids_are_forgotten(devices):
    t = table(
        admission=lodestar.MinCount(2),
        eviction=lodestar.MaxAge(3),
        devices=devices,
    )
    t.lookup([1], training=True)
    t.set_step(3)
    assert t.stats()["pending"] == 1
    t.set_step(4)
    assert t.stats()["pending"] == 0


def test_a_snapshot_knows_what_training_evicted(tmp_path):
    t = table(eviction=lodestar.MaxAge(2))
    m = model(t)
    options = {"batch_size": 1, "shuffle": False, "verbose": 0}
    for first in (0, 4, 8):
        m.fit(X[first : first + 4], Y[:4], **options)
        lodestar.snapshot.save(m, str(tmp_path), delta=first > 0)
    restored = table(eviction=lodestar.MaxAge(2))
    lodestar.snapshot.restore(model(restored), str(tmp_path))
    assert ids_of(restored) == ids_of(t) == [10, 11]


def test_own_policies_that_are_refused():
    with pytest.raises(ValueError, match=r"MaxAge\(0\), which evicts each row"):
        table(eviction=lodestar.MaxAge(0))
    for policy in (lodestar.MinFrequency, lodestar.MinNorm):
        with pytest.raises(ValueError, match="`every` of Min.* must be .* 0"):
            policy(2, every=0)
    t = table(eviction=lodestar.MinNorm(1))
    message = r"`on_evict` would not get the rows that MinNorm\(x=1\)"
    with pytest.raises(ValueError, match=message):
        t.on_evict = print
    with pytest.raises(ValueError, match="`on_evict` would not get the rows"):
        table(eviction=lodestar.MaxAge(3), on_evict=print)


def test_min_frequency(devices):
    t = table(eviction=lodestar.MinFrequency(3), devices=devices)
    for step in range(4):
        t.set_step(step)
        t.lookup(np.arange(step, 4), training=True)
    t.set_step(4)
    assert int(t.evict(lodestar.MinFrequency(2))) == 1
    assert ids_of(t) == [1, 2, 3]
    again = lodestar.EmbeddingVariable.from_config(t.get_config())
    again.load_rows(t.export())
    again.set_step(4)
    for each in (t, again):
        each.decay_frequencies(0.8)  # 2 3 4 -> 1 2 3
        assert int(each.evict()) == 2
        assert ids_of(each) == [3]


def test_min_frequency_counts_occurrences_if_admission_does():
    t = table(admission=lodestar.MinCount(1, unit="occurrence"))
    t.lookup([1, 1, 1, 2], training=True)
    t.set_step(1)
    assert int(t.evict(lodestar.MinFrequency(3))) == 1
    assert ids_of(t) == [1]


@pytest.mark.parametrize(
    "dtype, graph",
    [
        ("float32", True),
        ("float16", False),
        ("bfloat16", True),
    ],
)
def test_evicted_rows_are_returned(devices, dtype, graph):
    t = table(devices=devices, dtype=dtype)
    ids = [-5, 2**62, 3, 8, 0]
    t.lookup(ids, training=True)
    t.set_step(1)
    t.lookup([3], training=True)
    wanted = t.lookup([-5, 0, 8, 2**62]).numpy()

    def evict():
        return t.evict(lodestar.MaxAge(0), return_rows=True)

    gone, rows = tf.function(evict)() if graph else evict()
    assert gone.dtype == tf.int64 and rows.dtype == t._row_dtype
    assert gone.numpy().tolist() == [-5, 0, 8, 2**62]
    np.testing.assert_array_equal(rows, wanted)
    assert ids_of(t) == [3]
    gone, rows = evict()
    assert gone.shape == [0] and rows.shape == [0, 2]
    # They can be put back.
    t.insert_or_assign([-5, 0, 8, 2**62], wanted)
    assert int(t.size()) == 5


def test_return_rows_is_a_flag():
    with pytest.raises(
        ValueError, match="`return_rows`=1 is not a Python bool"
    ):
        table().evict(lodestar.MaxAge(0), return_rows=1)


@pytest.mark.parametrize("graph", [False, True])
def test_on_evict(devices, graph):
    kept = {}

    def keep(ids, rows):
        assert isinstance(ids, np.ndarray) and isinstance(rows, np.ndarray)
        kept.update(zip(ids.tolist(), rows.tolist()))

    t = table(on_evict=keep, devices=devices, embeddings_initializer="ones")
    t.lookup([1, 2], training=True)
    t.set_step(1)
    t.lookup([2], training=True)

    def old():
        return t.evict(lodestar.MaxAge(0))

    evict = tf.function(old) if graph else old
    assert int(evict()) == 1
    assert kept == {1: [1, 1]}
    t.on_evict = None
    t.set_step(9)
    assert int(old()) == 1
    assert list(kept) == [1]
    with pytest.raises(ValueError, match="`on_evict` must be a function .* 3"):
        t.on_evict = 3


def test_on_evict_gets_no_rows_that_a_lookup_evicts():
    calls = []
    t = table(
        eviction=lodestar.MaxRows(2), on_evict=lambda *rows: calls.append(rows)
    )
    for step in range(3):
        t.set_step(step)
        t.lookup([step, step + 10], training=True)
    assert t.stats()["evicted"] == 4 and not calls


@pytest.mark.parametrize("graph", [False, True])
def test_on_evict_is_not_called_without_rows(devices, graph):
    calls = []
    t = table(on_evict=lambda *rows: calls.append(rows), devices=devices)
    evict = tf.function(t.evict) if graph else t.evict
    assert int(evict(lodestar.MaxAge(0))) == 0
    t.lookup([1], training=True)
    assert int(evict(lodestar.MaxAge(0))) == 0  # used in this step
    assert not calls


def test_an_error_of_on_evict_is_raised():
    def fail(ids, rows):
        raise OSError("disk full")

    t = table(on_evict=fail)
    t.lookup([1], training=True)
    t.set_step(1)
    with pytest.raises(OSError, match="disk full"):
        t.evict(lodestar.MaxAge(0))


def test_on_evict_of_a_layer_is_copied_but_not_saved(tmp_path):
    class Archive:
        def __init__(self):
            self.ids = []

        def keep(self, ids, rows):
            self.ids += ids.tolist()

    archive = Archive()
    layer = lodestar.layers.DynamicEmbedding(
        2, on_evict=archive.keep, name="users"
    )
    copied = copy.deepcopy(layer)
    for each in (layer, copied):
        each(tf.constant([4], tf.int64), training=True)
        each.table.set_step(1)
        each.table.evict(lodestar.MaxAge(0))
    assert archive.ids == [4, 4]
    again = lodestar.layers.DynamicEmbedding.from_config(layer.get_config())
    assert again.table.on_evict is None
    with pytest.raises(ValueError, match="`on_evict` cannot be combined with"):
        lodestar.layers.DynamicEmbedding(table=table(), on_evict=archive.keep)
    with pytest.raises(ValueError, match="`on_evict` must be a function .* 3"):
        table(on_evict=3)


FULL = (
    "table 't' is full: it has 2 of at most 3 rows, and the call has 2 new "
    r"ids\. .*No row was changed"
)


def refuses(call, message=FULL):
    with pytest.raises(tf.errors.FailedPreconditionError, match=message):
        call()


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("devices", DEVICES[:2], ids=["none", "one"])
def test_a_full_table_raises(graph, devices):
    t = table(eviction=lodestar.MaxRows(3, when_full="raise"), devices=devices)
    other = lodestar.EmbeddingVariable(2, name="other")
    t.lookup([1, 2], training=True)
    collection = lodestar.layers.EmbeddingCollection(
        {"a": lodestar.Feature(other), "b": lodestar.Feature(t)}
    )
    ids = tf.constant([1, 3, 4], tf.int64)
    calls = [
        lambda: t.lookup(ids, training=True),
        lambda: t.lookup(ids[None], combiner="sum", training=True),
        lambda: t.insert_or_assign(ids, tf.ones([3, 2])),
    ]
    if devices is None:
        calls.append(lambda: collection({"a": ids, "b": ids}, training=True))
    before, stats = t.export(), t.stats()
    for call in calls:
        refuses(tf.function(call) if graph else call)
    after = t.export()
    for name in ("ids", "rows", "frequencies", "last_seen"):
        np.testing.assert_array_equal(
            getattr(after, name), getattr(before, name)
        )
    assert t.stats() == stats
    assert int(other.size()) == 0
    # Reads, resident ids and the last free place are no problem.
    t.lookup(ids)
    t.lookup([1, 2, 3], training=True)
    refuses(lambda: t.lookup([9], training=True), "has 3 of at most 3 .* 1 new")
    t.remove([1])
    t.lookup([9], training=True)
    assert ids_of(t) == [2, 3, 9]
    assert t.stats()["evicted"] == t.stats()["refused"] == 0


def test_a_full_table_ends_fit():
    ids = keras.Input((1,), dtype="int64")
    t = table(eviction=lodestar.MaxRows(2, when_full="raise"), name="users")
    rows = lodestar.layers.DynamicEmbedding(table=t, combiner="sum")(ids)
    model = keras.Model(ids, keras.layers.Dense(1)(rows))
    model.compile(lodestar.optimizers.SGD(), "mse")
    model.fit(np.array([[1], [2]]), np.ones((2, 1)), verbose=0)
    before = t.export().rows.numpy()
    refuses(
        lambda: model.fit(np.array([[2], [3]]), np.ones((2, 1)), verbose=0),
        "table 'users' is full: it has 2 of at most 2 rows, and the call has 1",
    )
    np.testing.assert_array_equal(t.export().rows, before)
    model.predict(np.array([[3]]), verbose=0)


def test_a_full_table_with_admission_counts_the_admitted_ids():
    t = table(
        admission=lodestar.MinCount(2),
        eviction=lodestar.MaxRows(1, when_full="raise"),
    )
    t.lookup([1, 2, 3], training=True)
    t.set_step(1)
    refuses(
        lambda: t.lookup([1, 2, 4], training=True),
        "has 0 of at most 1 rows, and the call has 2 new ids",
    )
    assert t.stats()["pending"] == 3
    t.lookup([1, 4], training=True)
    assert ids_of(t) == [1]


def test_when_full_is_saved(tmp_path):
    t = table(eviction=lodestar.MaxRows(1, when_full="raise"))
    again = keras.saving.deserialize_keras_object(serialize_table(t))
    again.lookup([1], training=True)
    refuses(lambda: again.lookup([2], training=True), "is full")
    lodestar.snapshot.save(again, str(tmp_path))
    restored = table(eviction=lodestar.MaxRows(1, when_full="raise"))
    lodestar.snapshot.restore(restored, str(tmp_path))
    refuses(lambda: restored.lookup([2], training=True), "table 't' is full")


def test_where_when_full_is_refused():
    full = lodestar.MaxRows(9, when_full="raise")
    with pytest.raises(NotImplementedError, match="a table in 3 parts"):
        table(eviction=full, devices=["/CPU:0"] * 3)
    with pytest.raises(ValueError, match="`policy` must evict rows"):
        table().evict(full)
    with pytest.raises(
        ValueError, match="`when_full`='drop' of MaxRows is not"
    ):
        lodestar.MaxRows(9, when_full="drop")
    with pytest.raises(ValueError, match="`n` of MinFrequency must be .* 0"):
        lodestar.MinFrequency(0)
