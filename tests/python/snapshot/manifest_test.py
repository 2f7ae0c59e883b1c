"""Manifests: writing and reading back; anything else is refused."""

import dataclasses
import json
import time

import numpy as np
import pytest

from lodestar.ops.snapshot_ops import crc32c
from lodestar.snapshot.errors import CorruptSnapshotError, SnapshotError
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import (
    BlobEntry,
    FileEntry,
    Manifest,
    TableEntry,
    VersionId,
    check_metadata,
    decode,
    encode,
    label_text,
)

TABLE = TableEntry(
    file="table-00000",
    bytes=4096,
    crc32c=0xFFFFFFFF,
    name="us\ner/\u00e9",
    whole=False,
    dim=8,
    dtype="bfloat16",
    optimizer="adam",
    slot_names=("m", "v"),
    rows=10,
    removed=2,
)
MANIFEST = Manifest(
    version=7,
    mark="cd" * 16,
    parent=VersionId(6, "0123456789abcdef" * 2),
    same_as=None,
    kind="delta",
    step=-(2**63),
    time="2026-01-02T03:04:05.678Z",
    tables=(TABLE,),
    blobs=(BlobEntry("dense/k", "blobs", 0, 160, "float32", (2, 3)),),
    files=(FileEntry("blobs", 300, 1),),
    metadata={"day": [1, {"a": None}]},
)
# The first part has seen no gradient.
IN_PARTS = dataclasses.replace(
    MANIFEST,
    tables=(
        dataclasses.replace(
            TABLE, file="a", part=0, parts=2, optimizer="", slot_names=()
        ),
        dataclasses.replace(TABLE, file="b", part=1, parts=2),
    ),
)


def signed(line):
    return line + b"\n%08x\n" % crc32c(line)


def with_fields(**changes):
    """Returns the manifest's bytes with other values, or without a field."""
    fields = json.loads(encode(MANIFEST).split(b"\n")[0])
    for path, value in changes.items():
        *outer, name = path.split("__")
        inside = fields
        for part in outer:
            inside = inside[int(part) if part.isdigit() else part]
        name = int(name) if name.isdigit() else name
        if value is KeyError:
            del inside[name]
        else:
            inside[name] = value
    return signed(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "manifest",
    [
        MANIFEST,
        dataclasses.replace(
            MANIFEST,
            kind="full",
            parent=None,
            same_as=VersionId(3, "ef" * 16),
            step=2**63 - 1,
            tables=(dataclasses.replace(TABLE, whole=True),),
            metadata={},
        ),
        dataclasses.replace(MANIFEST, tables=(), blobs=(), files=()),
        IN_PARTS,
    ],
)
def test_round_trip(manifest):
    data = encode(manifest)
    assert data.count(b"\n") == 2 and data.endswith(b"\n")
    assert decode(data, "MANIFEST") == manifest


def test_labels_name_the_file():
    (entry,) = MANIFEST.tables
    label = MANIFEST.label(entry)
    assert label[:8] == bytes([MANIFEST.version, 0, 0, 0, 0, 0, 0, 0])
    assert label[8:24] == b"\xcd" * 16
    size = len(entry.name.encode())
    assert label[24:28] == bytes([size, 0, 0, 0])
    assert label[28:].rstrip(b"\0") == entry.name.encode()
    assert len(label) % 4 == 0


def test_a_version_equals_the_one_that_was_compacted():
    old = VersionId(3, "ef" * 16)
    manifest = dataclasses.replace(MANIFEST, same_as=old)
    assert manifest.marks == {MANIFEST.mark, old.mark}
    assert MANIFEST.marks == {MANIFEST.mark}


def test_tables_have_parts():
    (found,) = decode(encode(IN_PARTS), "MANIFEST").saved_tables()
    assert found == IN_PARTS.table(TABLE.name)
    assert found.files == IN_PARTS.tables
    assert (found.name, found.dim, found.dtype) == (
        TABLE.name,
        TABLE.dim,
        TABLE.dtype,
    )
    assert found.rows == 2 * TABLE.rows and found.bytes == 2 * TABLE.bytes
    assert found.removed == 2 * TABLE.removed
    # A part without any gradient has no optimizer yet.
    assert (found.optimizer, found.slot_names) == (
        TABLE.optimizer,
        TABLE.slot_names,
    )
    assert not found.whole
    labels = [IN_PARTS.label(entry) for entry in IN_PARTS.tables]
    assert labels == [
        MANIFEST.label(TABLE) + bytes([part, 0, 0, 0, 2, 0, 0, 0])
        for part in range(2)
    ]
    assert label_text(labels[1]).startswith(f"part 1 of 2 of {TABLE.name!r} of")


def test_fields_of_later_releases_are_ignored():
    data = with_fields(colour="blue", tables__0__age=3)
    assert decode(data, "MANIFEST") == MANIFEST


def test_another_format_is_refused_by_name():
    data = with_fields(format=5, lodestar="9.9", tables=KeyError)
    message = (
        r"^here/MANIFEST: has format 5, but this Lodestar reads format 4\. Use "
        r"the Lodestar that wrote it, '9\.9'\.$"
    )
    with pytest.raises(SnapshotError, match=message) as caught:
        decode(data, "here/MANIFEST")
    assert not isinstance(caught.value, CorruptSnapshotError)


def test_a_manifest_that_no_reader_accepts_is_not_written():
    large = dataclasses.replace(MANIFEST, metadata={"x": "y" * (64 << 20)})
    with pytest.raises(SnapshotError, match="must have at most 67108864 bytes"):
        encode(large)


def test_time_is_linear_in_the_number_of_parts(tmp_path):
    def seconds(parts):
        """Returns the CPU time of the first and of the second read."""
        folder = SnapshotFolder(tmp_path / str(parts))
        parent = None
        for version in (1, 2):
            manifest = dataclasses.replace(
                MANIFEST,
                version=version,
                parent=parent,
                kind="delta" if parent else "full",
                tables=tuple(
                    dataclasses.replace(
                        TABLE,
                        file=f"table-{number}-{part}",
                        name=f"table_{number}",
                        whole=parent is None,
                        part=part,
                        parts=parts,
                    )
                    for number in range(26)
                    for part in range(parts)
                ),
            )
            path = tmp_path / str(parts) / f"{version:08d}" / "MANIFEST"
            path.parent.mkdir(parents=True)
            path.write_bytes(encode(manifest))
            parent = manifest.id
        began = time.process_time()
        chain = folder.chain(2)
        saved = chain[1].saved_tables()
        assert [len(table.files) for table in saved] == [parts] * 26
        read = time.process_time()
        assert folder.chain(2)[0] is chain[0]
        return read - began, time.process_time() - read

    # Of 16 times the parts, a quadratic reader would take 256 times as long.
    few = min(seconds(64)[0], seconds(65)[0])
    first, second = seconds(1024)
    assert first < 64 * few
    assert second < first / 4


def test_damage_is_found():
    data = encode(MANIFEST)
    for place in range(0, len(data), 3):
        bad = bytearray(data)
        bad[place] ^= 1
        with pytest.raises(CorruptSnapshotError, match="^MANIFEST: byte"):
            decode(bytes(bad), "MANIFEST")
    for size in range(0, len(data), 7):
        with pytest.raises(CorruptSnapshotError, match=r"^MANIFEST: .*\bbyte"):
            decode(data[:size], "MANIFEST")
    with pytest.raises(CorruptSnapshotError, match="must be a checksum of 8"):
        decode(data + b"\n", "MANIFEST")
    changed = data[:-9] + b"00000000\n"
    message = rf"bytes 0 to \d+ have the checksum {data[-9:-1].decode()}, but"
    with pytest.raises(CorruptSnapshotError, match=message):
        decode(changed, "MANIFEST")


# tests/core/snapshot/manifest_test.cc has all fields.
@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "the manifest must be an object"),
        (b"{", "expected a name in quotes"),
        (b"[" * 100000, "the manifest must be an object, got "),
        (b'{"a": ' + b"[" * 100000, "expected at most 200 nested values"),
        (b"{}", "has no `format`"),
        ({"version": 7.0}, "`version` must be .*, got 7.0"),
        ({"metadata": []}, "`metadata` must be an object"),
        ({"tables__0__file": "../t"}, 'the plain name of a file, got "../t"'),
        ({"tables__0__slot_names": [3]}, "`slot_names` must have strings"),
        ({"tables__0__bytes": KeyError}, "has no `bytes`"),
        ({"parent": None}, "`kind` is 'delta', but `parent` is null"),
        ({"tables__0__part": 1}, "'us[?]er/\u00e9' must have the parts 0 to 0"),
    ],
    ids=range(12),
)
def test_invalid_manifests(data, message):
    data = signed(data) if isinstance(data, bytes) else with_fields(**data)
    with pytest.raises(CorruptSnapshotError, match=f"^p/MANIFEST: .*{message}"):
        decode(data, "p/MANIFEST")


# Bytes that are not UTF-8 must not hide the error.
@pytest.mark.parametrize(
    "line, message",
    [
        (b"{\xff", "byte 1 is not UTF-8"),
        ('{"format": "\u00e4"}'.encode(), r'`format` must be .*, got "\u00e4"'),
        ("\u00e4".encode(), "the manifest must be an object, got \u00e4"),
        ('{"\u00e4": \u00e4}'.encode(), "is '\\?', expected a value"),
        (b'{"a\\ud800": 1, "a\\ud800": 1}', r"the name 'a\?+' occurs"),
    ],
)
def test_errors_are_text(line, message):
    with pytest.raises(CorruptSnapshotError, match=f"^MANIFEST: .*{message}"):
        decode(signed(line), "MANIFEST")


def test_metadata_is_json():
    assert check_metadata(None) == {}
    assert check_metadata({"a": (1, 2.5, "x", None, True)}) == {
        "a": [1, 2.5, "x", None, True]
    }


@pytest.mark.parametrize(
    "metadata, message",
    [
        ([1], r"`metadata` must be a dict .*, got \[1\]"),
        ({1: 2}, "must be a dict with strings as keys"),
        ({"a": np.float32(1)}, "cannot be written as JSON"),
        ({"a": float("nan")}, "cannot be written as JSON"),
    ],
)
def test_metadata_that_json_cannot_hold(metadata, message):
    with pytest.raises(ValueError, match=message):
        check_metadata(metadata)
