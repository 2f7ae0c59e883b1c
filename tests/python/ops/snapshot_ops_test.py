"""Ops of table snapshots: their results and errors."""

import gc
import os
import threading

import numpy as np
import pytest
import tensorflow as tf
from random_arguments import call, content, default_dtype, op_def
from snapshot_files import flipped, random_input, random_text

import lodestar
from lodestar._library import gen_ops
from lodestar.ops import snapshot_ops

TABLES = ["one", "two"]


@pytest.fixture
def tables():
    """Returns two tables of different dimensions, trained for two steps."""
    made = [
        lodestar.EmbeddingVariable(
            dim, embeddings_initializer="normal", name=name
        )
        for dim, name in zip((4, 3), TABLES, strict=True)
    ]
    for t in made:
        train(t, [1, 2, 3])
        train(t, [3, 4])
    return made


def train(t, ids):
    """Adds rows of `ids` and takes an Adagrad step with them."""
    t.lookup(ids, training=True)
    gen_ops.lodestar_embedding_apply(
        t.resource_handle,
        ids,
        tf.fill([len(ids), t.output_dim], 0.5),
        [0.1, 0.0, 1e-7],
        -1,
        optimizer="adagrad",
        slot_inits=[0.1],
    )


def fresh(tables):
    """Returns empty tables for the content of `tables`."""
    return [
        lodestar.EmbeddingVariable(
            t.output_dim, embeddings_initializer="normal", num_shards=3
        )
        for t in tables
    ]


def handles(tables):
    return [t.resource_handle for t in tables]


def references(tables):
    """Returns the inputs of the ops on several tables."""
    return [snapshot_ops.table(handle) for handle in handles(tables)]


def listed(paths):
    """Returns files that no manifest lists."""
    return [snapshot_ops.ListedFile(path) for path in paths]


def contents(tables):
    return [content(t) for t in tables]


def save(tables, folder, base, bases=None):
    """Writes a snapshot; returns the paths and the descriptions of the files."""
    folder.mkdir()
    snapshot, begun = snapshot_ops.begin(
        handles(tables), bases or [""] * len(tables)
    )
    paths = [str(folder / str(t)) for t in range(len(tables))]
    written = snapshot_ops.write(snapshot, paths)
    snapshot_ops.end(snapshot, base)
    return paths, begun, written


def restore(tables, chains, base, **options):
    """Loads and installs tables of one part; returns their rows."""
    loaded, rows = snapshot_ops.load(
        tables,
        [[snapshot_ops.SavedPart(listed(chain))] for chain in chains],
        [(0, 1)] * len(tables),
        [base] * len(tables),
        **options,
    )
    snapshot_ops.install(loaded)
    return rows


def test_a_snapshot_is_written_and_restored(tables, tmp_path):
    before = contents(tables)
    paths, begun, written = save(tables, tmp_path / "v1", "root/1")
    assert [table.whole for table in begun] == [True, True]
    assert [table.step for table in begun] == [2, 2]
    assert [table.dim for table in begun] == [4, 3]
    assert [table.dtype for table in begun] == ["float32"] * 2
    assert [table.optimizer for table in begun] == ["adagrad"] * 2
    assert [table.slot_names for table in begun] == [["accumulator"]] * 2
    assert [(table.rows, table.removed) for table in written] == [(4, 0)] * 2
    for path, table in zip(paths, written, strict=True):
        assert snapshot_ops.file_crc(path) == (table.bytes, table.crc32c)
        assert snapshot_ops.verify_file(path).rows == 4
    assert [snapshot_ops.base(h) for h in handles(tables)] == ["root/1"] * 2
    others = fresh(tables)
    rows = restore(handles(others), [[path] for path in paths], "root/1")
    assert rows == [4, 4]
    assert contents(others) == before == contents(tables)
    assert [snapshot_ops.base(h) for h in handles(others)] == ["root/1"] * 2


def test_deltas_follow(tables, tmp_path):
    first, _, _ = save(tables, tmp_path / "v1", "root/1")
    others = fresh(tables)
    restore(handles(others), [[path] for path in first], "root/1")
    train(tables[0], [4, 5])
    tables[0].remove([1])
    second, begun, written = save(
        tables, tmp_path / "v2", "root/2", ["root/1"] * 2
    )
    assert [table.whole for table in begun] == [False, False]
    assert [(table.rows, table.removed) for table in written] == [
        (2, 1),
        (0, 0),
    ]
    taken = snapshot_ops.apply(
        handles(others), [listed([path]) for path in second], "root/2"
    )
    assert taken == [(2, 1), (0, 0)]
    assert contents(others) == contents(tables)
    assert [snapshot_ops.base(h) for h in handles(others)] == ["root/2"] * 2
    chains = [list(chain) for chain in zip(first, second, strict=True)]
    restored = fresh(tables)
    assert restore(handles(restored), chains, "") == [4, 4]
    assert contents(restored) == contents(tables)
    assert [snapshot_ops.base(h) for h in handles(restored)] == ["", ""]
    # Training continues equally in all of them.
    for group in (tables, others, restored):
        train(group[0], [5, 6])
    assert contents(others) == contents(restored) == contents(tables)


def test_a_chain_is_compacted_into_one_file(tables, tmp_path):
    first, _, _ = save(tables, tmp_path / "v1", "root/1")
    train(tables[0], [4, 5])
    tables[0].remove([1])
    second, _, _ = save(tables, tmp_path / "v2", "root/2", ["root/1"] * 2)
    compacted = str(tmp_path / "compacted")
    made = snapshot_ops.compact(listed([first[0], second[0]]), compacted)
    assert made.rows == 4
    assert snapshot_ops.file_crc(compacted) == (made.bytes, made.crc32c)
    others = fresh(tables[:1])
    restore(handles(others), [[compacted]], "root/2")
    assert contents(others) == contents(tables[:1])
    with pytest.raises(tf.errors.AlreadyExistsError):
        snapshot_ops.compact(listed([first[0], second[0]]), compacted)
    with pytest.raises(tf.errors.InvalidArgumentError):
        snapshot_ops.compact(listed([second[0]]), str(tmp_path / "deltas"))


def test_another_base_requires_a_full_table(tables, tmp_path):
    save(tables, tmp_path / "v1", "root/1")
    _, begun, written = save(
        tables, tmp_path / "v2", "root/2", ["root/1", "root/0"]
    )
    assert [table.whole for table in begun] == [False, True]
    assert [table.rows for table in written] == [0, 4]


def test_later_changes_are_not_in_the_snapshot(tables, tmp_path):
    before = contents(tables)
    snapshot, _ = snapshot_ops.begin(handles(tables), ["", ""])
    train(tables[0], [1, 2, 9])
    tables[1].remove([1, 2])
    paths = [str(tmp_path / name) for name in TABLES]
    snapshot_ops.write(snapshot, paths)
    snapshot_ops.end(snapshot, "root/1")
    others = fresh(tables)
    restore(handles(others), [[path] for path in paths], "root/1")
    assert contents(others) == before


def test_a_snapshot_of_no_tables(tmp_path):
    snapshot, begun = snapshot_ops.begin([], [])
    assert begun == []
    assert snapshot_ops.write(snapshot, []) == []
    snapshot_ops.end(snapshot, "root/1")
    assert restore([], [], "root/1") == []
    assert snapshot_ops.apply([], [], "root/1") == []


def test_one_snapshot_of_a_table_at_a_time(tables, tmp_path):
    snapshot, _ = snapshot_ops.begin(handles(tables[:1]), [""])
    with pytest.raises(tf.errors.FailedPreconditionError):
        snapshot_ops.begin(handles(tables), ["", ""])
    # No update of the other table has begun either.
    other, _ = snapshot_ops.begin(handles(tables[1:]), [""])
    snapshot_ops.end(snapshot, "")
    snapshot_ops.end(other, "")
    save(tables, tmp_path / "v1", "root/1")


def test_a_snapshot_that_is_dropped_has_not_been(tables, tmp_path):
    save(tables, tmp_path / "v1", "root/1")
    train(tables[0], [1])
    snapshot, _ = snapshot_ops.begin(handles(tables), ["root/1"] * 2)
    del snapshot
    gc.collect()
    _, _, written = save(tables, tmp_path / "v2", "root/2", ["root/1"] * 2)
    assert [table.rows for table in written] == [1, 0]


def test_steps_of_a_snapshot_must_be_in_order(tables, tmp_path):
    snapshot, _ = snapshot_ops.begin(handles(tables), ["", ""])
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="the snapshot is not written"
    ):
        snapshot_ops.end(snapshot, "root/1")
    snapshot_ops.write(snapshot, [str(tmp_path / name) for name in TABLES])
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="is already written"
    ):
        snapshot_ops.write(snapshot, [str(tmp_path / "a"), str(tmp_path / "b")])
    assert not (tmp_path / "a").exists()
    snapshot_ops.end(snapshot, "root/1")
    for call_again in (
        lambda: snapshot_ops.end(snapshot, "root/1"),
        lambda: snapshot_ops.end(snapshot, ""),
        lambda: snapshot_ops.write(snapshot, [str(tmp_path / "a")] * 2),
    ):
        with pytest.raises(
            tf.errors.FailedPreconditionError, match="the snapshot has ended"
        ):
            call_again()


def test_a_snapshot_whose_file_fails_can_only_be_aborted(tables, tmp_path):
    snapshot, _ = snapshot_ops.begin(handles(tables), ["", ""])
    good = str(tmp_path / "good")
    missing = str(tmp_path / "no" / "folder")
    with pytest.raises(tf.errors.NotFoundError) as raised:
        snapshot_ops.write(snapshot, [good, missing])
    assert f"cannot create '{missing}'" in raised.value.message
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="writing it has failed"
    ):
        snapshot_ops.end(snapshot, "root/1")
    snapshot_ops.end(snapshot, "")
    assert [snapshot_ops.base(h) for h in handles(tables)] == ["", ""]
    save(tables, tmp_path / "v1", "root/1")


@pytest.mark.parametrize("other", [tf.constant(1), tf.constant("x")])
def test_no_other_tensor_is_a_snapshot(other, tables):
    variant = tf.raw_ops.TensorListFromTensor(
        tensor=tf.reshape(other, [1]), element_shape=tf.constant([], tf.int32)
    )
    for call_with in (
        lambda: snapshot_ops.write(variant, []),
        lambda: snapshot_ops.end(variant, ""),
    ):
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match="must be an output of SnapshotBegin",
        ):
            call_with()
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="must be an output of SnapshotLoad",
    ):
        snapshot_ops.install(variant)


def test_a_failed_restore_changes_no_table(tables, tmp_path):
    paths, _, _ = save(tables, tmp_path / "v1", "root/1")
    others = fresh(tables)
    for t in others:
        t.lookup([7], training=True)
    before = contents(others)
    flipped(paths[1], 100)
    with pytest.raises(tf.errors.DataLossError) as raised:
        restore(handles(others), [[p] for p in paths], "root/1")
    assert f"'{paths[1]}', byte " in raised.value.message
    assert contents(others) == before
    assert [snapshot_ops.base(h) for h in handles(others)] == ["", ""]


def test_a_failed_delta_changes_no_table(tables, tmp_path):
    first, _, _ = save(tables, tmp_path / "v1", "root/1")
    others = fresh(tables)
    restore(handles(others), [[path] for path in first], "root/1")
    before = contents(others)
    for t in tables:
        train(t, [1, 10])
    second, _, _ = save(tables, tmp_path / "v2", "root/2", ["root/1"] * 2)
    flipped(second[1], 100)
    with pytest.raises(tf.errors.DataLossError) as raised:
        snapshot_ops.apply(
            handles(others), [listed([path]) for path in second], "root/2"
        )
    assert f"'{second[1]}', byte " in raised.value.message
    assert contents(others) == before
    assert [snapshot_ops.base(h) for h in handles(others)] == ["root/1"] * 2


@pytest.mark.parametrize("field", snapshot_ops.Listed._fields)
def test_files_that_are_not_as_listed_change_nothing(field, tables, tmp_path):
    first, _, written = save(tables, tmp_path / "v1", "root/1")
    others = fresh(tables)
    restore(handles(others), [[path] for path in first], "root/1")
    before = contents(others)
    for t in tables:
        train(t, [1, 10])
    second, _, of_delta = save(
        tables, tmp_path / "v2", "root/2", ["root/1"] * 2
    )

    def as_listed(path, file, **changes):
        right = snapshot_ops.Listed(file.crc32c, file.rows, file.removed)
        return snapshot_ops.ListedFile(path, right._replace(**changes))

    def changed(path, file):
        return as_listed(path, file, **{field: getattr(file, field) + 1})

    whole, delta = (first[1], written[1]), (second[1], of_delta[1])
    out = str(tmp_path / "out")
    for call_with in (
        lambda: snapshot_ops.load(
            handles(others[1:]),
            [[snapshot_ops.SavedPart([changed(*whole)])]],
            [(0, 1)],
            [""],
        ),
        lambda: snapshot_ops.apply(
            handles(others[1:]), [[changed(*delta)]], "root/2"
        ),
        lambda: snapshot_ops.compact([as_listed(*whole), changed(*delta)], out),
    ):
        with pytest.raises(tf.errors.DataLossError, match="in its manifest"):
            call_with()
    assert contents(others) == before
    os.unlink(out)
    snapshot_ops.compact([as_listed(*whole), as_listed(*delta)], out)


def load(tables, saved, parts, base=""):
    """Calls `snapshot_ops.load` with parts and files that any table accepts."""
    bases = [base] * len(tables)
    return snapshot_ops.load(handles(tables), saved, parts, bases)


def test_loaded_rows_appear_when_installed(tables, tmp_path):
    paths, _, _ = save(tables, tmp_path / "v1", "root/1")
    others = fresh(tables)
    before = contents(others)
    saved = [[snapshot_ops.SavedPart(listed([path]))] for path in paths]
    loaded, rows = load(others, saved, [(0, 1)] * 2, "root/1")
    assert rows == [4, 4]
    assert contents(others) == before
    assert [snapshot_ops.base(h) for h in handles(others)] == ["", ""]
    snapshot_ops.install(loaded)
    assert contents(others) == contents(tables)
    assert [snapshot_ops.base(h) for h in handles(others)] == ["root/1"] * 2
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="are already installed"
    ):
        snapshot_ops.install(loaded)


def test_dropped_loads_have_no_effect(tables, tmp_path):
    paths, _, _ = save(tables, tmp_path / "v1", "root/1")
    others = fresh(tables)
    before = contents(others)
    load(
        others,
        [[snapshot_ops.SavedPart(listed([p]))] for p in paths],
        [(0, 1)] * 2,
    )
    gc.collect()
    assert contents(others) == before


def test_a_table_is_read_into_parts_and_back(tables, tmp_path):
    t = tables[0]
    t.insert_or_assign(range(100), np.ones((100, 4)))
    first, _, _ = save([t], tmp_path / "v1", "root/1")
    t.remove(range(10))
    t.insert_or_assign(range(50, 120), np.full((70, 4), 2.0))
    second, _, _ = save([t], tmp_path / "v2", "root/2", ["root/1"])
    whole = [[snapshot_ops.SavedPart(listed([*first, *second]))]]
    parts = [fresh([t])[0] for _ in range(3)]
    loaded, rows = load(parts, whole * 3, [(part, 3) for part in range(3)])
    snapshot_ops.install(loaded)
    assert sum(rows) == 110
    assert rows == [int(part.size()) for part in parts]
    assert min(rows) > 0
    assert sorted(
        id_ for part in parts for id_ in part.export().ids.numpy().tolist()
    ) == list(range(10, 120))
    paths, _, _ = save(parts, tmp_path / "parts", "root/3")
    saved = [
        [
            snapshot_ops.SavedPart(listed([path]), i, 3)
            for i, path in enumerate(paths)
        ]
    ]
    others = fresh([t])
    loaded, rows = load(others, saved, [(0, 1)])
    assert rows == [110]
    snapshot_ops.install(loaded)
    assert contents(others) == contents([t])
    for removed in (t, *parts):
        removed.remove([40, 119, 500])
    deltas, begun, _ = save(parts, tmp_path / "more", "root/4", ["root/3"] * 3)
    assert not any(table.whole for table in begun)
    ((written, removed),) = snapshot_ops.apply(
        handles(others), [listed(deltas)], ""
    )
    assert (written, removed) == (0, 2)
    assert contents(others) == contents([t])


def test_an_id_of_another_part_is_refused(tables, tmp_path):
    paths, _, _ = save(tables[:1], tmp_path / "v1", "root/1")
    saved = [
        [snapshot_ops.SavedPart(listed(paths), part, 2) for part in range(2)]
    ]
    with pytest.raises(
        tf.errors.DataLossError,
        match="belongs to part [01] of 2, expected ids of",
    ):
        load(fresh(tables[:1]), saved, [(0, 1)])


def test_slots_of_another_optimizer_are_refused_or_reset(tables, tmp_path):
    paths, _, _ = save(tables[:1], tmp_path / "v1", "root/1")
    other = lodestar.EmbeddingVariable(4, embeddings_initializer="zeros")
    gen_ops.lodestar_embedding_apply(
        other.resource_handle,
        np.zeros([0], np.int64),
        tf.zeros([0, 4]),
        [0.1, 0.0, 0.9, 0.999, 1e-7, 1.0],
        -1,
        optimizer="adam",
        slot_inits=[0.0, 0.0],
    )
    with pytest.raises(tf.errors.FailedPreconditionError) as raised:
        restore(handles([other]), [paths], "root/1")
    assert "slots of 'adam', but the update uses 'adagrad'" in (
        raised.value.message
    )
    restore(handles([other]), [paths], "root/1", optimizer_slots="reset")
    rows, wanted = other.export(), tables[0].export()
    assert rows.optimizer_slots == {}
    np.testing.assert_array_equal(rows.ids, wanted.ids)
    np.testing.assert_array_equal(rows.rows, wanted.rows)


def test_a_restored_table_continues_in_functions_made_before(tables, tmp_path):
    paths, _, _ = save(tables[:1], tmp_path / "v1", "root/1")
    other = lodestar.EmbeddingVariable(4, embeddings_initializer="zeros")
    find = tf.function(lambda ids: other.lookup(ids, training=False))
    ids = tf.constant([1, 2, 99], tf.int64)
    np.testing.assert_array_equal(find(ids), np.zeros([3, 4]))
    restore(handles([other]), [paths], "")
    np.testing.assert_array_equal(find(ids), tables[0].lookup(ids))


def test_lookups_continue_while_tables_are_restored(tables, tmp_path):
    t = tables[0]
    paths, _, _ = save([t], tmp_path / "v1", "root/1")
    wanted = t.lookup([1, 2, 3, 4]).numpy()
    done = threading.Event()
    failures = []

    def read():
        while not done.is_set():
            rows = t.lookup([1, 2, 3, 4]).numpy()
            if not np.array_equal(rows, wanted):
                failures.append(rows)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        assert restore(handles([t]), [paths], "root/1") == [4]
    done.set()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize(
    "name, changed, message",
    [
        ("Begin", {"bases": [""]}, "`bases` has 1 items, but there are 2 tab"),
        ("Begin", {"bases": ["", "\0"]}, "`bases` contains a NUL byte"),
        ("Load", {"files": ["a"]}, "`file_parts` has shape [2,2], expected [1"),
        (
            "Load",
            {"file_tables": [0]},
            "`file_tables` has 1 items, but there are 2 files",
        ),
        ("Load", {"file_tables": [0, 2]}, "`file_tables[1]` is 2, expected 0"),
        ("Load", {"file_tables": [-1, 0]}, "`file_tables[0]` is -1, expected"),
        ("Load", {"file_tables": [0, 0]}, "has no file of table 1"),
        (
            "Load",
            {"file_parts": [[0, 1], [1, 1]]},
            "`file_parts[1]` is part 1 of 1",
        ),
        (
            "Load",
            {"file_tables": [0, 1], "file_parts": [[0, 1], [0, 2]]},
            "table 1 has no file of part 1 of 2",
        ),
        (
            "Load",
            {"file_parts": [[0, 2**31 - 1], [0, 1]]},
            "table 0 has no file of part 1 of 2147483647",
        ),
        ("Load", {"parts": [[-1, 1], [0, 1]]}, "`parts[0]` is part -1 of 1"),
        (
            "Load",
            {"parts": [[0, 1], [0, 2**40]]},
            "`parts[1]` is part 0 of 1099511627776",
        ),
        (
            "Load",
            {"bases": [""]},
            "`bases` has 1 items, but there are 2 tables",
        ),
        (
            "Apply",
            {"files": ["a"], "listed": [[-1, 0, 0]]},
            "`file_tables` has 2 items, but there are",
        ),
        ("Load", {"listed": [[0, 0, 0]]}, "`listed` has shape [1,3], expected"),
        (
            "Apply",
            {"listed": [[0, 0, 0], [2**32, 0, 0]]},
            "`listed[1,0]` is 4294967296, expected a CRC32C or -1",
        ),
        ("Apply", {"file_tables": [1, 1]}, "has no file of table 0"),
        (
            "Apply",
            {"parts": [[0, 1]]},
            "`parts` has shape [1,2], expected [2,2]",
        ),
    ],
)
def test_mismatches_with_the_tables_are_reported(
    name, changed, message, tables, tmp_path
):
    paths, _, _ = save(tables, tmp_path / "v1", "root/1")
    arguments = {
        "Begin": {"bases": ["", ""]},
        "Load": {
            "files": paths,
            "file_tables": [0, 1],
            "file_parts": [[0, 1]] * 2,
            "parts": [[0, 1]] * 2,
            "bases": ["", ""],
            "listed": [[-1, 0, 0]] * 2,
        },
        "Apply": {
            "files": paths,
            "file_tables": [0, 1],
            "parts": [[0, 1]] * 2,
            "base": "",
            "listed": [[-1, 0, 0]] * 2,
        },
    }[name]
    before = contents(tables)
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        call(
            f"Snapshot{name}",
            tables=references(tables),
            **{**arguments, **changed},
        )
    assert message in raised.value.message
    assert contents(tables) == before


@pytest.mark.parametrize(
    "parts, message",
    [
        ([[0, 2], [0, 4]], "files of part 0 of 2 and of part 0 of 4"),
        ([[0, 2], [1, 2], [0, 2]], "has part 0 of 2 more than once"),
        ([[1, 3], [2, 3]], "no file of part 0 of 3"),
    ],
)
def test_files_are_of_all_parts_of_one_table(parts, message, tables):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        call(
            "SnapshotLoad",
            tables=references(tables[:1]),
            files=["a"] * len(parts),
            file_tables=tf.zeros([len(parts)], tf.int64),
            file_parts=parts,
            parts=[[0, 1]],
            bases=[""],
            listed=[[-1, 0, 0]] * len(parts),
        )


def test_a_table_may_occur_once(tables, tmp_path):
    twice = handles([tables[0], tables[0]])
    for call_with in (
        lambda: snapshot_ops.begin(twice, ["", ""]),
        lambda: restore(twice, [["a"], ["a"]], ""),
        lambda: snapshot_ops.apply(twice, [listed(["a"]), listed(["a"])], ""),
    ):
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=r"`tables\[0\]` and `tables\[1\]` are the same table",
        ):
            call_with()


TABLE_OPS = [
    "SnapshotBegin",
    "SnapshotWrite",
    "SnapshotEnd",
    "SnapshotLoad",
    "SnapshotApply",
    "SnapshotMerge",
]


@pytest.mark.parametrize("name", TABLE_OPS)
def test_random_arguments_of_tables_are_accepted_or_refused(
    name, rng, tables, tmp_path
):
    whole, _, _ = save(tables, tmp_path / "v1", "root/1")
    delta, _, _ = save(tables, tmp_path / "v2", "root/2", ["root/1"] * 2)
    before = contents(tables)
    taken = 0
    for i in range(150):
        new = str(tmp_path / f"new{i}")
        paths = [*whole, *whole, *delta, new, new, new, "", "\0"]
        if name in ("SnapshotWrite", "SnapshotEnd"):
            snapshot, _ = snapshot_ops.begin(handles(tables[:1]), [""])
        arguments = {}
        for argument in op_def(name).input_arg:
            dtype = default_dtype(name, argument)
            if argument.name == "tables":
                count = rng.integers(3)
                arguments["tables"] = references(tables[:count])
            elif argument.name == "snapshot":
                arguments["snapshot"] = snapshot
            elif argument.name == "file_tables" and rng.integers(4):
                arguments["file_tables"] = tf.range(count, dtype=tf.int64)
            elif argument.name == "listed" and rng.integers(4):
                size = count if "tables" in arguments else 1
                unlisted = tf.constant([[-1, 0, 0]], tf.int64)
                arguments["listed"] = tf.repeat(unlisted, size, 0)
            elif argument.name in ("file_parts", "parts") and rng.integers(4):
                parts = tf.constant([[0, 1]], tf.int64)
                arguments[argument.name] = tf.repeat(parts, count, 0)
            elif rng.integers(4) and dtype == tf.string:
                scalar = argument.name in ("base", "out")
                size = count if "tables" in arguments and not scalar else 1
                texts = [random_text(rng, paths) for _ in range(size)]
                arguments[argument.name] = texts[0] if scalar else texts
                if not texts:
                    arguments[argument.name] = tf.zeros([0], tf.string)
            else:
                arguments[argument.name] = random_input(rng, dtype, paths)
        try:
            call(name, **arguments)
        except tf.errors.OpError:
            pass
        else:
            taken += 1
        snapshot = None
        arguments.clear()
        assert contents(tables) == before
    assert taken
    save(tables, tmp_path / "last", "root/3")
