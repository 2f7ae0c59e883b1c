"""Invalid files cause a SnapshotError that names the file."""

import io
import json
import os
import pathlib
import resource
import shutil

import numpy as np
import pytest
import snapshot_tables as st

import lodestar
from lodestar import snapshot
from lodestar.ops import snapshot_ops
from lodestar.ops.snapshot_ops import crc32c
from lodestar.snapshot import __main__ as command
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import make_label


def tables():
    return [
        st.table("a"),
        st.table("b", dim=2),
        lodestar.lookup.IdTable(["x"], name="words"),
    ]


@pytest.fixture
def path(tmp_path):
    """Saves a full version and a delta."""
    path = str(tmp_path / "snapshots")
    made = tables()
    for t in made[:2]:
        st.fill(t, range(9))
    for delta in (False, True):
        snapshot.save(made, path, delta, dense={"w": np.arange(6.0)})
    return path


def read_manifest(path, version):
    name = os.path.join(path, f"{version:08d}", "MANIFEST")
    return json.loads(pathlib.Path(name).read_bytes().split(b"\n")[0])


def write_manifest(path, version, fields):
    line = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    pathlib.Path(path, f"{version:08d}", "MANIFEST").write_bytes(
        line + b"\n%08x\n" % crc32c(line)
    )


def read_in_every_way(path, capsys):
    """Returns the error messages of all readers; other errors fail the test."""
    new = tables()
    texts = []
    for call in (
        lambda: snapshot.versions(path),
        lambda: snapshot.restore(new, path),
        lambda: st.dense(path),
        lambda: snapshot.verify(path),
        lambda: snapshot.compact(path),
    ):
        copy = path + ".copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy, symlinks=True)
        try:
            call()
        except snapshot.SnapshotError as error:
            texts.append(str(error))
        shutil.rmtree(path)
        os.rename(copy, path)
    for arguments in (["inspect"], ["inspect", "--id", "3"]):
        code = command.main([arguments[0], path, *arguments[1:]])
        said = capsys.readouterr().err
        assert code in (0, 1) and "Traceback" not in said
    assert all(path in text for text in texts), texts
    return texts


_ODD = [
    None,
    True,
    -1,
    0,
    3,
    2**62,
    2**70,
    1.5,
    "",
    "a",
    "blobs",
    "table-00000",
    "../x",
    "float32",
    "resource",
    "\0",
    "\ud800",
    [],
    [3],
    [2**40],
    [[[]]],
    {},
    {"a": 1},
]


def mutate(rng, fields):
    """Replaces a deeply nested field by an odd value."""
    inside = fields
    while True:
        keys = list(inside if isinstance(inside, dict) else range(len(inside)))
        key = keys[rng.integers(len(keys))]
        value = inside[key]
        if isinstance(value, (dict, list)) and value and rng.random() < 0.8:
            inside = value
            continue
        chosen = rng.integers(len(_ODD) + 2)
        if chosen < len(_ODD):
            inside[key] = _ODD[chosen]
        elif isinstance(inside, dict):
            del inside[key]
        else:
            inside.append(value)
        return


def test_manifests(path, rng, capsys):
    wrong = 0
    good = {v: read_manifest(path, v) for v in (1, 2)}
    for _ in range(50):
        version = int(rng.integers(1, 3))
        fields = json.loads(json.dumps(good[version]))
        for _ in range(rng.integers(1, 3)):
            mutate(rng, fields)
        write_manifest(path, version, fields)
        wrong += bool(read_in_every_way(path, capsys))
        write_manifest(path, version, good[version])
    assert wrong > 30
    assert read_in_every_way(path, capsys) == []


def test_metadata_of_any_depth_is_read_or_a_snapshot_error(path, capsys):
    fields = read_manifest(path, 2)
    for depth in (150, 300, 2000):
        text = json.dumps({**fields, "metadata": {"deep": "HERE"}})
        deep = "[" * depth + "]" * depth
        write_manifest(path, 2, text.replace('"HERE"', deep).encode())
        assert bool(read_in_every_way(path, capsys)) == (depth > 150)
    write_manifest(path, 2, fields)
    # What cannot be read is not written.
    metadata = {"deep": json.loads("[" * 300 + "]" * 300)}
    with pytest.raises(snapshot.SnapshotError, match="at most 200 nested"):
        snapshot.save(tables(), path, metadata=metadata)
    assert len(snapshot.versions(path)) == 2


@pytest.mark.parametrize("name", ["rows", "removed"])
def test_a_table_file_of_other_numbers(path, name):
    fields = read_manifest(path, 2)
    fields["tables"][0][name] += 1
    write_manifest(path, 2, fields)
    message = r"table-00000: has \d+ rows .*, but \d+ and \d+ in the manifest"
    with pytest.raises(snapshot.CorruptSnapshotError, match=message):
        snapshot.verify(path)


def npy(array):
    out = io.BytesIO()
    np.lib.format.write_array(out, array)
    return out.getvalue()


def header(text):
    text = text.encode("latin1")
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY",
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (6,), "),
        header("((((("),
        header("'''"),
        header("(" * 900 + ")" * 900),
        header("-" * 9000 + "1"),
        header("{'descr': '|O', 'fortran_order': False, 'shape': (6,), }"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (6,), }"),
        header("{'descr': '<f8', 'fortran_order': 3, 'shape': (6, 2.0), }"),
        header(
            "{'descr': '<f8', 'fortran_order': False, "
            "'shape': (1099511627776, 1099511627776), }"
        ),
        header("{'descr': ['x'], 'fortran_order': False, 'shape': (6,), }"),
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        b"\x93NUMPY\x09\x00" + bytes(90),
        npy(np.arange(6)),
        npy(np.arange(5.0)),
    ],
)
@pytest.mark.parametrize("name", ["dense/w", "id_table/words/ids"])
def test_blobs(path, data, name, capsys):
    fields = read_manifest(path, 2)
    blob = next(b for b in fields["blobs"] if b["name"] == name)
    file = os.path.join(path, "00000002", "blobs")
    os.unlink(file)
    written = snapshot_ops.write_blobs(
        file, [data, b"."], make_label(fields["mark"], 2, "blobs")
    )
    entry = next(f for f in fields["files"] if f["file"] == "blobs")
    entry |= {"bytes": written.bytes, "crc32c": written.crc32c}
    fields["blobs"] = [{**blob, "offset": 0, "bytes": max(1, len(data))}]
    write_manifest(path, 2, fields)
    texts = read_in_every_way(path, capsys)
    assert any("00000002/blobs: the blob" in text for text in texts)


def test_arrays_of_an_id_table_that_do_not_fit(path, capsys):
    fields = read_manifest(path, 2)
    blobs = fields["blobs"]
    parts = [b for b in blobs if b["name"].startswith("id_table/")]
    assert len(parts) == 3
    for left in parts:
        changed = [b for b in blobs if b is not left]
        write_manifest(path, 2, {**fields, "blobs": changed})
        assert read_in_every_way(path, capsys)
        for name in ("id_table/words/other", "id_table/words", "id_table/"):
            renamed = [*changed, {**left, "name": name}]
            write_manifest(path, 2, {**fields, "blobs": renamed})
            read_in_every_way(path, capsys)


def test_a_table_file_of_a_later_version(path, capsys):
    file = os.path.join(path, "00000002", "table-00000")
    data = bytearray(pathlib.Path(file).read_bytes())
    data[8] = 9
    data[12:16] = crc32c(bytes(data[:12])).to_bytes(4, "little")
    pathlib.Path(file).write_bytes(data)
    texts = read_in_every_way(path, capsys)
    assert any("version 9, but only version 2" in text for text in texts)


def test_special_files(path, tmp_path, capsys):
    other = tmp_path / "other"
    for name in ("00000002/MANIFEST", "00000002/table-00000"):
        file = os.path.join(path, name)
        os.rename(file, other)
        os.mkfifo(file)
        with pytest.raises(snapshot.SnapshotError, match=name):
            snapshot.restore(tables(), path)
        with pytest.raises(snapshot.SnapshotError, match=name):
            snapshot.verify(path)
        os.unlink(file)
        os.mkdir(file)
        with pytest.raises(snapshot.SnapshotError, match=name):
            snapshot.restore(tables(), path)
        os.rmdir(file)
        os.rename(other, file)
    manifest = os.path.join(path, "00000002", "MANIFEST")
    os.rename(manifest, other)
    os.mkfifo(tmp_path / "pipe")
    for target in (other, tmp_path / "pipe", tmp_path / "none"):
        os.symlink(target, manifest)
        with pytest.raises(
            snapshot.CorruptSnapshotError,
            match="00000002/MANIFEST: is not a regular file",
        ):
            snapshot.restore(tables(), path)
        os.unlink(manifest)
    os.rename(other, manifest)
    snapshot.verify(path)


def test_a_lock_that_is_a_link_is_not_followed(path, tmp_path):
    lock = os.path.join(path, "LOCK")
    os.unlink(lock)
    other = tmp_path / "other"
    other.write_text("precious")
    made = tables()
    for make in (
        lambda: os.symlink(other, lock),
        lambda: os.symlink(tmp_path / "none", lock),
        lambda: os.mkfifo(lock),
    ):
        make()
        for write in (
            lambda: snapshot.save(made, path),
            lambda: snapshot.compact(path),
        ):
            with pytest.raises(
                snapshot.SnapshotError, match="LOCK: is not a regular file"
            ):
                write()
        os.unlink(lock)
    assert other.read_text() == "precious"
    assert not (tmp_path / "none").exists()
    assert snapshot.save(made, path).version == 3


def test_folders_of_many_nines_hide_nothing(path):
    made = tables()
    os.mkdir(os.path.join(path, "9" * 18))
    info = snapshot.save(made, path)
    assert info.version == 10**18
    assert snapshot.restore(tables(), path).version == 10**18
    assert snapshot.save(made, path, delta=True).version == 10**18 + 1
    assert len(snapshot.versions(path)) == 4
    # A number too large for a manifest is not a version.
    os.mkdir(os.path.join(path, "9" * 19))
    os.mkdir(os.path.join(path, "9" * 40))
    assert snapshot.save(made, path).version == 10**18 + 2
    last = os.path.join(path, f"{2**63 - 1}")
    os.mkdir(last)
    with pytest.raises(snapshot.SnapshotError, match=f"{last}: is the last"):
        snapshot.save(made, path)
    os.rmdir(last)
    snapshot.save(made, path)
    assert SnapshotFolder(path).newest_version() == 10**18 + 3


def test_a_chain_longer_than_files_can_be_open(tmp_path):
    path = str(tmp_path / "chain")
    t = st.table()
    st.fill(t, [0])
    snapshot.save(t, path)
    for number in range(1, 80):
        st.fill(t, [number])
        snapshot.save(t, path, delta=True)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 40, before[1]))
    try:
        new = st.table()
        assert snapshot.restore(new, path).restored == {"t": 80}
        snapshot.verify(path)
        snapshot.compact(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert st.content(new) == st.content(t)
    snapshot.restore(new, path)
    assert st.content(new) == st.content(t)
