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


@pytest.mark.parametrize("number", [3, 5])
def test_another_format_is_refused_by_name(number):
    with pytest.raises(
        SnapshotError,
        match=rf"^here/MANIFEST: has format {number}, but Lodestar \S+ reads "
        r"format 4\. .*wrote it, '9.9'",
    ) as caught:
        decode(
            with_fields(format=number, lodestar="9.9", tables=KeyError),
            "here/MANIFEST",
        )
    assert not isinstance(caught.value, CorruptSnapshotError)


def test_a_manifest_that_no_reader_accepts_is_not_written():
    large = dataclasses.replace(MANIFEST, metadata={"x": "y" * (64 << 20)})
    with pytest.raises(SnapshotError, match="must have at most 67108864 bytes"):
        encode(large)


# Quadratic in the number of files, it took ten seconds per manifest.
def test_time_is_linear_in_the_number_of_parts(tmp_path):
    folder = SnapshotFolder(tmp_path)
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
                    parts=1024,
                )
                for number in range(26)
                for part in range(1024)
            ),
        )
        (tmp_path / f"{version:08d}").mkdir()
        path = tmp_path / f"{version:08d}" / "MANIFEST"
        path.write_bytes(encode(manifest))
        parent = manifest.id
    began = time.perf_counter()
    chain = folder.chain(2)
    assert [len(saved.files) for saved in chain[1].saved_tables()] == [
        1024
    ] * 26
    # Leaves room for busy machines.
    assert time.perf_counter() - began < 3
    began = time.perf_counter()
    assert folder.chain(2)[0] is chain[0]
    assert time.perf_counter() - began < 0.2


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
        ({"mark": _OTHER}, "`mark` must be 32 hex digits, got 'x"),
        ({"version": 0}, "`version` must be .*, got 0"),
        ({"version": 7.0}, "`version` must be .*, got 7.0"),
        ({"version": 2**63}, "`version` must be .*, got 9223372036854775808"),
        ({"parent": 6}, "a version must be an object, got 6"),
        ({"parent__mark": KeyError}, "has no `mark`"),
        ({"parent__version": 7}, "`parent` must be a version before 7, got 7"),
        (
            {"same_as": {"version": 8, "mark": "ab" * 16}},
            "`same_as` must be a version before 7, got 8",
        ),
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
