"""Tests of admission and eviction of EmbeddingVariable."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.embedding import table_store
from lodestar.layers.cloning import serialize_table


def table(**options):
    return lodestar.EmbeddingVariable(2, **{"name": "t", **options})


def ids_of(t):
    return t.export().ids.numpy().tolist()


def mix64(ids):
    x = np.asarray(ids, np.uint64)
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


ADMISSIONS = [lodestar.MinCount(2), lodestar.CountingBloom(2, 0.01, 1000)]


@pytest.mark.parametrize("admission", ADMISSIONS, ids=["exact", "bloom"])
def test_admission_counts_steps(admission):
    t = table(admission=admission, default_row=[7.0, 8.0])
    for _ in range(3):  # one step, one occurrence
        rows = t.lookup([[1, 1], [1, 2]], training=True)
        np.testing.assert_array_equal(rows[0, 0], [7, 8])
    assert int(t.size()) == 0
    t.set_step(1)
    with tf.GradientTape() as tape:
        rows = t.lookup([1, 3], training=True)
        loss = tf.reduce_sum(rows)
    np.testing.assert_array_equal(rows[1], [7, 8])
    assert ids_of(t) == [1]
    assert int(t.frequency([1])[0]) == 2
    before = t.lookup([1]).numpy()
    lodestar.optimizers.SGD().apply([tape.gradient(loss, t)], [t])
    assert ids_of(t) == [1]
    assert (t.lookup([1]).numpy() < before).all()
    assert t.stats()["gradients_dropped"] == 1
    assert t.stats()["admitted"] == 1
    t.clear()
    t.lookup([3], training=True)
    t.set_step(2)
    t.lookup([1], training=True)
    assert int(t.size()) == 0  # pending ids were cleared as well


# Returns a function that looks up three ids.
def _dense(t):
    return lambda ids: t.lookup(ids, training=True)


def _bags(t):
    return lambda ids: t.lookup(
        tf.RaggedTensor.from_row_lengths(ids, [1, 2]),
        training=True,
        combiner="sum",
    )


def _collection(t):
    layer = lodestar.layers.EmbeddingCollection(
        {
            name: lodestar.Feature(t, combiner=None, padding_id=-9)
            for name in ("a", "b")
        }
    )

    def lookup(ids):
        ids = tf.cast(ids, tf.int64)
        return layer(
            {"a": ids[:1], "b": tf.concat([ids[1:], [-9]], 0)}, training=True
        )

    return lookup


@pytest.mark.parametrize(
    "lookup_in, eviction, graph",
    [
        (_dense, None, False),
        (_dense, lodestar.MaxRows(9, "lfu"), True),
        (_bags, None, True),
        (_bags, lodestar.MaxRows(9, "lfu"), False),
        (_collection, None, False),
        (_collection, lodestar.MaxRows(9, "lfu"), True),
    ],
)
def test_admission_by_occurrence(lookup_in, eviction, graph):
    t = table(
        admission=lodestar.MinCount(4, unit="occurrence"),
        eviction=eviction,
        embeddings_initializer="ones",
    )
    call = lookup_in(t)
    if graph:
        call = tf.function(call, input_signature=[tf.TensorSpec([3], tf.int64)])
    call([1, 2, 1])  # all in one step
    call([1, 2, 3])
    assert ids_of(t) == []
    call([1, 3, 5])  # the fourth occurrence of id 1
    assert ids_of(t) == [1]
    call([1, 1, 2])
    assert t.frequency([1, 2, 3]).numpy().tolist() == [6, 0, 0]
    assert t.inspect([2, 3, 5, 7]).frequencies.numpy().tolist() == [3, 2, 1, 0]
    again = lodestar.EmbeddingVariable.from_config(t.get_config())
    call = lookup_in(again)
    call([8, 8, 8])
    call([8, 9, 9])
    assert ids_of(again) == [8]


@pytest.mark.parametrize("admission", [*ADMISSIONS, None])
@pytest.mark.parametrize("combiner", [None, "sum"])
def test_a_lookup_may_admit_all_ids_or_none(admission, combiner):
    t = table(admission=admission, embeddings_initializer="ones")

    def lookup(ids, **options):
        return t.lookup([ids], training=True, combiner=combiner, **options)

    for step in range(3):
        t.set_step(step)
        assert not lookup([1, 1], admit=False).numpy().any()
    assert ids_of(t) == []
    assert lookup([2], admit=True).numpy().all()
    assert ids_of(t) == [2]
    assert int(t.frequency([2])[0]) == 1
    assert lookup([1]).numpy().all()  # often enough for admission
    assert ids_of(t) == [1, 2]
    with tf.GradientTape() as tape:
        rows = lookup([3], admit=True)
    assert tape.gradient(rows, t).indices.numpy().tolist() == [3]
    t.lookup([[4]], training=False, combiner=combiner, admit=True)
    assert ids_of(t) == [1, 2, 3]
    with pytest.raises(ValueError, match="`admit`=True .* `grow`=False"):
        lookup([5], admit=True, grow=False)
    with pytest.raises(ValueError, match="`admit`=1.5 is not a Python bool"):
        lookup([5], admit=1.5)


@pytest.mark.parametrize("admission", ADMISSIONS, ids=["exact", "bloom"])
def test_admission_is_saved_with_checkpoints_and_keras_files(
    admission, tmp_path
):
    a = table(admission=admission)
    a.lookup([1, 2], training=True)
    a.set_step(1)
    a.lookup([2, 3], training=True)
    path = tf.train.Checkpoint(table=a).save(str(tmp_path / "c"))
    store = {}
    table_store.save_table(a, store)
    b = table(admission=admission, num_shards=5, name="b")
    tf.train.Checkpoint(table=b).restore(path).assert_consumed()
    c = table(admission=admission, num_shards=2, name="c")
    table_store.load_table(c, store)
    for restored in (b, c):
        restored.lookup([3], training=True)  # seen in this step before
        assert ids_of(restored) == [2]
        restored.set_step(2)
        restored.lookup([1, 3, 4], training=True)
        assert ids_of(restored) == [1, 2, 3]


def test_chunks_of_pending_ids_and_counters(monkeypatch):
    monkeypatch.setattr(table_store, "_CHUNK_BYTES", 40)
    a = table(admission=lodestar.CountingBloom(2, 0.1, 50))
    a.lookup(np.arange(30), training=True)
    store = {}
    table_store.save_table(a, store)
    assert max(v.nbytes for k, v in store.items() if k != "header") < 300
    b = table(admission=lodestar.CountingBloom(2, 0.1, 50), name="b")
    table_store.load_table(b, store)
    for name, want in a._export_all().items():
        np.testing.assert_array_equal(b._export_all()[name], want, name)


def test_admission_of_another_kind_is_not_restored():
    a = table(admission=ADMISSIONS[0])
    a.lookup([1], training=True)
    store = {}
    table_store.save_table(a, store)
    b = table(admission=ADMISSIONS[1], name="b")
    b.lookup([9], training=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="exact counts"):
        table_store.load_table(b, store)
    c = table(name="c")
    table_store.load_table(c, store)
    assert int(c.size()) == 0


def test_a_saved_module_continues_counting(tmp_path):
    module = tf.Module()
    module.table = table(admission=lodestar.MinCount(2))
    module.see = tf.function(
        lambda ids: module.table.lookup(ids, training=True),
        input_signature=[tf.TensorSpec([None], tf.int64)],
    )
    module.size = tf.function(module.table.size, input_signature=[])
    module.table.lookup([1], training=True)
    module.table.set_step(1)
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    loaded.see(tf.constant([1, 2], tf.int64))
    assert int(loaded.size()) == 1


@pytest.mark.parametrize("shards", [1, 3, 16])
@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_max_rows(shards, policy):
    t = table(eviction=lodestar.MaxRows(6, policy), num_shards=shards)
    t.lookup([1, 2, 3, 4], training=True)
    t.set_step(1)
    t.lookup([1, 2], training=True)
    t.set_step(2)
    t.lookup([5, 6], training=True)
    t.set_step(3)
    new = np.array([10, 11, 12])
    t.lookup(new, training=True)
    # lru: 3 and 4, then 1 or 2; lfu: 3 and 4, then 5 or 6.
    tied = np.array([1, 2] if policy == "lru" else [5, 6])
    third = tied[np.argmin(mix64(tied))]
    left = {1, 2, 5, 6} - {int(third)}
    assert ids_of(t) == sorted(left | set(new.tolist()))
    stats = t.stats()
    assert (stats["evicted"], stats["refused"], stats["max_rows"]) == (3, 0, 6)
    # Only `new` was seen in this step.
    more = np.arange(20, 25)
    t.lookup(more, training=True)
    refused = more[np.argsort(mix64(more))][:2]
    want = set(new.tolist()) | (set(more.tolist()) - set(refused.tolist()))
    assert ids_of(t) == sorted(want)
    assert t.stats()["refused"] == 2
    np.testing.assert_array_equal(t.lookup(refused, training=True), 0)
    # The ids occurred again in the same step; a lookup counts an id once.
    assert t.stats()["refused"] == 4
    t.lookup(np.tile(refused, 3), training=True)
    assert t.stats()["refused"] == 6


def test_insert_or_assign_obeys_the_cap_and_asks_no_admission():
    t = table(eviction=lodestar.MaxRows(2), admission=lodestar.MinCount(9))
    t.insert_or_assign([1, 2, 3], np.ones([3, 2]))
    assert int(t.size()) == 2
    assert t.stats()["refused"] == 1


def test_an_import_over_the_cap_changes_nothing():
    t = table(eviction=lodestar.MaxRows(2))
    t.lookup([5], training=True)
    rows = lodestar.EmbeddingRows([1, 2, 3], np.ones([3, 2]))
    for mode in ("replace", "merge"):
        with pytest.raises(
            tf.errors.FailedPreconditionError,
            match="`max_rows` of the table is 2",
        ):
            t.load_rows(rows, mode=mode)
    assert ids_of(t) == [5]


def test_evict():
    t = table()
    t.insert_or_assign([1, 2], [[0.3, 0.3], [0.6, 0.6]])
    t.set_step(1)
    t.insert_or_assign([3], [[9.0, 9.0]])
    t.set_step(3)
    t.lookup([4], training=True)  # small, but seen in this step
    policy = [lodestar.MaxAge(2), lodestar.MinNorm(0.5)]
    assert int(t.evict(policy)) == 2  # 2 by its age, 1 by both
    assert ids_of(t) == [3, 4]
    t.set_step(4)
    evict = tf.function(lambda: t.evict(lodestar.MaxRows(1)))
    assert int(evict()) == 1
    assert ids_of(t) == [4]
    assert int(t.evict(lodestar.MinNorm(0.5))) == 1
    assert t.stats()["evicted"] == 4
    assert int(t.evict([])) == 0
    with pytest.raises(ValueError, match="`policy` must be .* got 'lru'"):
        t.evict(["lru"])


def test_the_step_is_the_users_once_set():
    t = table()
    optimizer = lodestar.optimizers.SGD()

    def train():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(t.lookup([1], training=True))
        optimizer.apply([tape.gradient(loss, t)], [t])

    train()
    assert int(t.step) == int(optimizer.iterations) == 1
    t.set_step(20000)
    train()
    train()
    assert int(t.step) == 20000
    assert int(t.frequency([1])[0]) == 2
    t.set_step(None)
    train()
    assert int(optimizer.iterations) == 4
    assert int(t.step) == 20001  # never decreases


def test_decay_frequencies():
    t = table()
    for step in range(5):
        t.set_step(step)
        t.lookup([1] if step else [1, 2], training=True)
    t.decay_frequencies(0.5)
    assert t.frequency([1, 2]).numpy().tolist() == [2, 0]
    t.decay_frequencies(0.0)
    assert t.frequency([1]).numpy().tolist() == [1]  # seen in this step
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`rate` must be in \[0, 1\], got 1.5",
    ):
        t.decay_frequencies(1.5)


def test_inspect():
    t = table(admission=lodestar.MinCount(2), num_shards=4)
    optimizer = lodestar.optimizers.Adagrad()
    for _ in range(2):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(t.lookup([1], training=True))
        optimizer.apply([tape.gradient(loss, t)], [t])
    t.lookup([2], training=True)
    found = t.inspect([1, 2, 3])
    assert found.states == ["resident", "pending", "missing"]
    assert found.frequencies.numpy().tolist() == [2, 1, 0]
    assert found.last_seen.numpy().tolist() == [1, 2, -1]
    np.testing.assert_array_equal(found.rows[0], t.lookup([1])[0])
    assert not found.rows[1:].numpy().any()
    exported = t.export().optimizer_slots
    (name,) = exported
    np.testing.assert_array_equal(
        found.optimizer_slots[name][0], exported[name][0]
    )
    high = mix64([1, 2, 3]) >> np.uint64(32)
    want = (high * np.uint64(4)) >> np.uint64(32)
    np.testing.assert_array_equal(found.shards, want)
    assert t.inspect([]).states == []
    assert int(t.size()) == 1


def test_stats():
    t = table(eviction=lodestar.MaxRows(100), num_shards=2)
    t.lookup([1, 1, 2, 0, 0], training=True, padding_id=0)
    stats = t.stats(reset=True)
    assert (stats["ids"], stats["unique_ids"], stats["padding"]) == (5, 2, 2)
    assert stats["unique_ratio"] == pytest.approx(2 / 3)
    assert stats["padding_share"] == pytest.approx(0.4)
    assert (stats["rows"], stats["shards"]) == (2, 2)
    assert sum(stats["per_shard"]["rows"]) == 2
    assert sum(stats["per_shard"]["bytes"]) == stats["bytes"]
    assert stats["load"] == 2 / stats["capacity"]
    again = t.stats()
    assert (again["rows"], again["ids"], again["inserts"]) == (2, 0, 0)
    assert again["unique_ratio"] == again["padding_share"] == 0


def test_shared_rows(tmp_path):
    t = table(
        default_row=lodestar.SharedRows(2), admission=lodestar.MinCount(3)
    )
    ids = np.arange(40)
    buckets = mix64(ids) % np.uint64(2)
    rows = t.lookup(ids, training=True).numpy()
    first = [rows[buckets == b][0] for b in (0, 1)]
    np.testing.assert_array_equal(rows, np.array(first)[buckets])
    assert not np.array_equal(*first)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(t.lookup(ids, training=True))
    lodestar.optimizers.Adagrad(0.1).apply([tape.gradient(loss, t)], [t])
    assert int(t.size()) == 0
    assert t.stats()["gradients_dropped"] == 0
    count = np.bincount(buckets.astype(int))[:, None].astype(np.float32)
    trained = np.asarray(first) - 0.1 * count / np.sqrt(0.1 + count**2)
    got = t._export_all()["shared_rows"].numpy()
    np.testing.assert_allclose(got, trained, rtol=1e-5)
    np.testing.assert_array_equal(t.lookup([ids[0]]), got[buckets[:1]])
    bag = t.lookup(ids[None], combiner="mean").numpy()[0]
    np.testing.assert_allclose(bag, got[buckets].mean(0), rtol=1e-5)
    found_rows, found = t.find(ids)
    assert not found_rows.numpy().any() and not found.numpy().any()

    path = tf.train.Checkpoint(t=t).save(str(tmp_path / "c"))
    store = {}
    table_store.save_table(t, store)
    for load in (
        lambda u: tf.train.Checkpoint(t=u).restore(path),
        lambda u: table_store.load_table(u, store),
    ):
        again = lodestar.EmbeddingVariable.from_config(t.get_config())
        load(again)
        for name in ("shared_rows", "shared_slots"):
            np.testing.assert_array_equal(
                again._export_all()[name], t._export_all()[name]
            )
    other = table(default_row=lodestar.SharedRows(5))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="`shared_rows` must have"
    ):
        table_store.load_table(other, store)


def test_layers_read_shared_rows():
    layer = lodestar.layers.DynamicEmbedding(
        2, default_row=lodestar.SharedRows(3), name="l"
    )
    layer = lodestar.layers.DynamicEmbedding.from_config(layer.get_config())
    assert layer(np.array([[1, 2]])).numpy().all()
    collection = lodestar.layers.EmbeddingCollection(
        {"f": lodestar.Feature(layer.table, combiner="mean")}
    )
    bag = collection({"f": tf.ragged.constant([[1]], dtype=tf.int64)})["f"]
    np.testing.assert_array_equal(bag, layer(np.array([1])))


def test_config_round_trip():
    policies = {
        "admission": lodestar.CountingBloom(3, 0.5, 10),
        "eviction": [lodestar.MaxAge(5), lodestar.MaxRows(7, "lfu")],
    }
    t = table(**policies)
    config = serialize_table(t)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == t.get_config()
    layer = lodestar.layers.DynamicEmbedding(2, name="l", **policies)
    layer = lodestar.layers.DynamicEmbedding.from_config(layer.get_config())
    again = lodestar.layers.DynamicEmbedding.from_config(layer.get_config())
    for name in policies:
        for copy in (layer.table, again.table):
            assert copy.get_config()[name] == t.get_config()[name]
    t = table(eviction=lodestar.MinNorm(0.5))
    again = lodestar.EmbeddingVariable.from_config(t.get_config())
    again.insert_or_assign([1, 2], [[0.1, 0.1], [1, 1]])
    assert int(again.evict()) == 1


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: lodestar.MinCount(0), "`n` of MinCount must be .* got 0"),
        (lambda: lodestar.MinCount(1.5), "`n` of MinCount must be .* got 1.5"),
        (lambda: lodestar.CountingBloom(256, 0.1, 9), "MinCount has no limit"),
        (
            lambda: lodestar.CountingBloom(2, 1.0, 9),
            "`false_positive_rate` of .* got 1",
        ),
        (
            lambda: lodestar.CountingBloom(2, 0.1, 0),
            "`expected_ids` of .* got 0",
        ),
        (lambda: lodestar.MaxAge(-1), "`steps` of MaxAge must be .* got -1"),
        (lambda: lodestar.MaxRows(0), "`n` of MaxRows must be .* got 0"),
        (lambda: lodestar.MaxRows(9, "fifo"), "`policy`='fifo'"),
        (lambda: lodestar.SharedRows(0), "`n` of SharedRows must be .* got 0"),
        (
            lambda: lodestar.MinNorm(0.0),
            "`x` of MinNorm must be above 0, got 0.0",
        ),
        (
            lambda: lodestar.MinNorm("a"),
            "`x` of MinNorm must be above 0, got 'a'",
        ),
        (
            lambda: lodestar.MinCount(None),
            "`n` of MinCount must be .* got None",
        ),
        (lambda: lodestar.MinCount("2"), "`n` of MinCount must be an integer"),
        (
            lambda: lodestar.MinCount(2**63),
            f"`n` of MinCount must be .* got {2**63}",
        ),
        (
            lambda: lodestar.MaxRows(2**64),
            f"`n` of MaxRows must be .* got {2**64}",
        ),
        (
            lambda: lodestar.MaxAge(float("nan")),
            "`steps` of MaxAge must be an integer of at least 0, got nan",
        ),
        (
            lambda: lodestar.CountingBloom(2, "a", 9),
            "`false_positive_rate` of CountingBloom must be between 0 and 1, got 'a'",
        ),
        (
            lambda: table(admission=lodestar.CountingBloom(2, 0.01, 2**62)),
            f"at most 2.* counters, .* `expected_ids`={2**62}",
        ),
        (
            lambda: lodestar.MinCount(2, "batch"),
            "`unit`='batch' of MinCount is not in",
        ),
        (lambda: table(admission=3), "`admission`=3 is not None, MinCount"),
        (lambda: table(eviction=3), "`eviction` must be MaxAge, .* got 3"),
        (
            lambda: table(eviction=[lodestar.MaxAge(1), lodestar.MaxAge(2)]),
            "must not repeat a kind",
        ),
    ],
)
def test_bad_policies(make, message):
    with pytest.raises(ValueError, match=message):
        make()
