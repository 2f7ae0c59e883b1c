"""Tests of EmbeddingVariable as a table: rows, ids, export, checkpoints."""

import concurrent.futures
import copy

import numpy as np
import pytest
import tensorflow as tf

import lodestar

EXTREMES = np.array([-(2**63), -1, 0, 1, 2**63 - 1, 2**32, -(2**31)])


def table(output_dim=3, **options):
    return lodestar.EmbeddingVariable(output_dim, **{"name": "t", **options})


def test_training_adds_rows_and_reading_does_not():
    t = table()
    assert not t.lookup([1, 2]).numpy().any()
    assert int(t.size()) == 0
    rows = t.lookup([[1, 2], [2, 5]], training=True)
    assert rows.shape == (2, 2, 3)
    assert int(t.size()) == 3
    np.testing.assert_array_equal(rows[0, 1], rows[1, 0])
    np.testing.assert_array_equal(
        t.lookup([1, 2, 5, 9])[:3], rows.numpy()[[0, 0, 1], [0, 1, 1]]
    )


def test_whole_range_of_ids():
    t = table()
    rows = t.lookup(EXTREMES, training=True).numpy()
    assert len({row.tobytes() for row in rows}) == len(EXTREMES)
    assert t.export().ids.numpy().tolist() == sorted(EXTREMES.tolist())
    _, found = t.find(EXTREMES)
    assert found.numpy().all()


@pytest.mark.parametrize(
    "dtype", [np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32]
)
def test_narrow_ids_keep_their_values(dtype):
    top = np.iinfo(dtype).max
    t = table()
    t.lookup(np.array([top], dtype), training=True)
    assert t.export().ids.numpy().tolist() == [top]


def test_uint64_ids_keep_their_bits():
    t = table()
    t.lookup(np.array([2**64 - 1, 2**63], np.uint64), training=True)
    assert t.export().ids.numpy().tolist() == [-(2**63), -1]


def test_python_lists_are_int64():
    t = table()
    t.lookup([2**40, 1], training=True)
    assert t.export().ids.numpy().tolist() == [1, 2**40]
    assert t.lookup([]).shape == (0, 3)


def test_float_ids_in_a_graph_fail_when_it_runs():
    t = table()
    function = tf.function(lambda x: t.lookup(x))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="a float cannot hold"
    ):
        function(tf.constant([1.0]))


def test_first_value_depends_on_seed_salt_and_id_only():
    ids = np.arange(100)
    a, b = table(), table(num_shards=3)
    rows = a.lookup(ids, training=True).numpy()
    b.lookup(ids[50:][::-1], training=True)
    np.testing.assert_array_equal(b.lookup(ids, training=True), rows)
    for other in (table(seed=1), table(name="u"), table(seed=(0, 5))):
        difference = other.lookup(ids, training=True).numpy() - rows
        assert (difference != 0).mean() > 0.99
    same = table(name="u", seed=(0, 5)), table(name="v", seed=(0, 5))
    np.testing.assert_array_equal(
        same[0].lookup(ids, training=True), same[1].lookup(ids, training=True)
    )
    assert abs(rows).max() <= 0.05 and abs(rows.mean()) < 0.01


def test_missing():
    vector = [1.0, 2.0, 3.0]
    assert not table(default_row="zeros").lookup([7]).numpy().any()
    np.testing.assert_array_equal(
        table(default_row=vector).lookup([7]), [vector]
    )
    t = table(default_row="initial")
    before = t.lookup([7, 8]).numpy()
    assert int(t.size()) == 0
    np.testing.assert_array_equal(before, t.lookup([7, 8], training=True))
    rows, found = t.find([9])
    assert not rows.numpy().any() and not found.numpy().any()


def test_grow_count_and_frequency():
    t = table()
    t.lookup([1, 1, 2], training=True)
    assert t.frequency([1, 2, 3]).numpy().tolist() == [1, 1, 0]
    t.lookup([1], training=True)  # the same step
    t.set_step(5)
    t.lookup([1, 3], training=True, grow=False)
    assert t.frequency([1, 2, 3]).numpy().tolist() == [2, 1, 0]
    t.set_step(6)
    t.lookup([1, 4], training=True, count=False)
    assert t.frequency([1, 4]).numpy().tolist()[0] == 2
    assert int(t.size()) == 3
    assert int(t.step) == 6


def test_padding_id():
    t = table()
    rows = t.lookup([0, 4], training=True, padding_id=0).numpy()
    assert not rows[0].any() and rows[1].any()
    assert t.export().ids.numpy().tolist() == [4]
    t.lookup([-1], training=True, padding_id=0)
    assert not t.lookup([-1], padding_id=-1).numpy().any()
    ids = np.zeros(1000, np.int64)
    for training in (False, True) * 5:
        rows = t.lookup(np.full(1000, 4), training=training)
        assert rows.numpy().any()
        del rows  # leaves memory that is not zero
        rows = t.lookup(ids, training=training, padding_id=0)
        assert not rows.numpy().any()


def test_insert_or_assign_remove_clear():
    t = table(2)
    t.insert_or_assign([3, 1, 3], [[1, 1], [2, 2], [3, 3]])
    np.testing.assert_array_equal(t.lookup([1, 3]), [[2, 2], [3, 3]])
    assert int(t.remove([[3, 8], [3, 3]])) == 1
    assert int(t.size()) == 1
    t.clear()
    assert int(t.size()) == 0
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"must have shape \[1,2\]"
    ):
        t.insert_or_assign([1], [[1.0, 2.0, 3.0]])


def test_export_and_import():
    a = table(2)
    a.lookup([5, -5, 0], training=True)
    lodestar.optimizers.Adagrad().apply(
        [tf.IndexedSlices(tf.ones([1, 2]), tf.constant([5], tf.int64))],
        [a],
    )
    rows = a.export()
    assert rows.ids.numpy().tolist() == [-5, 0, 5]
    assert rows.optimizer == "adagrad"
    assert rows.optimizer_slots["accumulator"].shape == (3, 2)
    np.testing.assert_allclose(
        rows.optimizer_slots["accumulator"][:, 0], [0.1, 0.1, 1.1]
    )
    assert rows.slot_inits == pytest.approx({"accumulator": 0.1})
    b = table(2, name="b")
    b.lookup([77], training=True)
    b.load_rows(rows)
    for got, want in zip(b.export(), rows, strict=True):
        if isinstance(want, tf.Tensor):
            np.testing.assert_array_equal(got, want)
    b.lookup([78], training=True)
    b.load_rows(
        lodestar.EmbeddingRows([78, 79], [[1, 2], [3, 4]]), mode="merge"
    )
    np.testing.assert_array_equal(b.lookup([78, 79]), [[1, 2], [3, 4]])
    assert int(b.size()) == 5
    # State that a row does not bring is reset, whether it existed or not.
    before = b.inspect([77]).optimizer_slots["accumulator"]
    b.load_rows(lodestar.EmbeddingRows(rows.ids, rows.rows), mode="merge")
    got = b.inspect(rows.ids)
    np.testing.assert_array_equal(got.rows, rows.rows)
    np.testing.assert_array_equal(
        got.optimizer_slots["accumulator"], np.full((3, 2), np.float32(0.1))
    )
    np.testing.assert_array_equal(got.frequencies, [0, 0, 0])
    np.testing.assert_array_equal(
        b.inspect([77]).optimizer_slots["accumulator"], before
    )
    b.load_rows(lodestar.EmbeddingRows(rows.ids, rows.rows))
    assert b.export().optimizer == "" and int(b.size()) == 3
    assert a.export(optimizer_slots=False).optimizer_slots == {}


def test_sizes_of_keras_embedding_are_refused():
    with pytest.raises(
        TypeError, match=r"`output_dim`.*EmbeddingVariable\(output_dim=16\)"
    ):
        lodestar.EmbeddingVariable(10_000, 16)


def test_graph_with_unknown_shapes():
    t = table()

    @tf.function(input_signature=[tf.TensorSpec(None, tf.int64)])
    def lookup(ids):
        return t.lookup(ids, training=True)

    assert lookup([[1, 2]]).shape == (1, 2, 3)
    assert lookup(3).shape == (3,)
    assert int(t.size()) == 3
    known = tf.function(lambda x: t.lookup(x)).get_concrete_function(
        tf.TensorSpec([None, 4], tf.int64)
    )
    assert known.output_shapes.as_list() == [None, 4, 3]


@pytest.mark.parametrize("said", [{}, {"training": None}])
def test_training_that_is_not_said_asks_the_tape(said):
    t = table()
    t.lookup([1], **said)
    assert int(t.size()) == 0
    with tf.GradientTape():
        t.lookup([1], **said)
    assert int(t.size()) == 1
    t.trainable = False
    with tf.GradientTape():
        t.lookup([2], **said)
    assert int(t.size()) == 1
    t.trainable = True
    with tf.GradientTape():
        t.lookup([2], training=False)
    assert int(t.size()) == 1


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("combiner", [None, "sum"])
def test_a_step_without_training_argument_trains(combiner, graph):
    t = table()
    optimizer = lodestar.optimizers.SGD()

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(t.lookup([[1], [2]], combiner=combiner))
        optimizer.apply(tape.gradient(loss, [t]), [t])

    (tf.function(step) if graph else step)()
    stats = t.stats()
    assert (stats["rows"], stats["gradients_dropped"]) == (2, 0)
    first = table().lookup([1, 2], training=True)
    np.testing.assert_allclose(t.lookup([1, 2]), first - 0.01, atol=1e-7)


def test_lookups_that_only_read_are_counted():
    t = table()
    t.lookup([1, 2], training=True)
    before = t.stats()
    assert (before["read_hits"], before["read_misses"]) == (0, 0)
    t.lookup([1, 1, 0, 7], training=False, padding_id=0)
    bags = tf.ragged.constant([[1, 0, 2], [], [8, 9]], tf.int64)
    tf.function(lambda ids: t.lookup(ids, combiner="sum", padding_id=0))(bags)
    t.find([0, 2])  # in which 0 is a valid id
    stats = t.stats(reset=True)
    assert (stats["read_hits"], stats["read_misses"]) == (2 + 2 + 1, 1 + 2 + 1)
    for name in ("ids", "hits", "misses", "rows"):
        assert stats[name] == before[name], name
    after = t.stats()
    assert (after["read_hits"], after["read_misses"]) == (0, 0)


def test_reads_of_many_threads_are_counted():
    t = table()
    t.lookup(list(range(100)), training=True)
    ids = tf.range(150, dtype=tf.int64)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for call in [pool.submit(t.lookup, ids) for _ in range(40)]:
            call.result()
    stats = t.stats()
    assert (stats["read_hits"], stats["read_misses"]) == (4000, 2000)


def test_checkpoint_restores_everything_into_any_shard_count(tmp_path):
    a = table(num_shards=2, seed=3)
    a.lookup([1, 2**62], training=True)
    a.set_step(41)
    path = tf.train.Checkpoint(table=a).save(str(tmp_path / "c"))
    b = table(num_shards=7, name="other")
    b.lookup([9], training=True)
    tf.train.Checkpoint(table=b).restore(path).assert_consumed()
    assert int(b.step) == 41
    for got, want in zip(b.export()[:2], a.export()[:2], strict=True):
        np.testing.assert_array_equal(got, want)
    # Seed and salt are restored, so new rows agree as well.
    np.testing.assert_array_equal(
        a.lookup([5], training=True), b.lookup([5], training=True)
    )


def test_checkpoint_of_another_dim_is_refused(tmp_path):
    path = tf.train.Checkpoint(t=table(3)).write(str(tmp_path / "c"))
    t = table(4)
    t.lookup([1], training=True)
    before = t.lookup([1]).numpy()
    with pytest.raises(
        ValueError,
        match="saved table has dim 3, but .*dim=4 dtype=float32> needs dim 4",
    ):
        tf.train.Checkpoint(t=t).restore(path)
    np.testing.assert_array_equal(t.lookup([1]), before)


def test_saved_module_reads_the_table_and_stays_apart(tmp_path):
    module = tf.Module()
    module.table = table(default_row=[7.0, 8.0, 9.0])
    want = module.table.lookup([1, 2], training=True).numpy()
    module.lookup = tf.function(
        lambda ids: module.table.lookup(ids),
        input_signature=[tf.TensorSpec([None], tf.int64)],
    )
    module.assign = tf.function(
        module.table.insert_or_assign,
        input_signature=[
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None, 3]),
        ],
    )
    tf.saved_model.save(module, str(tmp_path))
    first = tf.saved_model.load(str(tmp_path))
    second = tf.saved_model.load(str(tmp_path))
    ids = tf.constant([1, 2, 3], tf.int64)
    for loaded in (first, second):
        got = loaded.lookup(ids).numpy()
        np.testing.assert_array_equal(got[:2], want)
        np.testing.assert_array_equal(got[2], [7, 8, 9])
    module.table.clear()
    second.assign(ids, tf.zeros([3, 3]))
    np.testing.assert_array_equal(first.lookup(ids)[:2], want)
    assert not second.lookup(ids).numpy().any()
    assert int(module.table.size()) == 0


def test_number_of_shards_from_the_environment(monkeypatch):
    monkeypatch.setenv("LODESTAR_NUM_SHARDS", "3")
    t, given = table(), table(num_shards=5)
    layer = lodestar.layers.DynamicEmbedding(2)
    monkeypatch.setenv("LODESTAR_NUM_SHARDS", "4")
    copied = copy.deepcopy(t)
    again = lodestar.EmbeddingVariable.from_config(t.get_config())
    monkeypatch.delenv("LODESTAR_NUM_SHARDS")
    tables = [t, given, layer.table, copied, again, table()]
    assert [x.stats()["shards"] for x in tables] == [3, 5, 3, 3, 4, 16]
    for bad in ("", "0", "-1", "2.5", "two", " 3", "4097", "9" * 5000):
        monkeypatch.setenv("LODESTAR_NUM_SHARDS", bad)
        with pytest.raises(
            ValueError, match="LODESTAR_NUM_SHARDS='.* not a po"
        ):
            table()
        assert table(num_shards=2).stats()["shards"] == 2
