"""Ops of table snapshots: their results and errors."""

import gc
import os
import threading

import numpy as np
import pytest
import tensorflow as tf
from random_arguments import call, content, default_dtype, op_def
from snapshot_files import random_input, random_text

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
    written = snapshot_ops.write(snapshot, paths, [b"label"] * len(paths))
    snapshot_ops.end(snapshot, base)
    return paths, begun, written


def restore(tables, chains, base, **options):
    """Loads and installs tables of one part; returns their rows."""
    loaded, rows = snapshot_ops.load(
        tables,
        [listed(chain) for chain in chains],
        [(0, 1)] * len(tables),
        [base] * len(tables),
        **options,
    )
    snapshot_ops.install(loaded)
    return rows


def test_a_snapshot_of_no_tables(tmp_path):
    snapshot, begun = snapshot_ops.begin([], [])
    assert begun == []
    assert snapshot_ops.write(snapshot, [], []) == []
    snapshot_ops.end(snapshot, "root/1")
    assert restore([], [], "root/1") == []


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
    snapshot_ops.write(
        snapshot, [str(tmp_path / name) for name in TABLES], TABLES
    )
    again = [str(tmp_path / "a"), str(tmp_path / "b")]
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="was already written"
    ):
        snapshot_ops.write(snapshot, again, TABLES)
    assert not (tmp_path / "a").exists()
    snapshot_ops.end(snapshot, "root/1")
    for call_again in (
        lambda: snapshot_ops.end(snapshot, "root/1"),
        lambda: snapshot_ops.end(snapshot, ""),
        lambda: snapshot_ops.write(snapshot, again, TABLES),
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
        snapshot_ops.write(snapshot, [good, missing], TABLES)
    assert f"cannot create '{missing}'" in raised.value.message
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="the snapshot is not written"
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
        lambda: snapshot_ops.write(variant, [], []),
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


@pytest.mark.parametrize("field", ["crc32c", "rows", "removed"])
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
        right = snapshot_ops.ListedFile(
            path, file.crc32c, file.rows, file.removed
        )
        return right._replace(**changes)

    def changed(path, file):
        return as_listed(path, file, **{field: getattr(file, field) + 1})

    whole, delta = (first[1], written[1]), (second[1], of_delta[1])
    out = str(tmp_path / "out")
    for call_with in (
        lambda: snapshot_ops.load(
            handles(others[1:]),
            [[changed(*whole)]],
            [(0, 1)],
            [""],
        ),
        lambda: snapshot_ops.compact(
            [as_listed(*whole), changed(*delta)], out, b"x"
        ),
    ):
        with pytest.raises(tf.errors.DataLossError, match="in its manifest"):
            call_with()
    assert contents(others) == before
    os.unlink(out)
    snapshot_ops.compact([as_listed(*whole), as_listed(*delta)], out, b"x")


def load(tables, saved, parts, base=""):
    """Calls `snapshot_ops.load` with parts and files that any table accepts."""
    bases = [base] * len(tables)
    return snapshot_ops.load(handles(tables), saved, parts, bases)


def test_loaded_rows_appear_when_installed(tables, tmp_path):
    paths, _, _ = save(tables, tmp_path / "v1", "root/1")
    others = fresh(tables)
    before = contents(others)
    saved = [listed([path]) for path in paths]
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


def listing(tables, part=0, parts=1):
    """Returns what is known of files of tables that no manifest lists."""
    return [[table, part, parts, -1, 0, 0] for table in tables]


@pytest.mark.parametrize(
    "name, changed, message",
    [
        ("Begin", {"bases": [""]}, "`bases` has 1 items, but there are 2 tab"),
        ("Begin", {"bases": ["", "\0"]}, "`bases` contains a NUL byte"),
        (
            "Load",
            {"bases": [""]},
            "`bases` has 1 items, but there are 2 tables",
        ),
        ("Load", {"files": ["a"]}, "`listed` has shape [2,6], expected [1,6]"),
        ("Load", {"files": ["a", "\0"]}, "`files` contains a NUL byte"),
        ("Load", {"listed": [[0] * 5] * 2}, "`listed` has shape [2,5]"),
        ("Load", {"listed": listing([0, 2])}, "has table 2, expected 0 to 1"),
        ("Load", {"listed": listing([-1, 0])}, "has table -1, expected 0 to 1"),
        ("Load", {"listed": listing([1, 1])}, "has no file of table 0"),
        (
            "Load",
            {"listed": listing([0, 1], 1, 1)},
            "`listed` has part 1 of 1, expected 0 <= part < count",
        ),
        ("Load", {"parts": [[-1, 1], [0, 1]]}, "`parts` has part -1 of 1"),
        (
            "Load",
            {"parts": [[0, 1], [0, 2**40]]},
            "`parts` has part 0 of 1099511627776",
        ),
        (
            "Load",
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
            "listed": listing([0, 1]),
            "parts": [[0, 1]] * 2,
            "bases": ["", ""],
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


def test_a_table_may_occur_once(tables, tmp_path):
    twice = handles([tables[0], tables[0]])
    for call_with in (
        lambda: snapshot_ops.begin(twice, ["", ""]),
        lambda: restore(twice, [["a"], ["a"]], ""),
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
            elif argument.name == "listed" and rng.integers(4):
                size = count if "tables" in arguments else 1
                known = tf.constant(listing(range(size)), tf.int64, [size, 6])
                arguments["listed"] = known
            elif argument.name == "parts" and rng.integers(4):
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
