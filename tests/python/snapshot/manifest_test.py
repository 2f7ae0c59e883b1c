"""Manifests: writing and reading back; anything else is refused."""

import dataclasses
import json

import numpy as np
import pytest

from lodestar.snapshot.crc32c import crc32c
from lodestar.snapshot.errors import CorruptSnapshotError, SnapshotError
from lodestar.snapshot.manifest import (
    BlobEntry,
    FileEntry,
    Manifest,
    TableEntry,
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
    root="0123456789abcdef" * 2,
    version=7,
    parent=6,
    same_as=None,
    kind="delta",
    step=-(2**63),
    time="2026-01-02T03:04:05.678Z",
    tables=(TABLE,),
    blobs=(BlobEntry("dense/k", "blobs", 0, 160, "float32", (2, 3)),),
    files=(FileEntry("blobs", 300, 1),),
    metadata={"day": [1, {"a": None}]},
    mark="cd" * 16,
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
            same_as=3,
            step=2**63 - 1,
            tables=(dataclasses.replace(TABLE, whole=True),),
            metadata={},
        ),
        dataclasses.replace(MANIFEST, tables=(), blobs=(), files=()),
        dataclasses.replace(MANIFEST, mark=None),
        IN_PARTS,
    ],
)
def test_round_trip(manifest):
    data = encode(manifest)
    assert data.count(b"\n") == 2 and data.endswith(b"\n")
    assert decode(data, "MANIFEST") == manifest


def test_format_1_has_no_mark():
    old = dataclasses.replace(MANIFEST, mark=None)
    assert encode(old).startswith(b'{"format": 1,')
    assert encode(MANIFEST).startswith(b'{"format": 2,')
    assert decode(with_fields(format=1, mark=KeyError), "MANIFEST") == old
    assert decode(with_fields(format=1, mark=7), "MANIFEST") == old
    (entry,) = old.tables
    assert old.label(entry) is None
    label = MANIFEST.label(entry)
    assert label[:8] == bytes([MANIFEST.version, 0, 0, 0, 0, 0, 0, 0])
    assert label[8:24] == b"\xcd" * 16
    size = len(entry.name.encode())
    assert label[24:28] == bytes([size, 0, 0, 0])
    assert label[28:].rstrip(b"\0") == entry.name.encode()
    assert len(label) % 4 == 0


def test_format_3_has_tables_in_parts():
    assert encode(IN_PARTS).startswith(b'{"format": 3,')
    # Without parts the bytes are the same, so that older readers accept them.
    assert b"part" not in encode(MANIFEST)
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


@pytest.mark.parametrize(
    "parts, message",
    [
        ([(0, 2)], "must have the parts 0 to 1 of 2 in order, got 0 of 2"),
        ([(1, 2), (0, 2)], "0 to 1 of 2 in order, got 1 of 2, 0 of 2"),
        ([(0, 2), (1, 3)], "0 to 1 of 2 in order, got 0 of 2, 1 of 3"),
        ([(0, 2), (1, 2), (1, 2)], "in order, got 0 of 2, 1 of 2, 1 of 2"),
        ([(1, 1)], "must have the parts 0 to 0 of 1 in order, got 1 of 1"),
        ([(0, 2), (0, 2)], "has 2 entries of the table"),
    ],
)
def test_a_table_has_all_of_its_parts_once(parts, message):
    broken = dataclasses.replace(
        IN_PARTS,
        tables=tuple(
            dataclasses.replace(TABLE, file=f"t{i}", part=part, parts=count)
            for i, (part, count) in enumerate(parts)
        ),
    )
    data = encode(broken)
    if all(count == 1 for _, count in parts):
        data = encode(IN_PARTS).partition(b"\n")[0]
        fields = json.loads(data)
        fields["tables"] = [{**fields["tables"][0], "part": 1, "parts": 1}]
        data = signed(json.dumps(fields).encode())
    with pytest.raises(CorruptSnapshotError, match=message):
        decode(data, "MANIFEST")


def test_parts_are_of_one_dim():
    tables = list(IN_PARTS.tables)
    tables[1] = dataclasses.replace(tables[1], dim=tables[1].dim + 1)
    broken = dataclasses.replace(IN_PARTS, tables=tuple(tables))
    with pytest.raises(CorruptSnapshotError, match="has parts of dim 8 and 9"):
        decode(encode(broken), "MANIFEST")


def test_fields_of_later_releases_are_ignored():
    data = with_fields(colour="blue", tables__0__age=3)
    assert decode(data, "MANIFEST") == MANIFEST


def test_a_later_format_is_refused_by_name():
    with pytest.raises(
        SnapshotError,
        match=r"^here/MANIFEST: has format 4, but Lodestar \S+ reads formats up "
        r"to 3\. .*written by '9.9'",
    ) as caught:
        decode(
            with_fields(format=4, lodestar="9.9", tables=KeyError),
            "here/MANIFEST",
        )
    assert not isinstance(caught.value, CorruptSnapshotError)


def test_every_flipped_byte_is_found():
    data = encode(MANIFEST)
    for place in range(len(data)):
        for bit in (1, 0x80):
            bad = bytearray(data)
            bad[place] ^= bit
            with pytest.raises(CorruptSnapshotError, match="^MANIFEST: byte"):
                decode(bytes(bad), "MANIFEST")


def test_every_shorter_and_longer_file_is_found():
    data = encode(MANIFEST)
    for size in range(len(data)):
        with pytest.raises(CorruptSnapshotError, match=r"^MANIFEST: .*\bbyte"):
            decode(data[:size], "MANIFEST")
    with pytest.raises(CorruptSnapshotError, match="must be a checksum of 8"):
        decode(data + b"\n", "MANIFEST")


@pytest.mark.parametrize(
    "line, message",
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"[" * 100000, "is not JSON"),
        (b"\xff", "is not JSON"),
        (b'{"format": NaN}', "NaN is not a number"),
        (b"[]", r"the manifest must be an object, got \[\]"),
        (b"{}", "has no `format`"),
    ],
    ids=range(7),
)
def test_invalid_manifests(line, message):
    with pytest.raises(CorruptSnapshotError, match=message):
        decode(signed(line), "MANIFEST")


_OTHER = "x" * 32


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"format": 0}, "`format` must be an integer in \\[1, .*, got 0"),
        ({"format": True}, "`format` must be .*, got True"),
        ({"root": _OTHER}, "`root` must be 32 hex digits, got 'x"),
        ({"mark": _OTHER}, "`mark` must be 32 hex digits, got 'x"),
        ({"version": 0}, "`version` must be .*, got 0"),
        ({"version": 7.0}, "`version` must be .*, got 7.0"),
        ({"version": 2**63}, "`version` must be .*, got 9223372036854775808"),
        ({"parent": 7}, "`parent` must be a version before 7, got 7"),
        ({"same_as": 8}, "`same_as` must be a version before 7, got 8"),
        ({"parent": None}, "`kind` is 'delta', but `parent` is None"),
        ({"kind": "full"}, "`kind` is 'full', but `parent` is 6"),
        (
            {"kind": "full", "parent": None},
            "'full', but the table .* is not whole",
        ),
        ({"kind": "half"}, "`kind` must be 'full' or 'delta', got 'half'"),
        ({"step": 2**63}, "`step` must be "),
        ({"time": 5}, "`time` must be a string, got 5"),
        ({"lodestar": None}, "`lodestar` must be .*, got None"),
        ({"metadata": []}, "`metadata` must be "),
        ({"tables": {}}, "`tables` must be a list, got {}"),
        ({"tables__0": 3}, "a file must be an object, got 3"),
        ({"tables__0__name": ""}, "`name` must be a name, got ''"),
        (
            {"tables__0__file": "../t"},
            r"`file` must be the plain.*, got '../t'",
        ),
        ({"tables__0__file": "a/b"}, "`file` must be "),
        ({"tables__0__file": ".."}, "`file` must be "),
        ({"tables__0__file": "MANIFEST"}, "`file` must be "),
        ({"tables__0__file": "blobs"}, "2 entries of the file 'blobs'"),
        ({"tables__0__bytes": -1}, "`bytes` must be .*, got -1"),
        ({"tables__0__crc32c": 2**32}, "`crc32c` must be .*, got 4294967296"),
        ({"tables__0__whole": 1}, "`whole` must be true or false, got 1"),
        (
            {"tables__0__dim": 0},
            "`dim` must be an integer in \\[1, 65536\\], got 0",
        ),
        ({"tables__0__dim": 65537}, "`dim` must be .*, got 65537"),
        ({"tables__0__dtype": "int8"}, "`dtype` must be one of.*, got 'int8'"),
        ({"tables__0__slot_names": [3]}, "`slot_names` must be .*, got 3"),
        ({"tables__0__rows": -1}, "`rows` must be .*, got -1"),
        ({"tables__0__removed": "2"}, "`removed` must be .*, got '2'"),
        ({"blobs__0__file": "c"}, "'dense/k' is in 'c', which is not in"),
        ({"blobs__0__offset": -1}, "`offset` must be .*, got -1"),
        ({"blobs__0__bytes": 0}, "`bytes` must be .*, got 0"),
        ({"blobs__0__shape": [2, -3]}, "`shape` must be .*, got -3"),
        ({"files__0__file": 3}, "`file` must be .*, got 3"),
    ],
    ids=str,
)
def test_fields_out_of_range(changes, message):
    with pytest.raises(CorruptSnapshotError, match=f"^p/MANIFEST: .*{message}"):
        decode(with_fields(**changes), "p/MANIFEST")


@pytest.mark.parametrize("name", json.loads(encode(MANIFEST).split(b"\n")[0]))
def test_missing_fields(name):
    with pytest.raises(CorruptSnapshotError, match=f"has no `{name}`"):
        decode(with_fields(**{name: KeyError}), "MANIFEST")


def test_two_tables_of_one_name():
    fields = json.loads(encode(MANIFEST).split(b"\n")[0])
    fields["tables"].append({**fields["tables"][0], "file": "t"})
    with pytest.raises(
        CorruptSnapshotError, match="2 entries of the table 'us"
    ):
        decode(signed(json.dumps(fields).encode()), "MANIFEST")


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
