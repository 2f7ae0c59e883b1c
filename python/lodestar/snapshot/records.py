"""Reads the records of a table's files, block by block.

The newest file that contains an id, as a row or as removed, decides about it.
A partitioned table has files per part, and no id is in two parts.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar.embedding.saved_state import is_row_wise
from lodestar.ops import snapshot_ops
from lodestar.snapshot.errors import CorruptSnapshotError, corrupt_files
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import Manifest, TableEntry

_ROWS, _REMOVED, _PENDING = 2, 3, 4
_PENDING_RECORD = np.dtype(
    [("id", "<i8"), ("last_seen", "<i8"), ("count", "<u4"), ("zero", "<u4")]
)
# Bytes of a table's rows that `difference` holds at a time.
_SHARE_BYTES = 256 << 20


@dataclasses.dataclass(frozen=True)
class TableFile:
    """A file of a table and its version."""

    path: str
    entry: TableEntry
    version: int

    def row_type(self) -> np.dtype:
        """Returns the dtype of a record: id, last_seen, frequency, values, slots."""
        dtype = np.dtype(tf.as_dtype(self.entry.dtype).as_numpy_dtype)
        # NumPy records cannot hold bfloat16, so use its bits.
        value = dtype if dtype.kind == "f" else np.dtype(np.uint16)
        names = ["id", "last_seen", "frequency", "values"]
        names += [f"slot_{i}" for i in range(len(self.entry.slot_names))]
        formats: list[Any] = ["<i8", "<i8", "<u4"]
        offsets, end = [0, 8, 16], 24
        for name in names[3:]:
            kind, width = value, self.entry.dim
            if name != "values":
                kind = np.dtype(np.float32)
                width = 1 if is_row_wise(self.entry.optimizer) else width
            formats.append((kind, (width,)))
            offsets.append(end)
            end += -(-kind.itemsize * width // 8) * 8
        record: Any = {"names": names, "formats": formats}
        record |= {"offsets": offsets, "itemsize": end}
        return np.dtype(record)

    def values(self, rows: np.ndarray) -> np.ndarray:
        """Returns the values `[N, dim]` of records, in the table's dtype."""
        dtype = tf.as_dtype(self.entry.dtype).as_numpy_dtype
        return np.ascontiguousarray(rows["values"]).view(dtype)

    def contents(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yields ("rows" | "removed" | "pending", records) in the file's order."""
        types = {
            _ROWS: ("rows", self.row_type()),
            _REMOVED: ("removed", np.dtype("<i8")),
            _PENDING: ("pending", _PENDING_RECORD),
        }
        for block in _blocks(self.path):
            if block.kind not in types:
                continue
            name, dtype = types[block.kind]
            if len(block.payload) != block.count * dtype.itemsize:
                raise CorruptSnapshotError(
                    f"{self.path}: a block of {block.count} {name} must have "
                    f"{block.count * dtype.itemsize} bytes, got "
                    f"{len(block.payload)}"
                )
            yield name, np.frombuffer(block.payload, dtype)


def _blocks(path: str) -> Iterator[snapshot_ops.Block]:
    """Reads and checks the blocks of a file."""
    offset: int | None = snapshot_ops.FIRST_BLOCK
    while offset is not None:
        with corrupt_files():
            block = snapshot_ops.read_block(path, offset)
        offset = block.next
        yield block


# The files of one part, newest first.
PartFiles = Sequence[TableFile]


def files_of(
    folder: SnapshotFolder, chain: Sequence[Manifest], name: str
) -> list[PartFiles]:
    """Returns a table's files, part by part; checks their sizes and labels."""
    versions = [manifest.version for manifest in reversed(chain)]
    return [
        [
            TableFile(path, entry, version)
            for version, (path, entry) in zip(versions, reversed(files))
        ]
        for files in folder.table_files(chain, name)
    ]


@dataclasses.dataclass(frozen=True)
class IdState:
    """The state of one id in a snapshot: its row, slots and occurrences.

    Attributes:
        state: "resident", "pending" (waits for admission) or "missing".
        version: Version that last wrote or removed the id, or None.
    """

    state: str
    version: int | None = None
    values: np.ndarray | None = None
    slots: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    frequency: int | None = None
    last_seen: int | None = None


def find_id(parts: Sequence[PartFiles], id_: int) -> IdState:
    """Looks up one id in a table's files."""
    states = [_find_in_part(files, id_) for files in parts]
    known = [state for state in states if state.version is not None]
    return (known or states)[0]


def _find_in_part(files: PartFiles, id_: int) -> IdState:
    waiting = IdState("missing")
    for file in files:
        removed = False
        for name, records in file.contents():
            if name == "removed":
                removed |= bool((records == id_).any())
                continue
            found = records[records["id"] == id_]
            if not len(found):
                continue
            record = found[0]
            if name == "rows":
                return IdState(
                    "resident",
                    file.version,
                    file.values(found)[0],
                    {
                        slot: record[f"slot_{i}"]
                        for i, slot in enumerate(file.entry.slot_names)
                    },
                    int(record["frequency"]),
                    int(record["last_seen"]),
                )
            # Each file lists all pending ids.
            if file is files[0]:
                waiting = IdState(
                    "pending",
                    file.version,
                    frequency=int(record["count"]),
                    last_seen=int(record["last_seen"]),
                )
        if removed and waiting.state == "missing":
            return IdState("missing", file.version)
        if removed:
            break
    return waiting


def rows_of(
    parts: Sequence[PartFiles],
) -> Iterator[tuple[TableFile, np.ndarray]]:
    """Yields the rows of a table, block by block, and each id once.

    Holds a block, and the ids of all files of a part except the oldest.
    """
    for files in parts:
        seen = np.zeros(0, np.int64)  # ids that newer files decide about
        for number, file in enumerate(files):
            ids = []
            for name, records in file.contents():
                if name == "rows":
                    yield file, records[~np.isin(records["id"], seen)]
                    records = records["id"]
                if name != "pending" and number + 1 < len(files):
                    ids.append(records)
            seen = np.unique(np.concatenate([seen, *ids]))


def top(
    parts: Sequence[PartFiles], n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns ids, frequencies and last-seen steps of the most frequent rows.

    Rows of equal frequency are in ascending order of ids.
    """
    best = np.zeros(
        0, [("id", "<i8"), ("last_seen", "<i8"), ("frequency", "<u4")]
    )
    for _, rows in rows_of(parts):
        more = np.zeros(len(rows), best.dtype)
        for name in best.dtype.names or ():
            more[name] = rows[name]
        best = np.concatenate([best, more])
        order = np.lexsort((best["id"], -best["frequency"].astype(np.int64)))
        best = best[order[:n]]
    return best["id"], best["frequency"], best["last_seen"]


@dataclasses.dataclass(frozen=True)
class Difference:
    """Numbers of rows by how they differ between two snapshots.

    `largest` is the largest absolute difference of two values, and `largest_id`
    the id of its row, or None if no row changed.
    """

    added: int
    removed: int
    changed: int
    equal: int
    largest: float
    largest_id: int | None


def difference(
    first: Sequence[PartFiles], second: Sequence[PartFiles]
) -> Difference:
    """Compares the values of two tables of one dim and dtype.

    To bound memory, compares one share of the ids at a time and reads the files
    once per share.
    """
    size = sum(
        file.entry.bytes for files in (*first, *second) for file in files
    )
    shares = size // _SHARE_BYTES + 1
    counts = np.zeros(4, np.int64)  # added, removed, changed, equal
    largest: float = 0.0
    largest_id: int | None = None
    for share in range(shares):
        (ids, values), (other_ids, other_values) = (
            _share(parts, share, shares) for parts in (first, second)
        )
        both, at, other_at = np.intersect1d(
            ids, other_ids, assume_unique=True, return_indices=True
        )
        a, b = values[at], other_values[other_at]
        bits = np.dtype(f"u{a.dtype.itemsize}")
        changed = (a.view(bits) != b.view(bits)).any(axis=1)
        counts += [
            len(other_ids) - len(both),
            len(ids) - len(both),
            changed.sum(),
            len(both) - changed.sum(),
        ]
        if changed.any():
            distance = np.abs(
                a[changed].astype(np.float64) - b[changed].astype(np.float64)
            ).max(axis=1)
            place = int(distance.argmax())
            if largest_id is None or distance[place] > largest:
                largest = float(distance[place])
                largest_id = int(both[changed][place])
    found: list[Any] = [*counts.tolist(), largest, largest_id]
    return Difference(*found)


def _share(
    parts: Sequence[PartFiles], share: int, shares: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids and values of a share of the rows."""
    entry = parts[0][0].entry
    dim = entry.dim
    dtype = tf.as_dtype(entry.dtype).as_numpy_dtype
    ids = [np.zeros(0, np.int64)]
    values = [np.zeros((0, dim), dtype)]
    for file, rows in rows_of(parts):
        mixed = rows["id"].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        chosen = rows[(mixed >> np.uint64(32)) % np.uint64(shares) == share]
        ids.append(chosen["id"])
        values.append(file.values(chosen))
    return np.concatenate(ids), np.concatenate(values)
