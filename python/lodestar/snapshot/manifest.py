"""The manifest of a version: what its files are, and which version it is on.

Two lines: JSON, and the CRC32C of the first line's bytes in 8 hex digits.
docs/snapshot.md describes the fields, and the labels of files.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import json
import re
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from lodestar.snapshot.crc32c import crc32c
from lodestar.snapshot.errors import CorruptSnapshotError, SnapshotError
from lodestar.version import __version__

FORMAT = 2
NAME = "MANIFEST"
DTYPES = ("float32", "float64", "float16", "bfloat16")
_MAX_INT = 2**63 - 1
_MAX_CRC = 2**32 - 1
_MAX_DIM = 1 << 16
_HEX = re.compile(r"[0-9a-f]{32}")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_CHECKSUM = re.compile(rb"[0-9a-f]{8}\n")


@dataclasses.dataclass(frozen=True)
class FileEntry:
    """A file of a version: its name, bytes and CRC32C."""

    file: str
    bytes: int
    crc32c: int


@dataclasses.dataclass(frozen=True)
class TableEntry(FileEntry):
    """A file of blocks that holds a table, or what changed in it.

    Attributes:
        name: Of the table.
        whole: Whether it holds all rows, rather than those changed since the
            parent.
        dim: Numbers in a row.
        dtype: Of the rows.
        optimizer: Whose slots the rows have; "" for none.
        slot_names: Of the optimizer's slots.
        rows: In this file.
        removed: Ids in this file that the table has lost since the parent.
    """

    name: str
    whole: bool
    dim: int
    dtype: str
    optimizer: str
    slot_names: tuple[str, ...]
    rows: int
    removed: int


@dataclasses.dataclass(frozen=True)
class BlobEntry:
    """An array, in npy format, among the payloads of a file's BLOB blocks.

    Attributes:
        name: What it belongs to and its name there, as `dense/kernel`.
        file: One of the version's `files`.
        offset: Of its first byte in all payloads, one after another.
        bytes: How many it has.
        dtype: Of the array. A dtype that NumPy does not have is stored as
            unsigned integers of the same bits.
        shape: Of the array.
    """

    name: str
    file: str
    offset: int
    bytes: int
    dtype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a version holds.

    Attributes:
        root: Hexadecimal digits that all versions of a folder share.
        version: Its number.
        parent: The version that its tables which are not whole build on.
        same_as: The version whose content it has; compaction makes such.
        kind: "full" if it needs no other version, else "delta".
        step: The step of its tables, or what the user gave.
        time: When it was taken, UTC, ISO 8601.
        tables: Their files.
        blobs: Arrays.
        files: All other files: those that hold the blobs, and the position of
            a reader as TensorFlow writes it.
        metadata: The user's.
        lodestar: The version of Lodestar that wrote it.
        mark: Random hexadecimal digits, which the labels of its files hold,
            too. None: it is of format 1, whose files have no labels.
    """

    root: str
    version: int
    parent: int | None
    same_as: int | None
    kind: str
    step: int
    time: str
    tables: tuple[TableEntry, ...]
    blobs: tuple[BlobEntry, ...] = ()
    files: tuple[FileEntry, ...] = ()
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    lodestar: str = __version__
    mark: str | None = None

    def table(self, name: str) -> TableEntry | None:
        """The entry of the table `name`, if there is one."""
        return next((t for t in self.tables if t.name == name), None)

    def all_files(self) -> tuple[FileEntry, ...]:
        """The files of tables and all others."""
        return (*self.tables, *self.files)

    def has_blocks(self, entry: FileEntry) -> bool:
        """Whether a file of this version is a file of blocks."""
        return isinstance(entry, TableEntry) or any(
            blob.file == entry.file for blob in self.blobs
        )

    def label(self, entry: FileEntry) -> bytes | None:
        """What a file of this version has to say that it is; None: nothing."""
        if self.mark is None or not self.has_blocks(entry):
            return None
        name = entry.name if isinstance(entry, TableEntry) else entry.file
        return make_label(self.mark, self.version, name)

    @property
    def base(self) -> str:
        """What a table's changes count from, once this is committed."""
        return f"{self.root}/{self.version}"


def new_mark() -> str:
    """The mark of a new manifest."""
    return uuid.uuid4().hex


_LABEL = struct.Struct("<Q16sI")


def make_label(mark: str, version: int, name: str) -> bytes:
    """The label of a file of blocks.

    Args:
        mark: Of the manifest that lists it.
        version: Of that manifest.
        name: Of the table, or of a file of blobs.
    """
    text = name.encode()
    head = _LABEL.pack(version, bytes.fromhex(mark), len(text))
    return head + text + bytes(-len(text) % 4)


def label_text(label: bytes | None) -> str:
    """A label in words."""
    if label is None:
        return "of no version, as before format 2"
    try:
        version, mark, size = _LABEL.unpack_from(label)
        name = label[_LABEL.size : _LABEL.size + size].decode()
    except (struct.error, UnicodeDecodeError):
        return f"labelled {label!r:.60}"
    return f"{name!r} of version {version} of mark {mark.hex()}"


def now() -> str:
    """The time as manifests have it."""
    time = datetime.datetime.now(datetime.UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def check_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns `metadata` as it comes back from a manifest.

    Raises:
        ValueError: It is no mapping by strings of what JSON can hold.
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping) or not all(
        isinstance(key, str) for key in metadata
    ):
        raise ValueError(
            f"`metadata` is {metadata!r}, wanted a dict with strings as keys."
        )
    try:
        return json.loads(json.dumps(dict(metadata), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"`metadata` cannot be written as JSON: {error}"
        ) from None


def encode(manifest: Manifest) -> bytes:
    """The bytes of the file."""
    fields = {"format": FORMAT if manifest.mark else 1}
    for field in dataclasses.fields(manifest):
        value = getattr(manifest, field.name)
        if field.name in ("tables", "files", "blobs"):
            value = [dataclasses.asdict(entry) for entry in value]
        fields[field.name] = value
    line = json.dumps(fields)
    data = line.encode()
    return data + b"\n%08x\n" % crc32c(data)


def decode(data: bytes, path: str) -> Manifest:
    """Reads the bytes of the file at `path`.

    Raises:
        CorruptSnapshotError: They are not a manifest, whole and unchanged.
        SnapshotError: It is of a later format.
    """
    end = data.find(b"\n")
    if end < 0:
        raise CorruptSnapshotError(
            f"{path}: ends at byte {len(data)}, inside its first line; wanted "
            "a line of JSON and a checksum"
        )
    line, checksum = data[:end], data[end + 1 :]
    if not _CHECKSUM.fullmatch(checksum):
        raise CorruptSnapshotError(
            f"{path}: byte {end + 1}: found {checksum[:16]!r}, wanted a "
            "checksum of 8 hex digits and the end of the line and file"
        )
    found = crc32c(line)
    if found != int(checksum, 16):
        raise CorruptSnapshotError(
            f"{path}: bytes 0 to {end}: the checksum is {found:08x}, wanted "
            f"{checksum[:8].decode()} as byte {end + 1} has it"
        )
    try:
        fields = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise CorruptSnapshotError(f"{path}: is no JSON: {error}") from None
    return _Decoder(path).manifest(fields)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


class _Decoder:
    """Checks the type and range of every field."""

    def __init__(self, path: str):
        self._path = path

    def manifest(self, fields: Any) -> Manifest:
        self._mapping(fields, "the manifest")
        number = self._integer(fields, "format", 1)
        if number > FORMAT:
            raise SnapshotError(
                f"{self._path}: has format {number}, but Lodestar "
                f"{__version__} reads formats up to {FORMAT}; use a later "
                f"Lodestar (it was written by {fields.get('lodestar')!r})"
            )
        tables = self._list(fields, "tables", self._table)
        files = self._list(fields, "files", self._file)
        blobs = self._list(fields, "blobs", self._blob)
        found = Manifest(
            root=self._text(fields, "root", _HEX.fullmatch, "32 hex digits"),
            version=self._integer(fields, "version", 1),
            parent=self._version_or_none(fields, "parent"),
            same_as=self._version_or_none(fields, "same_as"),
            kind=self._text(
                fields,
                "kind",
                lambda text: text in ("full", "delta"),
                "'full' or 'delta'",
            ),
            step=self._integer(fields, "step", -_MAX_INT - 1),
            time=self._text(fields, "time"),
            tables=tables,
            blobs=blobs,
            files=files,
            metadata=self._mapping(
                self._field(fields, "metadata"), "`metadata`"
            ),
            lodestar=self._text(fields, "lodestar"),
            mark=None
            if number == 1
            else self._text(fields, "mark", _HEX.fullmatch, "32 hex digits"),
        )
        self._check(found)
        return found

    def _check(self, found: Manifest) -> None:
        for what, names in (
            ("table", [t.name for t in found.tables]),
            ("file", [f.file for f in found.all_files()]),
            ("blob", [b.name for b in found.blobs]),
        ):
            for name, count in collections.Counter(names).items():
                if count > 1:
                    self._fail(
                        f"has {count} entries of the {what} {name!r}, wanted "
                        "one"
                    )
        files = {f.file for f in found.files}
        for blob in found.blobs:
            if blob.file not in files:
                self._fail(
                    f"the blob {blob.name!r} is in {blob.file!r}, which is "
                    "none of `files`"
                )
        for name in ("parent", "same_as"):
            other = getattr(found, name)
            if other is not None and other >= found.version:
                self._fail(
                    f"`{name}` is {other}, wanted a version before "
                    f"{found.version}"
                )
        if (found.kind == "full") != (found.parent is None):
            self._fail(
                f"`kind` is {found.kind!r}, but `parent` is {found.parent}"
            )
        if found.kind == "full":
            for table in found.tables:
                if not table.whole:
                    self._fail(
                        "`kind` is 'full', but the table "
                        f"{table.name!r} is not whole"
                    )

    def _table(self, fields: Any) -> TableEntry:
        return TableEntry(
            **self._file_fields(fields),
            name=self._text(fields, "name", bool, "a name"),
            whole=self._flag(fields, "whole"),
            dim=self._integer(fields, "dim", 1, _MAX_DIM),
            dtype=self._text(
                fields, "dtype", DTYPES.__contains__, f"one of {DTYPES}"
            ),
            optimizer=self._text(fields, "optimizer"),
            slot_names=self._list(fields, "slot_names", self._string),
            rows=self._integer(fields, "rows", 0),
            removed=self._integer(fields, "removed", 0),
        )

    def _blob(self, fields: Any) -> BlobEntry:
        self._mapping(fields, "a blob")
        return BlobEntry(
            name=self._text(fields, "name", bool, "a name"),
            file=self._file_name(fields),
            offset=self._integer(fields, "offset", 0),
            bytes=self._integer(fields, "bytes", 1),
            dtype=self._text(fields, "dtype", bool, "a dtype"),
            shape=self._list(
                fields, "shape", lambda n: self._in_range(n, "shape", 0)
            ),
        )

    def _file(self, fields: Any) -> FileEntry:
        return FileEntry(**self._file_fields(fields))

    def _file_fields(self, fields: Any) -> dict[str, Any]:
        self._mapping(fields, "a file")
        return {
            "file": self._file_name(fields),
            "bytes": self._integer(fields, "bytes", 0),
            "crc32c": self._integer(fields, "crc32c", 0, _MAX_CRC),
        }

    def _file_name(self, fields: Mapping[str, Any]) -> str:
        # Never a path that leads out of the version's folder.
        return self._text(
            fields,
            "file",
            lambda text: _FILE_NAME.fullmatch(text) and text != NAME,
            "the plain name of a file",
        )

    def _version_or_none(
        self, fields: Mapping[str, Any], name: str
    ) -> int | None:
        if self._field(fields, name) is None:
            return None
        return self._integer(fields, name, 1)

    def _field(self, fields: Mapping[str, Any], name: str) -> Any:
        if name not in fields:
            self._fail(f"has no `{name}`")
        return fields[name]

    def _list(
        self, fields: Mapping[str, Any], name: str, item: Callable[[Any], Any]
    ) -> tuple[Any, ...]:
        found = self._field(fields, name)
        if not isinstance(found, list):
            self._wrong(name, found, "a list")
        return tuple(item(value) for value in found)

    def _integer(
        self,
        fields: Mapping[str, Any],
        name: str,
        low: int,
        high: int = _MAX_INT,
    ) -> int:
        return self._in_range(self._field(fields, name), name, low, high)

    def _in_range(
        self, found: Any, name: str, low: int, high: int = _MAX_INT
    ) -> int:
        if type(found) is not int or not low <= found <= high:
            self._wrong(name, found, f"an integer from {low} to {high}")
        return found

    def _flag(self, fields: Mapping[str, Any], name: str) -> bool:
        found = self._field(fields, name)
        if not isinstance(found, bool):
            self._wrong(name, found, "true or false")
        return found

    def _text(
        self,
        fields: Mapping[str, Any],
        name: str,
        accept: Callable[[str], Any] = lambda _: True,
        wanted: str = "text",
    ) -> str:
        found = self._field(fields, name)
        if not isinstance(found, str) or not accept(found):
            self._wrong(name, found, wanted)
        return found

    def _string(self, found: Any) -> str:
        if not isinstance(found, str):
            self._wrong("slot_names", found, "text")
        return found

    def _mapping(self, found: Any, what: str) -> Mapping[str, Any]:
        if not isinstance(found, dict):
            self._fail(f"{what} is {found!r:.60}, wanted an object")
        return found

    def _wrong(self, name: str, found: Any, wanted: str) -> None:
        self._fail(f"`{name}` is {found!r:.60}, wanted {wanted}")

    def _fail(self, text: str) -> None:
        raise CorruptSnapshotError(f"{self._path}: {text}")
