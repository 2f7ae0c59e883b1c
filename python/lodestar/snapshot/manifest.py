"""The manifest of a version, which lists its files and names its parent.

It has two lines: JSON, and the CRC32C of the first line in 8 hex digits.
docs/internals/formats.md describes the fields and the labels of files.
"""

import dataclasses
import datetime
import functools
import json
import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from lodestar.ops import snapshot_ops
from lodestar.snapshot.errors import (
    CorruptSnapshotError,
    SnapshotError,
    corrupt_files,
)
from lodestar.version import __version__

FORMAT = 4
NAME = "MANIFEST"
MAX_BYTES = 64 << 20
# Size of the last line.
CHECKSUM_BYTES = 9


@dataclasses.dataclass(frozen=True, slots=True)
class VersionId:
    """The name of a version.

    Its number may be used again once its folder is removed, but its random mark
    is not.
    """

    version: int
    mark: str


# A manifest may have many entries, which take less time and memory with slots.
@dataclasses.dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of a version: its name, size in bytes and CRC32C."""

    file: str
    bytes: int
    crc32c: int


@dataclasses.dataclass(frozen=True, slots=True)
class TableEntry(FileEntry):
    """A file with the rows of a table, or of a part of it, or their changes.

    Attributes:
        name: Name of the table.
        whole: Whether the file holds all rows, rather than those changed since
            the parent.
        dim: Embedding dimension.
        dtype: Data type of the rows.
        optimizer: Optimizer whose slots the rows have, or "".
        slot_names: Names of the optimizer's slots.
        rows: Number of rows in this file.
        removed: Number of ids that were removed since the parent.
        part: Number of this part of the table.
        parts: Number of parts, each in a file of its own.
    """

    name: str
    whole: bool
    dim: int
    dtype: str
    optimizer: str
    slot_names: tuple[str, ...]
    rows: int
    removed: int
    part: int = 0
    parts: int = 1

    def at(self, path: str) -> snapshot_ops.ListedFile:
        """Returns the file at its path with its expected content."""
        return snapshot_ops.ListedFile(
            path, self.crc32c, self.rows, self.removed, self.part, self.parts
        )


@dataclasses.dataclass(frozen=True)
class SavedTable:
    """A table of a version; see `TableEntry` for its attributes.

    `rows`, `removed` and `bytes` are totals over `files`, one file per part.
    `whole` is True if all files are.
    """

    name: str
    dim: int
    dtype: str
    optimizer: str
    slot_names: tuple[str, ...]
    whole: bool
    rows: int
    removed: int
    bytes: int
    files: tuple[TableEntry, ...]


def _saved_table(files: Sequence[TableEntry]) -> SavedTable:
    first = files[0]
    # A part without any gradient so far has no optimizer yet.
    attached = next((file for file in files if file.optimizer), first)
    return SavedTable(
        name=first.name,
        dim=first.dim,
        dtype=first.dtype,
        optimizer=attached.optimizer,
        slot_names=attached.slot_names,
        whole=all(file.whole for file in files),
        rows=sum(file.rows for file in files),
        removed=sum(file.removed for file in files),
        bytes=sum(file.bytes for file in files),
        files=tuple(files),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class BlobEntry:
    """An array in npy format, inside the payloads of a file's BLOB blocks.

    A dtype that NumPy lacks is stored as unsigned integers of the same bits.
    """

    name: str
    file: str
    offset: int
    bytes: int
    dtype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The content of a version.

    `parent` is the version that a delta was made on, and `same_as` the one that
    compaction made this one from. `tables` lists the files of a table by part,
    and `files` all other files. `mark` is part of the labels of files.
    """

    version: int
    mark: str
    parent: VersionId | None
    same_as: VersionId | None
    kind: str
    step: int
    time: str
    tables: tuple[TableEntry, ...]
    blobs: tuple[BlobEntry, ...] = ()
    files: tuple[FileEntry, ...] = ()
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    lodestar: str = __version__

    @property
    def id(self) -> VersionId:
        """The name of this version."""
        return VersionId(self.version, self.mark)

    @property
    def marks(self) -> set[str]:
        """The marks of this version and of the one with the same content."""
        return {other.mark for other in (self.id, self.same_as) if other}

    @functools.cached_property
    def _saved_tables(self) -> dict[str, SavedTable]:
        files: dict[str, list[TableEntry]] = {}
        for file in self.tables:
            files.setdefault(file.name, []).append(file)
        return {name: _saved_table(parts) for name, parts in files.items()}

    def saved_tables(self) -> tuple[SavedTable, ...]:
        """Returns the tables."""
        return tuple(self._saved_tables.values())

    def table(self, name: str) -> SavedTable | None:
        """Returns the table `name`, or None."""
        return self._saved_tables.get(name)

    def all_files(self) -> tuple[FileEntry, ...]:
        """Returns the files of tables and all others."""
        return (*self.tables, *self.files)

    def has_blocks(self, entry: FileEntry) -> bool:
        """Returns whether a file of this version consists of blocks."""
        return isinstance(entry, TableEntry) or any(
            blob.file == entry.file for blob in self.blobs
        )

    def label(self, entry: FileEntry) -> bytes | None:
        """Returns the label that a file must hold, or None."""
        if not self.has_blocks(entry):
            return None
        if not isinstance(entry, TableEntry):
            return make_label(self.mark, self.version, entry.file)
        return make_label(
            self.mark, self.version, entry.name, entry.part, entry.parts
        )


def check_parent(child: Manifest, parent: Manifest, path: str) -> None:
    """Raises CorruptSnapshotError unless a delta was made on this version.

    `path` is the path of the delta's manifest.
    """
    assert child.parent is not None
    if child.parent != parent.id:
        raise CorruptSnapshotError(
            f"{path}: is a delta on version {child.parent.version} with mark "
            f"{child.parent.mark}, but this version has mark {parent.mark} here: "
            "the two have different histories"
        )
    for table in child.saved_tables():
        if table.whole:
            continue
        before = parent.table(table.name)
        own, other = _kind(table), before and _kind(before)
        if own != other:
            raise CorruptSnapshotError(
                f"{path}: the changes of the table {table.name!r} have {own}, but "
                f"in version {parent.version} it has {other or 'no rows'}"
            )


def _kind(table: SavedTable) -> str:
    count = len(table.files)
    parts = "" if count == 1 else f" in {count} parts"
    return f"dim {table.dim} and dtype {table.dtype}{parts}"


def new_mark() -> str:
    """Returns the mark of a new manifest."""
    return uuid.uuid4().hex


_LABEL = struct.Struct("<Q16sI")
_LABEL_PART = struct.Struct("<II")


def make_label(
    mark: str, version: int, name: str, part: int = 0, parts: int = 1
) -> bytes:
    """Returns the label of the file of a table's part, or of blobs, `name`."""
    text = name.encode()
    head = _LABEL.pack(version, bytes.fromhex(mark), len(text))
    place = b"" if parts == 1 else _LABEL_PART.pack(part, parts)
    return head + text + bytes(-len(text) % 4) + place


def label_text(label: bytes) -> str:
    """Describes a label in words."""
    try:
        version, mark, size = _LABEL.unpack_from(label)
        name = label[_LABEL.size : _LABEL.size + size].decode()
        place = label[_LABEL.size + size + -size % 4 :]
        part = ""
        if place:
            part = "part {} of {} of ".format(*_LABEL_PART.unpack(place))
    except (struct.error, UnicodeDecodeError):
        return f"labelled {label!r:.60}"
    return f"{part}{name!r} of version {version} of mark {mark.hex()}"


def now() -> str:
    """Returns the current time in the format of manifests."""
    time = datetime.datetime.now(datetime.UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def check_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns `metadata` as it is read back from a manifest."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping) or not all(
        isinstance(key, str) for key in metadata
    ):
        raise ValueError(
            f"`metadata` must be a dict with strings as keys, got {metadata!r}."
        )
    try:
        return json.loads(json.dumps(dict(metadata), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"`metadata` cannot be written as JSON: {error}"
        ) from None


def _fields(record: Any) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}


def encode(manifest: Manifest) -> bytes:
    """Returns the content of the manifest's file."""
    fields = {"format": FORMAT, **_fields(manifest)}
    data = json.dumps(fields, default=_fields).encode()
    data += b"\n%08x\n" % snapshot_ops.crc32c(data)
    if len(data) > MAX_BYTES:
        raise SnapshotError(
            f"The manifest must have at most {MAX_BYTES} bytes, got {len(data)}. "
            "Pass less `metadata`."
        )
    with corrupt_files():
        snapshot_ops.check_manifest("The new manifest", data)
    return data


def decode(data: bytes, path: str) -> Manifest:
    """Reads a manifest from the content of the file at `path`."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise CorruptSnapshotError(
            f"{path}: byte {error.start} is not UTF-8"
        ) from None
    with corrupt_files():
        snapshot_ops.check_manifest(path, data)
    found = json.loads(data[: data.index(b"\n")])
    for name in ("parent", "same_as"):
        if found[name] is not None:
            (found[name],) = _records(VersionId, [found[name]])
    for name, kind in (
        ("tables", TableEntry),
        ("blobs", BlobEntry),
        ("files", FileEntry),
    ):
        found[name] = _records(kind, found[name])
    (manifest,) = _records(Manifest, [found])
    return manifest


def _records(kind: Any, found: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """Returns dataclasses of the fields of each object; ignores other fields."""
    names = [field.name for field in dataclasses.fields(kind)]
    return tuple(
        [kind(**{name: _frozen(one[name]) for name in names}) for one in found]
    )


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
