"""Ops of snapshot files: their results and errors."""

import os
import pathlib
import struct

import pytest
import tensorflow as tf
from random_arguments import call, default_dtype, op_def
from snapshot_files import flipped, random_input

from lodestar.ops import snapshot_ops

BLOB, END, LABEL = 7, 8, 9


def read_blocks(path):
    """Returns all blocks of a file."""
    blocks = [snapshot_ops.read_block(path)]
    while blocks[-1].next is not None:
        blocks.append(snapshot_ops.read_block(path, blocks[-1].next))
    return blocks


@pytest.fixture
def blobs(tmp_path):
    """Writes a file of two blobs."""
    path = str(tmp_path / "blobs")
    snapshot_ops.write_blobs(path, [b"abc", b"\0" * 100], b"label")
    return path


def test_blobs_are_written_and_read(tmp_path):
    path = str(tmp_path / "blobs")
    big = os.urandom(20 << 20)
    written = snapshot_ops.write_blobs(path, [b"abc", b"", big], b"label")
    assert written.bytes == os.path.getsize(path)
    blocks = read_blocks(path)
    assert [block.kind for block in blocks] == [LABEL, *[BLOB] * 3, END]
    assert snapshot_ops.read_label(path) == blocks[0].payload == b"label"
    assert blocks[1].payload == b"abc"
    assert b"".join(block.payload for block in blocks[2:-1]) == big
    assert written == snapshot_ops.file_crc(path)
    verified = snapshot_ops.verify_file(path)
    assert verified == (written.bytes, written.crc32c, 0, 0)
    for crc in (-1, written.crc32c):
        assert snapshot_ops.read_blobs(path, crc) == b"abc" + big
    with pytest.raises(tf.errors.DataLossError, match="but 7 in its manifest"):
        snapshot_ops.read_blobs(path, 7)


def test_no_blobs_are_a_file_too(tmp_path):
    path = str(tmp_path / "none")
    snapshot_ops.write_blobs(path, [], b"x")
    assert [block.kind for block in read_blocks(path)] == [LABEL, END]
    snapshot_ops.verify_file(path)


# With the check value of CRC-32C.
@pytest.mark.parametrize(
    "data, crc",
    [(b"123456789", 0xE3069283), (b"", 0), (b"\0" * 32, 0x8A9136AA)],
)
def test_checksums(data, crc, tmp_path):
    assert snapshot_ops.crc32c(data) == crc
    path = tmp_path / "file"
    path.write_bytes(data)
    assert snapshot_ops.file_crc(str(path)) == (len(data), crc)


def test_a_path_may_be_any_bytes(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xc3\xa4")
    written = snapshot_ops.write_blobs(path, [b"x"], b"label")
    assert os.path.exists(path)
    assert snapshot_ops.file_crc(path) == written


def test_damage_is_found_and_placed(blobs):
    good = pathlib.Path(blobs).read_bytes()
    for at in range(0, len(good), 3):
        flipped(blobs, at)
        with pytest.raises(tf.errors.DataLossError, match=f"'{blobs}', byte "):
            snapshot_ops.verify_file(blobs)
        pathlib.Path(blobs).write_bytes(good)
    for size in range(0, len(good), 17):
        pathlib.Path(blobs).write_bytes(good[:size])
        with pytest.raises(tf.errors.DataLossError, match=f"'{blobs}', byte "):
            snapshot_ops.verify_file(blobs)


def test_blocks_begin_where_blocks_begin(blobs):
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="byte 17: no block begins here"
    ):
        snapshot_ops.read_block(blobs, 17)
    with pytest.raises(tf.errors.DataLossError, match="byte 24: the block beg"):
        snapshot_ops.read_block(blobs, 24)
    with pytest.raises(tf.errors.DataLossError, match="the file ends here"):
        snapshot_ops.read_block(blobs, 1 << 40)


def test_a_flipped_bit_of_a_payload_is_found_by_its_reader(blobs):
    flipped(blobs, 16 + 32)
    with pytest.raises(tf.errors.DataLossError, match="the LABEL block's"):
        snapshot_ops.read_block(blobs)


READERS = [
    snapshot_ops.read_blobs,
    snapshot_ops.verify_file,
    snapshot_ops.read_block,
    snapshot_ops.file_crc,
]


@pytest.mark.parametrize("read", READERS)
def test_read_errors_are_reported(read, tmp_path):
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
        tf.errors.InvalidArgumentError, match="`path` contains a NUL byte"
    ):
        read(missing + "\0")


def test_write_errors_are_reported(blobs, tmp_path):
    before = pathlib.Path(blobs).read_bytes()
    with pytest.raises(tf.errors.AlreadyExistsError) as raised:
        snapshot_ops.write_blobs(blobs, [b"x"], b"label")
    assert f"cannot create '{blobs}': File exists" in raised.value.message
    assert pathlib.Path(blobs).read_bytes() == before
    with pytest.raises(tf.errors.NotFoundError, match="cannot create"):
        snapshot_ops.write_blobs(
            str(tmp_path / "no" / "folder"), [b"x"], b"label"
        )


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
        ("Crc", {"data": ["x"]}, "`data` must have rank 0"),
        (
            "CheckManifest",
            {"path": ["x"], "content": ""},
            "`path` must have rank 0",
        ),
        (
            "CheckManifest",
            {"path": "x", "content": [""]},
            "`content` must have rank 0",
        ),
        ("ReadBlobs", {"path": ["x"], "listed": 1}, "`path` must have rank 0"),
        ("ReadBlobs", {"path": "x", "listed": [1]}, "`listed` must have rank"),
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
        key: tf.constant(
            value, tf.int64 if key in ("offset", "listed") else tf.string
        )
        for key, value in arguments.items()
    }
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        call(f"Snapshot{name}", **arguments)
    assert message in raised.value.message
    assert not list(tmp_path.iterdir())


FILE_OPS = [
    "SnapshotVerifyFile",
    "SnapshotReadBlock",
    "SnapshotReadBlobs",
    "SnapshotWriteBlobs",
    "SnapshotCheckManifest",
    "SnapshotCrc",
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
    assert taken or name == "SnapshotCheckManifest"
    snapshot_ops.verify_file(blobs)
