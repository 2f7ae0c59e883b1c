"""Partitioned tables are saved from and restored to any number of parts."""

import json
import os
import pathlib
import shutil

import keras
import numpy as np
import pytest
import snapshot_tables as st
import tensorflow as tf

import lodestar
from lodestar import snapshot
from lodestar._library import gen_ops
from lodestar.ops import snapshot_ops
from lodestar.snapshot import places, saving
from lodestar.snapshot.__main__ import main

DEVICES = ["/CPU:0", "/CPU:1", "/CPU:2"]
IDS = [*range(100), 2**62, -5]


@pytest.fixture(autouse=True, params=["one task", "a task per device"])
def tasks(request, monkeypatch):
    """Lets the devices of this process also stand for tasks of a cluster."""
    if request.param != "one task":
        monkeypatch.setattr(places, "_cpu_of_task", lambda device: device)
    return request.param


several_tasks = pytest.mark.parametrize(
    "tasks", ["a task per device"], indirect=True
)


def in_parts(devices, name="t", **options):
    """Returns a table on some devices; with one device, a plain table."""
    return st.table(
        name, devices=devices if len(devices) > 1 else None, **options
    )


def fill(table, ids, scale=1.0):
    ids = np.array(ids)
    rows = scale * (ids % 1000 + 1.0)[:, None] * np.ones([1, 4])
    table.insert_or_assign(ids, rows.astype(np.float32))


def saved(path, table):
    """Saves a full version and a delta."""
    fill(table, IDS)
    snapshot.save(table, path)
    table.remove(IDS[:20])
    fill(table, range(90, 120), 2.0)
    return snapshot.save(table, path, delta=True)


@pytest.fixture
def two(path):
    """Returns a saved table in two parts."""
    table = in_parts(DEVICES[:2])
    saved(path, table)
    return table


@pytest.mark.parametrize(
    ("count", "others"), [(1, 2), (2, 1), (2, 2), (2, 3), (3, 2)]
)
def test_any_number_of_parts_is_restored_in_any_other(path, count, others):
    table = in_parts(DEVICES[:count])
    info = saved(path, table)
    assert info.kind == "delta" and info.rows == 30 and info.removed == 20
    new = in_parts(DEVICES[:others])
    fill(new, [7, 5000])
    report = snapshot.restore(new, path)
    assert report.restored == {"t": 102}
    assert (
        st.rows_of(new) == st.rows_of(table) and len(st.rows_of(table)) == 102
    )
    # Training continues with deltas if the parts are the same.
    fill(new, [3, 4], 5.0)
    new.remove([100])
    info = snapshot.save(new, path, delta=True)
    assert info.kind == ("delta" if count == others else "full")
    last = in_parts(DEVICES[:count])
    snapshot.restore(last, path)
    assert st.rows_of(last) == st.rows_of(new) and len(st.rows_of(new)) == 103


@pytest.mark.parametrize(
    "count, others, options",
    [
        (2, 2, {"admission": lodestar.CountingBloom(2, 0.01, 1000)}),
        (2, 3, {}),
        (2, 3, {"eviction": lodestar.MaxRows(500)}),
        (3, 1, {"dtype": "bfloat16", "embeddings_initializer": "normal"}),
        (1, 2, {"admission": lodestar.MinCount(2)}),
    ],
)
def test_training_resumes_as_it_would_have(path, count, others, options):
    table, by = in_parts(DEVICES[:count], **options), st.optimizer()
    for step in range(3):
        st.train(table, st.numbers(1, 2, 2**62, -5, step, step + 100), by)
    snapshot.save(table, path)
    st.train(table, st.numbers(1, 7, 8, 101), by)
    snapshot.save(table, path, delta=True)
    new, new_by = in_parts(DEVICES[:others], **options), st.optimizer()
    snapshot.restore(new, path)
    assert st.content(new) == st.content(table)
    new_by.build([new])
    new_by.iterations.assign(by.iterations)
    for t, optimizer in ((table, by), (new, new_by)):
        st.train(t, st.numbers(7, 2, 55, 100), optimizer)
        st.train(t, st.numbers(55, 9), optimizer)
    assert st.content(new) == st.content(table)


def small_model(devices):
    ids = keras.Input((3,), dtype="int64")
    layer = lodestar.layers.DynamicEmbedding(
        4, combiner="mean", name="items", devices=devices
    )
    dense = keras.layers.Dense(1, name="score", kernel_initializer="ones")
    model = keras.Model(ids, dense(layer(ids)))
    model.compile(
        lodestar.optimizers.Adam(0.1),
        "mse",
    )
    return model


@several_tasks
def test_a_model_resumes_with_its_table_in_other_parts(path):
    ids = np.arange(60).reshape(20, 3)
    labels = np.linspace(0, 1, 20)[:, None]
    model = small_model(DEVICES[:2])
    for delta in (False, True):
        model.fit(ids, labels, batch_size=5, shuffle=False, verbose=0)
        snapshot.save(model, path, delta)
    for devices in (None, DEVICES[:2], DEVICES):
        new = small_model(devices)
        report = snapshot.restore(new, path)
        assert report.restored == {"items": 60} and report.step == 8
        for m in (model, new):
            snapshot.restore(m, path)
            m.fit(ids, labels, batch_size=5, shuffle=False, verbose=0)
        np.testing.assert_allclose(
            new.predict(ids, verbose=0),
            model.predict(ids, verbose=0),
            1e-6,
            1e-6,
        )


def test_a_part_that_is_above_its_share_of_the_cap_evicts(path):
    table = st.table(eviction=lodestar.MaxRows(102))
    fill(table, IDS)
    snapshot.save(table, path)
    new = in_parts(DEVICES, eviction=lodestar.MaxRows(102))
    report = snapshot.restore(new, path)
    assert report.restored == {"t": int(new.size())}
    assert 80 < int(new.size()) < 102
    rows = st.rows_of(table)
    assert all(rows[id_] == row for id_, row in st.rows_of(new).items())
    few = st.table(eviction=lodestar.MaxRows(101))
    with pytest.raises(
        snapshot.SnapshotError, match="but `max_rows` of the table is 101"
    ):
        snapshot.restore(few, path)


def test_each_part_is_a_file_and_all_share_one_manifest(path):
    table, plain = in_parts(DEVICES), st.table("plain")
    fill(table, IDS)
    info = snapshot.save([plain, table], path)
    files = [f"table-00001-part-{part:05d}-of-00003" for part in range(3)]
    assert sorted(os.listdir(info.path)) == [
        "MANIFEST",
        "table-00000",
        *files,
    ]
    found = info.tables["t"]
    assert [file.file for file in found.files] == files
    assert [file.part for file in found.files] == [0, 1, 2]
    assert found.rows == len(IDS) == sum(file.rows for file in found.files)
    assert min(file.rows for file in found.files) > 0
    line = pathlib.Path(info.path, "MANIFEST").read_bytes().split(b"\n")[0]
    fields = json.loads(line)
    assert [(t["part"], t["parts"]) for t in fields["tables"]] == [
        (0, 1),
        (0, 3),
        (1, 3),
        (2, 3),
    ]


def part_path(path, version, part):
    return os.path.join(
        path, f"{version:08d}", f"table-00000-part-{part:05d}-of-00002"
    )


def damaged(file):
    data = bytearray(pathlib.Path(file).read_bytes())
    data[-200] ^= 1
    pathlib.Path(file).write_bytes(data)


@several_tasks
@pytest.mark.parametrize(
    "harm, message, version",
    [
        (os.unlink, "part-00001-of-00002: is missing", 1),
        (
            lambda file: os.truncate(file, 100),
            "part-00001-of-00002: is truncated at byte 100",
            2,
        ),
        (damaged, "part-00001-of-00002', byte ", 1),
        (damaged, "part-00001-of-00002', byte ", 2),
    ],
)
def test_a_changed_part_is_refused(path, two, harm, message, version):
    harm(part_path(path, version, 1))
    for count in (1, 2, 3):
        new = in_parts(DEVICES[:count])
        fill(new, [7, 8])
        before = st.rows_of(new)
        with pytest.raises(snapshot.CorruptSnapshotError, match=message):
            snapshot.restore(new, path, version=2)
        assert st.rows_of(new) == before
    with pytest.raises(snapshot.CorruptSnapshotError, match=message):
        snapshot.verify(path)


def test_exchanged_parts_are_refused(path):
    table = in_parts(DEVICES[:2])
    fill(table, [0, 1, 2, 3])
    while len(set(map(part_size, table._parts))) > 1:
        fill(table, [max(st.rows_of(table)) + 1])
    snapshot.save(table, path)
    shutil.copy(part_path(path, 1, 0), part_path(path, 1, 1))
    with pytest.raises(
        snapshot.CorruptSnapshotError,
        match="part-00001-of-00002: is another file: part 0 of 2 of 't' of "
        "version 1 of mark .* instead of part 1 of 2 of 't' of version 1",
    ):
        snapshot.restore(table, path)


def part_size(part):
    return int(part.call(gen_ops.lodestar_embedding_size))


@several_tasks
def test_a_part_that_cannot_be_written_leaves_no_version(path, monkeypatch):
    table = in_parts(DEVICES)
    fill(table, IDS)
    snapshot.save(table, path)
    fill(table, [1, 500], 3.0)
    original = snapshot_ops.write

    def write(begun, paths, labels):
        if "part-00001" in paths[0]:
            raise OSError(28, "No space left on device", paths[0])
        return original(begun, paths, labels)

    monkeypatch.setattr(snapshot_ops, "write", write)
    with pytest.raises(OSError, match="No space left on device"):
        snapshot.save(table, path, delta=True)
    assert [v.version for v in snapshot.versions(path)] == [1]
    assert not os.path.exists(os.path.join(path, "00000002"))
    monkeypatch.undo()
    info = snapshot.save(table, path, delta=True)
    assert info.kind == "delta" and info.rows == 2
    new = in_parts(DEVICES[:2])
    snapshot.restore(new, path)
    assert st.rows_of(new) == st.rows_of(table)


@several_tasks
@pytest.mark.parametrize("steps", range(1, 40, 3))
def test_a_process_that_dies_between_parts_has_committed_nothing(
    path, monkeypatch, steps
):
    table = in_parts(DEVICES[:2])
    fill(table, IDS)
    snapshot.save(table, path)
    fill(table, [1, 500], 3.0)
    with monkeypatch.context() as patch:
        ended = st.runs_to_its_end(
            patch, steps, lambda: snapshot.save(table, path, delta=True)
        )
    versions = [v.version for v in snapshot.versions(path)]
    assert versions in ([1], [1, 2])
    new = in_parts(DEVICES)
    snapshot.restore(new, path)
    wanted = st.rows_of(table)
    if versions == [1]:
        assert not ended
        wanted = {**wanted, 1: [2.0] * 4}
        del wanted[500]
    assert st.rows_of(new) == wanted
    snapshot.verify(path)


@several_tasks
def test_a_folder_that_is_not_shared_is_reported(path, monkeypatch):
    table = in_parts(DEVICES[:2])
    original = snapshot_ops.write

    def write(begun, paths, labels):
        written = original(begun, paths, labels)
        if "part-00001" in paths[0]:
            os.unlink(paths[0])
        return written

    monkeypatch.setattr(snapshot_ops, "write", write)
    with pytest.raises(
        snapshot.SnapshotError,
        match="part-00001-of-00002: is missing here, where the manifest is "
        "written, but not on .*CPU:1, which wrote it. Use a folder",
    ):
        snapshot.save(table, path)
    assert snapshot.versions(path) == []


@several_tasks
def test_a_partial_restore_names_the_restored_parts(path, two, monkeypatch):
    new = in_parts(DEVICES)
    fill(new, [7])
    original, calls = snapshot_ops.install, []

    def install(loaded):
        calls.append(loaded)
        if len(calls) == 2:
            raise tf.errors.UnavailableError(None, None, "the task is gone")
        original(loaded)

    monkeypatch.setattr(snapshot_ops, "install", install)
    with pytest.raises(
        snapshot.SnapshotError,
        match="00000002: .*CPU:0 restored its rows, but .*CPU:1, "
        ".*CPU:2 did not: the task is gone. Restore again",
    ):
        snapshot.restore(new, path)
    monkeypatch.undo()
    snapshot.restore(new, path)
    assert st.rows_of(new) == st.rows_of(two)


def test_a_replaced_part_is_full_within_a_delta(path, two):
    two._parts[1].call(gen_ops.lodestar_embedding_clear)
    info = snapshot.save(two, path, delta=True)
    assert info.kind == "delta"
    assert [f.whole for f in info.tables["t"].files] == [False, True]
    assert not info.tables["t"].whole
    for count in (1, 2, 3):
        new = in_parts(DEVICES[:count])
        snapshot.restore(new, path)
        assert st.rows_of(new) == st.rows_of(two)


def test_compaction_keeps_the_parts(path, two):
    report = snapshot.compact(path)
    assert report.version == 3 and report.removed == (1, 2)
    (info,) = snapshot.versions(path)
    assert info.kind == "full" and len(info.tables["t"].files) == 2
    assert info.rows == 102
    fill(two, [3], 7.0)
    assert snapshot.save(two, path, delta=True).kind == "delta"
    new = in_parts(DEVICES)
    snapshot.restore(new, path)
    assert st.rows_of(new) == st.rows_of(two)
    assert snapshot.verify(path).files == 4


def test_the_command_line_reads_parts(path, two, capsys):
    def run(*arguments):
        assert main([*arguments[:1], path, *arguments[1:]]) == 0
        return capsys.readouterr().out.splitlines()

    assert "4 files of 2 versions" in run("verify")[0]
    assert "table t: 4 x float32, no optimizer, in 2 parts" in run("inspect")
    for id_ in (95, 50, 2**62):
        lines = run("inspect", "--id", str(id_))
        values = " ".join(f"{x:g}" for x in st.rows_of(two)[id_])
        assert f"  values {values}" in lines
    assert run("inspect", "--id", "3") == [
        "table t: missing; version 2 removed it"
    ]
    assert run("inspect", "--id", "77777") == ["table t: missing"]
    assert len(run("inspect", "--top", "frequency", "-n", "500")) == 104
    plain = in_parts(DEVICES[:1])
    snapshot.restore(plain, path)
    fill(plain, [50, 999], 9.0)
    snapshot.save(plain, path + "2")
    (line,) = run("inspect", "--diff", path + "2")
    assert line.startswith("table t: 0 added, 1 removed, 1 changed, 101 equal")


def test_tables_of_several_devices_have_one_moment_of_each(path):
    tables = [in_parts(DEVICES, "a"), in_parts(DEVICES[:2], "b"), st.table("c")]
    for table in tables:
        fill(table, IDS)
    pending = snapshot.save(tables, path, blocking=False)
    wanted = [st.rows_of(table) for table in tables]
    for table in tables:
        fill(table, [1, 2, 777], 9.0)
    info = pending.wait()
    assert list(info.tables) == ["a", "b", "c"]
    new = [in_parts(DEVICES[:2], "a"), st.table("b"), in_parts(DEVICES, "c")]
    snapshot.restore(new, path)
    assert [st.rows_of(table) for table in new] == wanted


def test_a_cancelled_snapshot_ends_on_all_devices(path, monkeypatch):
    table = in_parts(DEVICES)
    fill(table, IDS)
    original = saving._Saving._write

    def write(self):
        self.cancel()
        return original(self)

    with monkeypatch.context() as patch:
        patch.setattr(saving._Saving, "_write", write)
        with pytest.raises(snapshot.SnapshotError, match="was cancelled"):
            snapshot.save(table, path)
    assert snapshot.save(table, path).version == 1


def test_empty_parts_on_one_device_in_a_relative_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = in_parts(["/CPU:0"] * 3)
    fill(table, [1])
    snapshot.save(table, "here")
    new = in_parts(["/CPU:1", "/CPU:1"])
    snapshot.restore(new, "here")
    assert st.rows_of(new) == {1: [2.0] * 4}
    assert [v.version for v in snapshot.versions(tmp_path / "here")] == [1]


@several_tasks
def test_a_served_model_follows_a_table_in_parts(path, tmp_path):
    ids = keras.Input((1,), dtype="int64", name="ids")
    rows = lodestar.layers.DynamicEmbedding(4, name="t")(ids)
    model = keras.Model({"ids": ids}, rows)
    exported = str(tmp_path / "model")
    lodestar.export.save(model, exported)
    table = in_parts(DEVICES[:2])
    live = lodestar.serving.LiveModel(exported, path, poll_seconds=None)

    def served(*ids):
        (rows,) = live({"ids": tf.constant(ids, tf.int64)[:, None]}).values()
        return tf.reshape(rows, [-1, 4]).numpy().tolist()

    saved(path, table)
    assert live.poll() and live.version() == 2
    rows = st.rows_of(table)
    assert served(95, 50, 2**62) == [rows[95], rows[50], rows[2**62]]
    assert served(3) == [[0.0] * 4]
    # The second copy, and then changes from the files of both parts.
    fill(table, [7000], 2.0)
    snapshot.save(table, path, delta=True)
    assert live.poll() and live.version() == 3
    before = live.stats()
    fill(table, [*range(40, 60), 7000], 3.0)
    table.remove([95, 96])
    snapshot.save(table, path, delta=True)
    assert live.poll() and live.version() == 4
    rows = st.rows_of(table)
    assert served(50, 7000, 99) == [rows[50], rows[7000], rows[99]]
    assert served(95, 96) == [[0.0] * 4] * 2
    stats = live.stats()
    assert stats["full_updates"] == before["full_updates"]
    # With the change before, which the first copy had not yet.
    assert stats["rows_written"] - before["rows_written"] == 22
    assert stats["rows_removed"] - before["rows_removed"] == 2
    # Another number of parts, and then compacted.
    other = in_parts(DEVICES)
    snapshot.restore(other, path)
    fill(other, [50], 5.0)
    snapshot.save(other, path)
    snapshot.compact(path)
    assert live.poll() and live.stats()["last_error"] is None
    assert served(50, 7000) == [st.rows_of(other)[50], rows[7000]]
