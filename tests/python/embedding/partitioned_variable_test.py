"""EmbeddingVariable(devices=...): the same table, partitioned over devices."""

import copy
import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from handles import weak
from own_optimizers import Own
from table_cases import (  # noqa: F401
    admission,
    test_a_function_of_unknown_dimensions,
    test_admission,
    test_admission_in_bags,
    test_checkpoints_have_waiting_ids,
    test_evicted_rows_are_returned,
    test_lookups_are_those_of_the_cpu,
    test_rows_go_in_and_out,
    test_training,
)

import lodestar
from lodestar.embedding import devices as devices_lib
from lodestar.embedding import table_store
from lodestar.layers.cloning import serialize_table
from lodestar.ops import id_hash

MANY = np.array([3, -4, 2**62, 0, 3, 77, -(2**63), 3, 12], np.int64)


def places(count):
    return None if count is None else [f"/CPU:{i}" for i in range(count)]


@pytest.fixture
def devices():
    return places(2)


def table(count, dim=4, **options):
    options = {"seed": (3, 5), "name": "t", **options}
    return lodestar.EmbeddingVariable(dim, devices=places(count), **options)


def both(count, **options):
    """Returns a table without devices, and one with."""
    return table(None, **options), table(count, **options)


def contents(t):
    exported = t.export()
    return {
        "ids": exported.ids.numpy(),
        "rows": exported.rows.numpy(),
        "frequencies": exported.frequencies.numpy(),
        "last_seen": exported.last_seen.numpy(),
        "optimizer": exported.optimizer,
        "slot_inits": exported.slot_inits,
        **{k: v.numpy() for k, v in exported.optimizer_slots.items()},
    }


def assert_same(one, other):
    a, b = contents(one), contents(other)
    assert list(a) == list(b)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], name)
    assert int(one.step) == int(other.step)


def wrap(inner, **options):
    return lodestar.optimizers.wrap(inner, **options)


def ragged_batches(rng, steps, ids=40):
    for _ in range(steps):
        lengths = rng.integers(0, 5, 6)
        values = tf.constant(rng.integers(-ids, ids, lengths.sum()), tf.int64)
        yield tf.RaggedTensor.from_row_lengths(values, lengths)


@pytest.mark.parametrize("missing", ["zeros", "initial", [1.0, 2.0, 3.0, 4.0]])
@pytest.mark.parametrize("count", [2])
def test_ids_without_a_row_read_the_same(missing, count):
    one, several = both(
        count, default_row=missing, embeddings_initializer="normal"
    )
    for t in (one, several):
        t.insert_or_assign([3, 77], [[1, 2, 3, 4], [5, 6, 7, 8]])
    np.testing.assert_array_equal(
        one.lookup(MANY, padding_id=0), several.lookup(MANY, padding_id=0)
    )
    for t in (one, several):
        rows, found = t.find(tf.ragged.constant([[3, 4], []], dtype=tf.int64))
        assert found.to_list() == [[True, False], []]
        np.testing.assert_array_equal(rows.values, [[1, 2, 3, 4], [0] * 4])


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", "max", "first"])
@pytest.mark.parametrize("count", [1, 3])
def test_bags_and_their_gradients_are_the_same(combiner, count, rng):
    one, several = both(count)
    for ids in ragged_batches(rng, 3):
        results = []
        for t in (one, several):
            with tf.GradientTape() as tape:
                rows = t.lookup(
                    ids, combiner=combiner, padding_id=1, default_id=-5
                )
                loss = tf.reduce_sum(rows * rows)
            gradient = tape.gradient(loss, t)
            results.append((rows, gradient.values, gradient.indices))
        for a, b in zip(*results, strict=True):
            np.testing.assert_array_equal(a, b)
    assert_same(one, several)


def test_weights_and_sparse_ids_are_the_same():
    one, several = both(2)
    ids = tf.sparse.from_dense([[5, 0, 7], [0, 0, 0], [5, 5, 1]])
    weights = tf.sparse.map_values(lambda x: tf.cast(x, tf.float32) / 2, ids)
    results = []
    for t in (one, several):
        with tf.GradientTape() as tape:
            tape.watch(weights.values)
            rows = t.lookup(
                ids, training=True, weights=weights, combiner="mean"
            )
            loss = tf.reduce_sum(rows**2)
        gradient, of_weights = tape.gradient(loss, [t, weights.values])
        results.append((rows, gradient.values, gradient.indices, of_weights))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, 1e-6)


def test_distinct_ids_go_to_the_parts():
    several = table(3)
    several.lookup(tf.constant([[1, 1, 1, 2]]), training=True, padding_id=2)
    stats = several.stats()
    assert stats["ids"] == stats["unique_ids"] == 1 and stats["padding"] == 0


INNERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "adam": lambda: keras.optimizers.Adam(0.1),
    "clipnorm": lambda: keras.optimizers.Adam(0.1, clipnorm=0.5),
    "clipvalue": lambda: keras.optimizers.Adam(0.1, clipvalue=0.1),
    "global": lambda: keras.optimizers.Adam(0.1, global_clipnorm=0.5),
    "decay": lambda: keras.optimizers.AdamW(0.1, weight_decay=0.1),
    "nadam": lambda: keras.optimizers.Nadam(0.1),
    "ftrl": lambda: keras.optimizers.Ftrl(0.1),
    "accumulation": lambda: keras.optimizers.Adam(
        0.1, gradient_accumulation_steps=2
    ),
    "replay": lambda: Own(0.1),
}


@pytest.mark.parametrize(
    "inner, graph",
    [(name, True) for name in INNERS] + [("adagrad", False), ("replay", False)],
)
def test_updates_are_the_same(inner, graph, rng):
    tables = both(3)
    steps = []
    for t in tables:
        dense = tf.Variable(tf.ones([4]))
        optimizer = wrap(INNERS[inner]())
        optimizer.build([t, dense])

        def step(ids, t=t, dense=dense, optimizer=optimizer):
            with tf.GradientTape() as tape:
                # Twice, so that an id has several slices.
                rows = t.lookup(ids, combiner="sum") + t.lookup(
                    ids + 1, combiner="mean"
                )
                loss = tf.reduce_sum((rows @ dense[:, None] - 1) ** 2)
            variables = [t, dense]
            optimizer.apply(tape.gradient(loss, variables), variables)
            return loss

        if graph:
            spec = tf.RaggedTensorSpec([None, None], tf.int64)
            step = tf.function(step, input_signature=[spec])
        steps.append(step)
    for ids in ragged_batches(rng, 4):
        losses = [step(ids) for step in steps]
        np.testing.assert_array_equal(*losses)
    steps = [int(part.call(step_of)) for part in tables[1]._parts]
    assert steps == [int(tables[0].step)] * 3
    assert_same(*tables)


def step_of(handle):
    return lodestar._library.gen_ops.lodestar_embedding_step(handle)


def test_a_step_without_ids_of_a_part_advances_it():
    several = table(3)
    ids = tf.constant([7], tf.int64)
    several.lookup(ids, training=True)
    gradient = tf.IndexedSlices(tf.ones([1, 4]), ids, tf.constant([-1, 4]))
    wrap("adam").apply([gradient], [several])
    assert [int(part.call(step_of)) for part in several._parts] == [1, 1, 1]
    # All parts have the optimizer's slots, which an export needs.
    assert set(several.export().optimizer_slots) == {"momentum", "velocity"}
    assert set(several.inspect([7, 1]).optimizer_slots) == {
        "momentum",
        "velocity",
    }


@pytest.mark.parametrize("graph", [False, True])
def test_nothing_is_written_of_a_gradient_that_is_not_finite(graph):
    several = table(3)
    several.lookup(MANY, training=True)
    before = contents(several)
    values = np.ones((len(MANY), 4), np.float32)
    values[3, 2] = np.nan
    optimizer = wrap("sgd")
    optimizer.build([several])

    def step():
        gradient = tf.IndexedSlices(
            tf.constant(values), tf.constant(MANY), tf.constant([-1, 4])
        )
        optimizer.apply([gradient], [several])

    with pytest.raises(tf.errors.InvalidArgumentError, match="table 't'"):
        (tf.function(step) if graph else step)()
    after = contents(several)
    for name in before:
        np.testing.assert_array_equal(before[name], after[name], name)
    skipping = wrap("sgd", nonfinite="skip")
    optimizer = skipping
    skipping.build([several])
    step()
    changed = (contents(several)["rows"] != before["rows"]).any(1)
    np.testing.assert_array_equal(before["ids"][~changed], [MANY[3]])


def test_another_optimizer_is_refused_before_any_part_is_written():
    several = table(2)
    several.lookup(MANY, training=True)
    gradient = tf.IndexedSlices(
        tf.ones([len(MANY), 4]), tf.constant(MANY), tf.constant([-1, 4])
    )
    former = wrap("adam")
    former.apply([gradient], [several])
    with pytest.warns(UserWarning, match=r"fresh slots .*\(adam\)"):
        wrap("adagrad").apply([gradient], [several])
    before = contents(several)["rows"]
    with pytest.raises(tf.errors.FailedPreconditionError, match="adam"):
        former.apply([gradient], [several])
    np.testing.assert_array_equal(before, contents(several)["rows"])


def test_what_a_lookup_admits_is_the_same(rng):
    one, several = both(3, admission=lodestar.MinCount(2))
    for step in range(4):
        ids = tf.constant(rng.integers(0, 30, 20), tf.int64)
        for t in (one, several):
            t.set_step(step)
            t.lookup(ids, training=True)
            t.lookup([99], training=True, admit=True)
            t.lookup([100 + step], training=True, grow=False)
    for t in (one, several):
        t.lookup([500, 501], training=True, admit=False)
    assert_same(one, several)
    for t in (one, several):
        t.lookup([99, 99, 1234], training=False)
    a, b = one.stats(), several.stats()
    for name in ("rows", "pending", "admitted", "misses", "hits", "inserts"):
        assert a[name] == b[name], name
    assert (a["read_hits"], a["read_misses"]) == (2, 1)
    # Each part gets deduplicated ids.
    assert (b["read_hits"], b["read_misses"]) == (1, 1)


def test_stats_are_sums():
    several = table(3, eviction=lodestar.MaxRows(100))
    several.lookup(tf.range(30), training=True)
    several.lookup(tf.range(20, 40))
    several.remove([1, 2, 500])
    stats = several.stats(reset=True)
    assert stats["rows"] == 28 == sum(stats["per_shard"]["rows"])
    assert stats["max_rows"] == 100
    assert stats["inserts"] == stats["misses"] == 30
    assert stats["removed"] == 2
    assert stats["shards"] == len(stats["per_shard"]["bytes"])
    assert stats["bytes"] == sum(stats["per_part"]["bytes"])
    assert sum(stats["per_part"]["rows"]) == 28
    shard = several.inspect([7]).shards.numpy()[0]
    assert stats["per_shard"]["rows"][shard] > 0
    assert stats["per_part"]["devices"] == list(several.devices)
    assert stats["load"] == 28 / stats["capacity"]
    assert several.stats()["inserts"] == 0


def test_memory_of_removed_rows_is_freed():
    several = table(2)
    several.lookup(tf.range(5000), training=True)
    several.remove(tf.range(4990))
    assert int(several.compact()) > 0
    with pytest.raises(tf.errors.InvalidArgumentError):
        several.insert_or_assign([1, 2], [[1.0] * 4])


def test_a_cap_is_shared_out():
    several = table(3, eviction=lodestar.MaxRows(10))
    shares = [s["max_rows"] for s in stats_of_parts(several)]
    assert shares == [4, 3, 3]
    for step in range(5):
        several.set_step(step)
        several.lookup(tf.range(step * 7, step * 7 + 7), training=True)
        assert int(several.size()) <= 10
    assert several.stats()["evicted"] > 0
    for n in (7, 3):
        several.set_step(100 + n)
        several.evict(lodestar.MaxRows(n))
        assert int(several.size()) <= n
    with pytest.raises(ValueError, match=r"MaxRows\(n=2.*number of parts, 3"):
        several.evict(lodestar.MaxRows(2))
    with pytest.raises(ValueError, match=r"MaxRows\(n=2.*number of parts, 3"):
        table(3, eviction=lodestar.MaxRows(2))


def stats_of_parts(several):
    return [
        lodestar.embedding.stats.by_name(
            None, [(values.numpy(), shards.numpy())]
        )
        for values, shards in (
            part.call(lodestar._library.gen_ops.lodestar_embedding_stats)
            for part in several._parts
        )
    ]


def trained(count, steps=3, **options):
    t = table(count, **options)
    optimizer = wrap(keras.optimizers.Adam(0.1))
    for ids in ragged_batches(np.random.default_rng(5), steps):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(t.lookup(ids, combiner="sum") ** 2)
        optimizer.apply([tape.gradient(loss, t)], [t])
    return t


@pytest.mark.parametrize(
    "saved, loaded", [(None, 2), (2, None), (2, 3), (3, 1), (2, 2)]
)
def test_tables_load_on_any_number_of_devices(saved, loaded, tmp_path):
    one, other = trained(saved), table(loaded)
    path = tf.train.Checkpoint(t=one).write(str(tmp_path / "c"))
    tf.train.Checkpoint(t=other).read(path).assert_consumed()
    assert_same(one, other)
    store = {}
    table_store.save_table(one, store)
    third = table(loaded)
    table_store.load_table(third, store)
    assert_same(one, third)
    third.load_rows(one.export())
    assert_same(one, third)
    third.load_rows(one.export(), "merge")
    third.clear()
    third.load_rows(one.export(optimizer_slots=False))
    assert int(third.size()) == int(one.size())


def test_a_full_table_loads_where_shares_are_smaller():
    full = table(None, eviction=lodestar.MaxRows(40))
    for step in range(40):
        full.set_step(step)
        full.lookup([step * 3], training=True)
    several = table(3, eviction=lodestar.MaxRows(40))
    with pytest.warns(UserWarning, match="leaves out .* of 40 rows"):
        several._import_all(full._export_all())
    kept = contents(several)["ids"]
    assert 30 < len(kept) < 40
    for i, part in enumerate(several._parts):
        assert int(part.call(size_of)) <= [14, 13, 13][i]
    # The oldest rows of each part are evicted.
    lost = sorted(set(range(0, 120, 3)) - set(kept.tolist()))
    owners = id_hash.part_of_id(tf.range(0, 120, 3, tf.int64), 3)
    owners = dict(zip(range(0, 120, 3), owners.numpy().tolist()))
    for id_ in lost:
        assert all(id_ < k for k in kept if owners[k] == owners[id_])
    # Exact on a table without devices.
    one = table(None, eviction=lodestar.MaxRows(40))
    one._import_all(several._export_all())
    assert_same(several, one)
    too_many = table(None)
    too_many.lookup(tf.range(41), training=True)
    with pytest.raises(tf.errors.FailedPreconditionError, match="rows"):
        several.load_rows(too_many.export())


def size_of(handle):
    return lodestar._library.gen_ops.lodestar_embedding_size(handle)


def test_a_copy_has_its_own_parts():
    several = trained(2)
    copied = copy.deepcopy(several)
    assert isinstance(copied, lodestar.EmbeddingVariable)
    assert copied.devices == several.devices
    for a, b in zip(copied._parts, several._parts, strict=True):
        assert a.resource_handle.device == b.resource_handle.device
    assert_same(several, copied)
    copied.clear()
    assert int(several.size()) > 0 and int(copied.size()) == 0
    shallow = copy.copy(several)
    assert shallow._parts is several._parts
    assert shallow is several


def test_parts_go_with_the_table():
    several = table(2)
    several.lookup(MANY, training=True)
    handles = [weak(part.resource_handle) for part in several._parts]
    reference = weakref.ref(several._parts[0])
    del several
    gc.collect()
    assert reference() is None
    for handle in handles:
        with pytest.raises(tf.errors.NotFoundError):
            size_of(handle)


def test_config_names_the_devices():
    several = table(2)
    config = serialize_table(several)
    again = keras.saving.deserialize_keras_object(config)
    assert isinstance(again, lodestar.EmbeddingVariable)
    assert (
        again.devices == several.devices == ("/device:CPU:0", "/device:CPU:1")
    )
    assert again.get_config() == several.get_config()
    assert repr(several) == (
        "<EmbeddingVariable 't' output_dim=4 dtype=float32 devices=2>"
    )
    assert table(None).get_config()["devices"] is None
    assert table(None).devices is None


def test_valid_devices():
    with pytest.raises(ValueError, match="`devices`='/CPU:0' is not a list"):
        lodestar.EmbeddingVariable(2, devices="/CPU:0")
    with pytest.raises(ValueError, match="`devices` must have at least one"):
        lodestar.EmbeddingVariable(2, devices=[])
    with pytest.raises(
        ValueError, match=r"devices\[1\]`=3 is not a device name"
    ):
        lodestar.EmbeddingVariable(2, devices=["/CPU:0", 3])
    with pytest.raises(ValueError, match="does not exist, only .*CPU:0"):
        lodestar.EmbeddingVariable(2, devices=["/job:ps/task:7"])
    with pytest.raises(ValueError, match="'/GPU:0' does not exist, only"):
        lodestar.EmbeddingVariable(2, devices=["/GPU:0"])


def test_a_subclass_has_devices():
    class Mine(lodestar.EmbeddingVariable):
        pass

    assert Mine(2, devices=["/CPU:0"]).devices == ("/device:CPU:0",)


def test_tables_unsupported_on_devices():
    with pytest.raises(NotImplementedError, match="Use default_row='initial'"):
        table(2, default_row=lodestar.SharedRows(2))


def test_no_single_handle_has_the_rows():
    with pytest.raises(NotImplementedError, match="no single handle has its"):
        _ = table(2).resource_handle


def test_a_saved_model_has_all_parts(tmp_path):
    several = table(2, eviction=lodestar.MaxRows(50))
    ids = tf.range(60, dtype=tf.int64)
    several.lookup(ids[:40], training=True)
    module = tf.Module()
    module.tables = [several, table(2)]  # the second is empty
    module.f = tf.function(
        lambda ids: [t.lookup(ids) for t in module.tables],
        input_signature=[tf.TensorSpec([None], tf.int64)],
    )
    tf.saved_model.save(module, str(tmp_path / "m"))
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    for rows, t in zip(loaded.f(ids), module.tables, strict=True):
        np.testing.assert_array_equal(rows, t.lookup(ids))


def test_another_version_is_refused_by_name():
    with pytest.raises(
        tf.errors.FailedPreconditionError,
        match="table 't' needs /job:ps/task:1, which runs lodestar 0.9, "
        "but this process runs lodestar 1.0",
    ):
        devices_lib.check_version("t", "/job:ps/task:1", "0.9", "1.0")


def test_an_error_names_where_it_was_done_before():
    several = table(2)
    ids = tf.constant([1, 2, 3, 4, 5, 5], tf.int64)
    rows = lodestar.EmbeddingRows(ids, tf.ones([6, 4]))
    owner = int(id_hash.part_of_id(tf.constant(5, tf.int64), 2))
    with pytest.raises(tf.errors.InvalidArgumentError, match="5") as info:
        several.load_rows(rows)
    named = "was done on /device:CPU:0 before" in info.value.message
    assert named == (owner == 1)
