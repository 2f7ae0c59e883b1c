"""Ops of snapshots and their files: what they give, and what they refuse."""

import gc
import os
import pathlib
import struct
import threading

import numpy as np
import pytest
import tensorflow as tf
from random_arguments import MAX, MIN, call, content, default_dtype, op_def

import lodestar
from lodestar._library import gen_ops
from lodestar.ops import snapshot_ops

BLOB, END = 7, 8


def read_blocks(path):
    """Returns all blocks of a file."""
    blocks = [snapshot_ops.read_block(path)]
    while blocks[-1].next is not None:
        blocks.append(snapshot_ops.read_block(path, blocks[-1].next))
    return blocks


@pytest.fixture
def blobs(tmp_path):
    """A file of two blobs."""
    path = str(tmp_path / "blobs")
    snapshot_ops.write_blobs(path, [b"abc", b"\0" * 1000])
    return path


def test_blobs_are_written_and_read(tmp_path):
    path = str(tmp_path / "blobs")
    big = os.urandom(40 << 20)
    written = snapshot_ops.write_blobs(path, [b"abc", b"", big])
    assert written.bytes == os.path.getsize(path)
    blocks = read_blocks(path)
    assert [block.kind for block in blocks] == [BLOB] * 4 + [END]
    assert blocks[0].payload == b"abc"
    assert b"".join(block.payload for block in blocks[1:-1]) == big
    assert written == snapshot_ops.file_crc(path)
    verified = snapshot_ops.verify_file(path)
    assert verified == (written.bytes, written.crc32c, 0, 0)


def test_no_blobs_are_a_file_too(tmp_path):
    path = str(tmp_path / "none")
    snapshot_ops.write_blobs(path, [])
    assert [block.kind for block in read_blocks(path)] == [END]
    snapshot_ops.verify_file(path)


def test_the_checksum_of_any_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"123456789")
    # The check value of CRC-32C.
    assert snapshot_ops.file_crc(str(path)) == (9, 0xE3069283)
    path.write_bytes(b"")
    assert snapshot_ops.file_crc(str(path)) == (0, 0)


def test_a_path_may_be_any_bytes(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xc3\xa4")
    written = snapshot_ops.write_blobs(path, [b"x"])
    assert os.path.exists(path)
    assert snapshot_ops.file_crc(path) == written


def flipped(path, at):
    """Writes `path` anew with a bit of byte `at` flipped."""
    data = bytearray(pathlib.Path(path).read_bytes())
    data[at] ^= 1
    pathlib.Path(path).write_bytes(data)


def test_damage_is_found_and_placed(blobs):
    good = pathlib.Path(blobs).read_bytes()
    for at in range(len(good)):
        flipped(blobs, at)
        with pytest.raises(tf.errors.OpError) as raised:
            snapshot_ops.verify_file(blobs)
        # A version from the future is no damage, but its header's checksum is.
        assert isinstance(raised.value, tf.errors.DataLossError)
        assert f"'{blobs}', byte " in raised.value.message
        pathlib.Path(blobs).write_bytes(good)
    for size in range(0, len(good), 7):
        pathlib.Path(blobs).write_bytes(good[:size])
        with pytest.raises(tf.errors.DataLossError) as raised:
            snapshot_ops.verify_file(blobs)
        assert f"'{blobs}', byte " in raised.value.message
    pathlib.Path(blobs).write_bytes(good)
    snapshot_ops.verify_file(blobs)


def test_blocks_begin_where_blocks_begin(blobs):
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="byte 17: no block begins here"
    ):
        snapshot_ops.read_block(blobs, 17)
    with pytest.raises(tf.errors.DataLossError, match="byte 24: a block beg"):
        snapshot_ops.read_block(blobs, 24)
    with pytest.raises(tf.errors.DataLossError, match="the file ends here"):
        snapshot_ops.read_block(blobs, 1 << 40)


def test_a_flipped_bit_of_a_payload_is_found_by_its_reader(blobs):
    flipped(blobs, 16 + 32)
    with pytest.raises(tf.errors.DataLossError, match="the BLOB block's"):
        snapshot_ops.read_block(blobs)


READERS = [
    snapshot_ops.verify_file,
    snapshot_ops.read_block,
    snapshot_ops.file_crc,
]


@pytest.mark.parametrize("read", READERS)
def test_what_cannot_be_read_is_said(read, tmp_path):
    missing = str(tmp_path / "missing")
    with pytest.raises(tf.errors.NotFoundError) as raised:
        read(missing)
    assert f"cannot open '{missing}': No such file" in raised.value.message
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="is not a regular file"
    ):
        read(str(tmp_path))
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="is not a regular file"
    ):
        read(fifo)
    if os.geteuid() != 0:
        secret = tmp_path / "secret"
        secret.write_bytes(b"x")
        secret.chmod(0)
        with pytest.raises(tf.errors.PermissionDeniedError):
            read(str(secret))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="`path` holds a zero byte"
    ):
        read(missing + "\0")


def test_what_cannot_be_written_is_said(blobs, tmp_path):
    before = pathlib.Path(blobs).read_bytes()
    with pytest.raises(tf.errors.AlreadyExistsError) as raised:
        snapshot_ops.write_blobs(blobs, [b"x"])
    assert f"cannot create '{blobs}': File exists" in raised.value.message
    assert pathlib.Path(blobs).read_bytes() == before
    with pytest.raises(tf.errors.NotFoundError, match="cannot create"):
        snapshot_ops.write_blobs(str(tmp_path / "no" / "folder"), [b"x"])


def test_another_version_is_named(blobs):
    data = bytearray(pathlib.Path(blobs).read_bytes())
    data[8:12] = struct.pack("<I", 3)
    header = pathlib.Path(blobs + ".header")
    header.write_bytes(data[:12])
    data[12:16] = struct.pack("<I", snapshot_ops.file_crc(str(header)).crc32c)
    pathlib.Path(blobs).write_bytes(data)
    with pytest.raises(tf.errors.UnimplementedError, match="of version 3, but"):
        snapshot_ops.verify_file(blobs)


@pytest.mark.parametrize(
    "name, arguments, message",
    [
        ("VerifyFile", {"path": ["x"]}, "`path` must have rank 0"),
        ("FileCrc", {"path": ["x"]}, "`path` must have rank 0"),
        ("ReadBlock", {"path": ["x"], "offset": 16}, "`path` must have rank 0"),
        ("ReadBlock", {"path": "x", "offset": [16]}, "`offset` must have rank"),
        (
            "WriteBlobs",
            {"path": "x", "blobs": "x", "label": ""},
            "`blobs` must have rank 1",
        ),
        (
            "WriteBlobs",
            {"path": [], "blobs": [], "label": ""},
            "`path` must have rank 0",
        ),
        (
            "WriteBlobs",
            {"path": "x", "blobs": [], "label": []},
            "`label` must have rank 0",
        ),
    ],
)
def test_ranks_are_checked(name, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = {
        key: tf.constant(value, tf.int64 if key == "offset" else tf.string)
        for key, value in arguments.items()
    }
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        call(f"Snapshot{name}", **arguments)
    assert message in raised.value.message
    assert not list(tmp_path.iterdir())


def random_text(rng, paths):
    """Returns a path that is there, or is not."""
    return paths[rng.integers(len(paths))]


def random_input(rng, dtype, paths):
    """Returns a tensor for an argument of an op."""
    shape = [(), (), (), (1,), (2,), (0,), (1, 1)][rng.integers(7)]
    size = int(np.prod(shape))
    if dtype == tf.string:
        values = [random_text(rng, paths) for _ in range(size)]
    else:
        drawn = [MIN, -1, 0, 15, 16, 16, 16, 24, 2**40, MAX]
        values = [drawn[rng.integers(len(drawn))] for _ in range(size)]
    return tf.reshape(tf.constant(values, dtype, [size]), shape)


FILE_OPS = [
    "SnapshotVerifyFile",
    "SnapshotReadBlock",
    "SnapshotWriteBlobs",
    "SnapshotFileCrc",
]


@pytest.mark.parametrize("name", FILE_OPS)
def test_random_arguments_are_taken_or_refused(name, rng, blobs, tmp_path):
    taken = 0
    for i in range(200):
        paths = [blobs, "", str(tmp_path), str(tmp_path / f"new{i}"), "\0"]
        arguments = {
            argument.name: random_input(
                rng, default_dtype(name, argument), paths
            )
            for argument in op_def(name).input_arg
        }
        try:
            call(name, **arguments)
        except tf.errors.OpError:
            continue
        taken += 1
    assert taken
    snapshot_ops.verify_file(blobs)


TABLES = ["one", "two"]


@pytest.fixture
def tables():
    """Two tables of different dims that were trained for two steps."""
    made = [
        lodestar.EmbeddingVariable(dim, initializer="normal", name=name)
        for dim, name in zip((4, 3), TABLES, strict=True)
    ]
    for t in made:
        train(t, [1, 2, 3])
        train(t, [3, 4])
    return made


def train(t, ids):
    """Makes rows of `ids` and takes an Adagrad step with them."""
    t.lookup(ids, training=True)
    gen_ops.lodestar_embedding_apply(
        t.resource_handle,
        ids,
        tf.fill([len(ids), t.dim], 0.5),
        [0.1, 0.0, 1e-7],
        -1,
        optimizer="adagrad",
        slot_inits=[0.1],
    )


def fresh(tables):
    """Returns empty tables for the content of `tables`."""
    return [
        lodestar.EmbeddingVariable(t.dim, initializer="normal", num_shards=3)
        for t in tables
    ]


def handles(tables):
    return [t.resource_handle for t in tables]


def contents(tables):
    return [content(t) for t in tables]


def save(tables, folder, base, bases=None):
    """Writes a snapshot; returns the paths and what is said of the files."""
    folder.mkdir()
    snapshot, begun = snapshot_ops.begin(
        handles(tables), bases or [""] * len(tables)
    )
    paths = [str(folder / str(t)) for t in range(len(tables))]
    written = snapshot_ops.write(snapshot, paths)
    snapshot_ops.end(snapshot, base)
    return paths, begun, written


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
    rows = snapshot_ops.restore(
        handles(others), [[path] for path in paths], "root/1"
    )
    assert rows == [4, 4]
    assert contents(others) == before == contents(tables)
    assert [snapshot_ops.base(h) for h in handles(others)] == ["root/1"] * 2


def test_deltas_follow(tables, tmp_path):
    first, _, _ = save(tables, tmp_path / "v1", "root/1")
    others = fresh(tables)
    snapshot_ops.restore(handles(others), [[path] for path in first], "root/1")
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
    taken = snapshot_ops.apply(handles(others), second, "root/2")
    assert taken == [(2, 1), (0, 0)]
    assert contents(others) == contents(tables)
    assert [snapshot_ops.base(h) for h in handles(others)] == ["root/2"] * 2
    chains = [list(chain) for chain in zip(first, second, strict=True)]
    restored = fresh(tables)
    assert snapshot_ops.restore(handles(restored), chains, "") == [4, 4]
    assert contents(restored) == contents(tables)
    assert [snapshot_ops.base(h) for h in handles(restored)] == ["", ""]
    # Training goes on alike in all of them.
    for group in (tables, others, restored):
        train(group[0], [5, 6])
    assert contents(others) == contents(restored) == contents(tables)


def test_a_chain_is_compacted_into_one_file(tables, tmp_path):
    first, _, _ = save(tables, tmp_path / "v1", "root/1")
    train(tables[0], [4, 5])
    tables[0].remove([1])
    second, _, _ = save(tables, tmp_path / "v2", "root/2", ["root/1"] * 2)
    compacted = str(tmp_path / "compacted")
    made = snapshot_ops.compact([first[0], second[0]], compacted)
    assert made.rows == 4
    assert snapshot_ops.file_crc(compacted) == (made.bytes, made.crc32c)
    others = fresh(tables[:1])
    snapshot_ops.restore(handles(others), [[compacted]], "root/2")
    assert contents(others) == contents(tables[:1])
    with pytest.raises(tf.errors.AlreadyExistsError):
        snapshot_ops.compact([first[0], second[0]], compacted)
    with pytest.raises(tf.errors.InvalidArgumentError):
        snapshot_ops.compact([second[0]], str(tmp_path / "deltas"))


def test_another_base_gives_a_whole_table(tables, tmp_path):
    save(tables, tmp_path / "v1", "root/1")
    _, begun, written = save(
        tables, tmp_path / "v2", "root/2", ["root/1", "root/0"]
    )
    assert [table.whole for table in begun] == [False, True]
    assert [table.rows for table in written] == [0, 4]


def test_what_changes_after_the_moment_is_not_in_it(tables, tmp_path):
    before = contents(tables)
    snapshot, _ = snapshot_ops.begin(handles(tables), ["", ""])
    train(tables[0], [1, 2, 9])
    tables[1].remove([1, 2])
    paths = [str(tmp_path / name) for name in TABLES]
    snapshot_ops.write(snapshot, paths)
    snapshot_ops.end(snapshot, "root/1")
    others = fresh(tables)
    snapshot_ops.restore(handles(others), [[path] for path in paths], "root/1")
    assert contents(others) == before


def test_a_snapshot_of_no_tables(tmp_path):
    snapshot, begun = snapshot_ops.begin([], [])
    assert begun == []
    assert snapshot_ops.write(snapshot, []) == []
    snapshot_ops.end(snapshot, "root/1")
    assert snapshot_ops.restore([], [], "root/1") == []
    assert snapshot_ops.apply([], [], "root/1") == []


def test_one_snapshot_of_a_table_at_a_time(tables, tmp_path):
    snapshot, _ = snapshot_ops.begin(handles(tables[:1]), [""])
    with pytest.raises(tf.errors.FailedPreconditionError):
        snapshot_ops.begin(handles(tables), ["", ""])
    # None has begun of the other either.
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


def test_steps_of_a_snapshot_come_in_order(tables, tmp_path):
    snapshot, _ = snapshot_ops.begin(handles(tables), ["", ""])
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="the snapshot is not written"
    ):
        snapshot_ops.end(snapshot, "root/1")
    snapshot_ops.write(snapshot, [str(tmp_path / name) for name in TABLES])
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="is written already"
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
            tf.errors.InvalidArgumentError, match="is not what SnapshotBegin"
        ):
            call_with()


def test_a_failed_restore_changes_no_table(tables, tmp_path):
    paths, _, _ = save(tables, tmp_path / "v1", "root/1")
    others = fresh(tables)
    for t in others:
        t.lookup([7], training=True)
    before = contents(others)
    flipped(paths[1], 100)
    with pytest.raises(tf.errors.DataLossError) as raised:
        snapshot_ops.restore(handles(others), [[p] for p in paths], "root/1")
    assert f"'{paths[1]}', byte " in raised.value.message
    assert contents(others) == before
    assert [snapshot_ops.base(h) for h in handles(others)] == ["", ""]


def test_a_failed_delta_changes_no_table(tables, tmp_path):
    first, _, _ = save(tables, tmp_path / "v1", "root/1")
    others = fresh(tables)
    snapshot_ops.restore(handles(others), [[path] for path in first], "root/1")
    before = contents(others)
    for t in tables:
        train(t, [1, 10])
    second, _, _ = save(tables, tmp_path / "v2", "root/2", ["root/1"] * 2)
    flipped(second[1], 100)
    with pytest.raises(tf.errors.DataLossError) as raised:
        snapshot_ops.apply(handles(others), second, "root/2")
    assert f"'{second[1]}', byte " in raised.value.message
    assert contents(others) == before
    assert [snapshot_ops.base(h) for h in handles(others)] == ["root/1"] * 2


def test_slots_of_another_optimizer_are_refused_or_reset(tables, tmp_path):
    paths, _, _ = save(tables[:1], tmp_path / "v1", "root/1")
    other = lodestar.EmbeddingVariable(4, initializer="zeros")
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
        snapshot_ops.restore(handles([other]), [paths], "root/1")
    assert "of 'adagrad', but the table's are those of 'adam'" in (
        raised.value.message
    )
    snapshot_ops.restore(
        handles([other]), [paths], "root/1", optimizer_slots="reset"
    )
    rows, wanted = other.export(), tables[0].export()
    assert rows.optimizer_slots == {}
    np.testing.assert_array_equal(rows.ids, wanted.ids)
    np.testing.assert_array_equal(rows.rows, wanted.rows)


def test_a_restored_table_goes_on_in_functions_made_before(tables, tmp_path):
    paths, _, _ = save(tables[:1], tmp_path / "v1", "root/1")
    other = lodestar.EmbeddingVariable(4, initializer="zeros")
    find = tf.function(lambda ids: other.lookup(ids, training=False))
    ids = tf.constant([1, 2, 99], tf.int64)
    np.testing.assert_array_equal(find(ids), np.zeros([3, 4]))
    snapshot_ops.restore(handles([other]), [paths], "")
    np.testing.assert_array_equal(find(ids), tables[0].lookup(ids))


def test_look_ups_go_on_while_tables_are_restored(tables, tmp_path):
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
        assert snapshot_ops.restore(handles([t]), [paths], "root/1") == [4]
    done.set()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize(
    "name, changed, message",
    [
        ("Begin", {"bases": [""]}, "`bases` has 1 items, but there are 2 tab"),
        ("Begin", {"bases": ["", "\0"]}, "`bases` holds a zero byte"),
        ("Restore", {"files": ["a"]}, "`file_tables` has 2 items, but there "),
        ("Restore", {"file_tables": [0, 2]}, "`file_tables[1]` is 2, wanted 0"),
        ("Restore", {"file_tables": [-1, 0]}, "`file_tables[0]` is -1, wanted"),
        ("Restore", {"file_tables": [0, 0]}, "names no file of table 1"),
        ("Apply", {"files": ["a"]}, "`files` has 1 items, but there are 2 tab"),
    ],
)
def test_what_does_not_fit_the_tables_is_said(name, changed, message, tables):
    arguments = {
        "Begin": {"bases": ["", ""]},
        "Restore": {"files": ["a", "b"], "file_tables": [0, 1], "base": ""},
        "Apply": {"files": ["a", "b"], "base": ""},
    }[name]
    before = contents(tables)
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        call(
            f"Snapshot{name}",
            handles=handles(tables),
            **{**arguments, **changed},
        )
    assert message in raised.value.message
    assert contents(tables) == before


def test_a_table_comes_once(tables, tmp_path):
    twice = handles([tables[0], tables[0]])
    for call_with in (
        lambda: snapshot_ops.begin(twice, ["", ""]),
        lambda: snapshot_ops.restore(twice, [["a"], ["a"]], ""),
        lambda: snapshot_ops.apply(twice, ["a", "a"], ""),
    ):
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=r"`handles\[0\]` and `handles\[1\]` are one table",
        ):
            call_with()


TABLE_OPS = [
    "SnapshotBegin",
    "SnapshotWrite",
    "SnapshotEnd",
    "SnapshotRestore",
    "SnapshotApply",
    "SnapshotMerge",
]


@pytest.mark.parametrize("name", TABLE_OPS)
def test_random_arguments_of_tables_are_taken_or_refused(
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
            if argument.name == "handles":
                count = rng.integers(3)
                arguments["handles"] = handles(tables[:count])
            elif argument.name == "snapshot":
                arguments["snapshot"] = snapshot
            elif argument.name == "file_tables" and rng.integers(4):
                arguments["file_tables"] = tf.range(count, dtype=tf.int64)
            elif rng.integers(4) and dtype == tf.string:
                scalar = argument.name in ("base", "out")
                size = count if "handles" in arguments and not scalar else 1
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
