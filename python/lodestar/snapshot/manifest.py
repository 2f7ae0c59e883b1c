"""The manifest of a version, which lists its files and names its parent.

It has two lines: JSON, and the CRC32C of the first line in 8 hex digits.
docs/internals/formats.md describes the fields and the labels of files.
"""

import collections
import contextlib
import dataclasses
import datetime
import functools
import gc
import json
import re
import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lodestar.ops import snapshot_ops
from lodestar.snapshot.errors import CorruptSnapshotError, SnapshotError
from lodestar.snapshot.fields import (
    flag,
    integer,
    list_of,
    or_none,
    read_by,
    read_fields,
    record,
    records,
    table_of,
    text,
    value,
)
from lodestar.version import __version__

FORMAT = 4
NAME = "MANIFEST"
MAX_BYTES = 64 << 20
DTYPES = ("float32", "float64", "float16", "bfloat16")
_MAX_CRC = 2**32 - 1
_MAX_DIM = 1 << 16
_MAX_PARTS = 2**31 - 1
_ID = text(re.compile(r"[0-9a-f]{32}").fullmatch, "32 hex digits")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
# Not a path, which might lead out of the version's folder.
_PLAIN_NAME = text(
    lambda name: _FILE_NAME.fullmatch(name) and name != NAME,
    "the plain name of a file",
)
_CHECKSUM = re.compile(rb"[0-9a-f]{8}\n")
# Size of the last line.
CHECKSUM_BYTES = 9


class VersionId(NamedTuple):
    """The name of a version.

    Its number may be used again once its folder is removed, but its random mark
    is not.
    """

    version: int
    mark: str


_VERSION_ID = record(
    "a version", {"version": integer(1), "mark": _ID}, VersionId
)


# A manifest may have many entries, which take less time and memory with slots.
@dataclasses.dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of a version: its name, size in bytes and CRC32C."""

    file: str = read_by(_PLAIN_NAME)
    bytes: int = read_by(integer(0))
    crc32c: int = read_by(integer(0, _MAX_CRC))


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

    name: str = read_by(text(bool, "a name"))
    whole: bool = read_by(flag)
    dim: int = read_by(integer(1, _MAX_DIM))
    dtype: str = read_by(text(DTYPES.__contains__, f"one of {DTYPES}"))
    optimizer: str = read_by(text())
    slot_names: tuple[str, ...] = read_by(list_of(text()))
    rows: int = read_by(integer(0))
    removed: int = read_by(integer(0))
    part: int = read_by(integer(0, _MAX_PARTS), default=0)
    parts: int = read_by(integer(1, _MAX_PARTS), default=1)

    @property
    def listed(self) -> snapshot_ops.Listed:
        """What the file must contain."""
        return snapshot_ops.Listed(self.crc32c, self.rows, self.removed)


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

    name: str = read_by(text(bool, "a name"))
    file: str = read_by(_PLAIN_NAME)
    offset: int = read_by(integer(0))
    bytes: int = read_by(integer(1))
    dtype: str = read_by(text(bool, "a dtype"))
    shape: tuple[int, ...] = read_by(list_of(integer(0)))


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The content of a version.

    `parent` is the version that a delta was made on, and `same_as` the one that
    compaction made this one from. `tables` lists the files of a table by part,
    and `files` all other files. `mark` is part of the labels of files.
    """

    version: int = read_by(integer(1))
    mark: str = read_by(_ID)
    parent: VersionId | None = read_by(or_none(_VERSION_ID))
    same_as: VersionId | None = read_by(or_none(_VERSION_ID))
    kind: str = read_by(
        text(("full", "delta").__contains__, "'full' or 'delta'")
    )
    step: int = read_by(integer(-(2**63)))
    time: str = read_by(text())
    tables: tuple[TableEntry, ...] = read_by(records("a file", TableEntry))
    blobs: tuple[BlobEntry, ...] = read_by(
        records("a blob", BlobEntry), default=()
    )
    files: tuple[FileEntry, ...] = read_by(
        records("a file", FileEntry), default=()
    )
    metadata: Mapping[str, Any] = read_by(
        value(lambda found: isinstance(found, dict), "an object"),
        default_factory=dict,
    )
    lodestar: str = read_by(text(), default=__version__)

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


def label_text(label: bytes | None) -> str:
    """Describes a label in words."""
    if label is None:
        return "without a label"
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


def encode(manifest: Manifest) -> bytes:
    """Returns the content of the manifest's file."""
    fields: dict[str, Any] = {"format": FORMAT}
    for field in dataclasses.fields(manifest):
        value = getattr(manifest, field.name)
        if field.name in ("tables", "files", "blobs"):
            names = table_of(type(value[0])) if value else ()
            value = [{n: getattr(entry, n) for n in names} for entry in value]
        elif isinstance(value, VersionId):
            value = value._asdict()
        fields[field.name] = value
    data = json.dumps(fields).encode()
    data += b"\n%08x\n" % snapshot_ops.crc32c(data)
    if len(data) > MAX_BYTES:
        raise SnapshotError(
            f"The manifest must have at most {MAX_BYTES} bytes, got {len(data)}. "
            "Pass less `metadata`."
        )
    return data


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Pauses the garbage collector, which would visit all objects repeatedly.

    A large manifest has 100,000 objects without cycles.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_collector_paused()
def decode(data: bytes, path: str) -> Manifest:
    """Reads a manifest from the content of the file at `path`."""
    end = data.find(b"\n")
    if end < 0:
        raise CorruptSnapshotError(
            f"{path}: ends at byte {len(data)}, inside its first line of JSON"
        )
    line, checksum = data[:end], data[end + 1 :]
    if not _CHECKSUM.fullmatch(checksum):
        raise CorruptSnapshotError(
            f"{path}: byte {end + 1} must be a checksum of 8 hex digits and "
            f"the end of the line and file, got {checksum[:16]!r}"
        )
    found = snapshot_ops.crc32c(line)
    if found != int(checksum, 16):
        raise CorruptSnapshotError(
            f"{path}: bytes 0 to {end} have the checksum {found:08x}, but "
            f"byte {end + 1} has {checksum[:8].decode()}"
        )
    try:
        fields = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise CorruptSnapshotError(f"{path}: is not JSON: {error}") from None
    try:
        head = read_fields("the manifest", {"format": integer(1)}, fields)
        number = head["format"]
        if number != FORMAT:
            raise SnapshotError(
                f"{path}: has format {number}, but Lodestar {__version__} "
                f"reads format {FORMAT}. Use the Lodestar that wrote it, "
                f"{fields.get('lodestar')!r}."
            )
        manifest = Manifest(
            **read_fields("the manifest", table_of(Manifest), fields)
        )
        _check(manifest)
    except ValueError as error:
        raise CorruptSnapshotError(f"{path}: {error}") from None
    return manifest


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _check(found: Manifest) -> None:
    """Raises ValueError unless the fields are consistent."""
    for what, names in (
        ("table", [t.name for t in found.tables if t.part == 0]),
        ("file", [f.file for f in found.all_files()]),
        ("blob", [b.name for b in found.blobs]),
    ):
        for name, count in collections.Counter(names).items():
            if count > 1:
                raise ValueError(f"has {count} entries of the {what} {name!r}")
    for saved in found.saved_tables():
        _check_parts(saved)
    files = {f.file for f in found.files}
    for blob in found.blobs:
        if blob.file not in files:
            raise ValueError(
                f"the blob {blob.name!r} is in {blob.file!r}, which is not in "
                "`files`"
            )
    for name in ("parent", "same_as"):
        other = getattr(found, name)
        if other is not None and other.version >= found.version:
            raise ValueError(
                f"`{name}` must be a version before {found.version}, got "
                f"{other.version}"
            )
    if (found.kind == "full") != (found.parent is None):
        raise ValueError(
            f"`kind` is {found.kind!r}, but `parent` is "
            f"{found.parent and found.parent.version}"
        )
    for table in found.tables:
        if found.kind == "full" and not table.whole:
            raise ValueError(
                f"`kind` is 'full', but the table {table.name!r} is not whole"
            )


def _check_parts(saved: SavedTable) -> None:
    """Raises ValueError unless a table has exactly one file per part."""
    count = saved.files[0].parts
    found = [(file.part, file.parts) for file in saved.files]
    if found != [(part, count) for part in range(count)]:
        raise ValueError(
            f"the table {saved.name!r} must have the parts 0 to {count - 1} of "
            f"{count} in order, got "
            f"{', '.join(f'{part} of {parts}' for part, parts in found)}"
        )
    for what in ("dim", "dtype"):
        values = {getattr(file, what) for file in saved.files}
        if len(values) > 1:
            raise ValueError(
                f"the table {saved.name!r} has parts of {what} "
                f"{' and '.join(map(str, sorted(values)))}"
            )
