"""Ops that write and read snapshots; what they take is not checked here.

Paths are text, of local or mounted files. Every error is `tf.errors.OpError`;
a damaged file is `tf.errors.DataLossError`, which names the file and the byte.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from lodestar._library import gen_ops

# Where the first block of a snapshot file is.
FIRST_BLOCK = 16
_LABEL = 9  # the kind of block


class BegunTable(NamedTuple):
    """What a snapshot that has begun holds of one table."""

    whole: bool
    step: int
    dim: int
    dtype: str
    optimizer: str
    slot_names: list[str]


class WrittenFile(NamedTuple):
    """Any file."""

    bytes: int
    crc32c: int


class TableFile(NamedTuple):
    """A snapshot file; one of blobs has no rows."""

    bytes: int
    crc32c: int
    rows: int
    removed: int


class Block(NamedTuple):
    """A block of a snapshot file; `next` is the offset of the one behind it."""

    kind: int
    count: int  # type: ignore[assignment]
    payload: bytes
    next: int | None


def _texts(values: Sequence[str | bytes]) -> tf.Tensor:
    return tf.constant(list(values), tf.string, [len(values)])


def _paths(paths: Sequence[str]) -> tf.Tensor:
    return _texts([os.fsencode(path) for path in paths])


def _strings(tensor: tf.Tensor) -> list[str]:
    return [value.decode() for value in tensor.numpy()]


def begin(
    handles: Sequence[tf.Tensor], bases: Sequence[str]
) -> tuple[tf.Tensor, list[BegunTable]]:
    """Begins a snapshot of tables at one moment between two steps.

    Args:
        handles: The tables'.
        bases: For each, the state that a delta of it begins with; `""` for the
            whole table.

    Returns:
        The snapshot, which ends when it is dropped, and what it holds of each
        table.
    """
    snapshot, whole, steps, dims, dtypes, optimizers, num_slots, names = (
        gen_ops.lodestar_snapshot_begin(list(handles), _texts(bases))
    )
    left = iter(_strings(names))
    tables = [
        BegunTable._make([*fields, [next(left) for _ in range(count)]])
        for *fields, count in zip(
            whole.numpy().tolist(),
            steps.numpy().tolist(),
            dims.numpy().tolist(),
            _strings(dtypes),
            _strings(optimizers),
            num_slots.numpy().tolist(),
            strict=True,
        )
    ]
    return snapshot, tables


def write(
    snapshot: tf.Tensor,
    paths: Sequence[str],
    labels: Sequence[bytes] | None = None,
) -> list[TableFile]:
    """Writes a snapshot, a new file a table, on the calling thread.

    Args:
        snapshot: From `begin`.
        paths: Of files that do not exist yet.
        labels: What `read_label` is to find in each; None, or empty: a file of
            version 1 of the format, which has none.
    """
    if labels is None:
        labels = [b""] * len(paths)
    rows, removed, sizes, crcs = gen_ops.lodestar_snapshot_write(
        snapshot, _paths(paths), _texts(labels)
    )
    columns = (
        column.numpy().tolist() for column in (sizes, crcs, rows, removed)
    )
    return [TableFile(*table) for table in zip(*columns, strict=True)]


def end(snapshot: tf.Tensor, base: str) -> None:
    """Ends a snapshot: changes count from here as `base`; `""`: it failed."""
    gen_ops.lodestar_snapshot_end(snapshot, base)


def base(handle: tf.Tensor) -> str:
    """Returns the state that a table notes changes since; `""`: it does not."""
    return gen_ops.lodestar_snapshot_base(handle).numpy().decode()


class SavedPart(NamedTuple):
    """The files of a part of a table: a whole one, then deltas in order.

    The table has the parts 0 to `count` - 1.
    """

    files: Sequence[str]
    part: int = 0
    count: int = 1  # type: ignore[assignment]


def load(
    handles: Sequence[tf.Tensor],
    saved: Sequence[Sequence[SavedPart]],
    parts: Sequence[tuple[int, int]],
    bases: Sequence[str],
    *,
    optimizer_slots: str = "require",
) -> tuple[tf.Tensor, list[int]]:
    """Reads files beside what tables hold.

    Args:
        handles: The tables'.
        saved: What each table was saved to.
        parts: Which part each takes, and of how many.
        bases: Of each, the state's name, of which changes are noted once it is
            installed; `""`: none are.
        optimizer_slots: `"require"` or `"reset"`.

    Returns:
        What `install` takes, and the tables' numbers of rows.
    """
    files = [
        (file, table, part.part, part.count)
        for table, of_table in enumerate(saved)
        for part in of_table
        for file in part.files
    ]
    loaded, rows = gen_ops.lodestar_snapshot_load(
        list(handles),
        _paths([file for file, *_ in files]),
        tf.constant([table for _, table, *_ in files], tf.int64, [len(files)]),
        tf.constant([part for _, _, *part in files], tf.int64, [len(files), 2]),
        tf.constant(list(parts), tf.int64, [len(handles), 2]),
        _texts(bases),
        optimizer_slots=optimizer_slots,
    )
    return loaded, rows.numpy().tolist()


def install(loaded: tf.Tensor) -> None:
    """Puts what `load` has read in place of what the tables hold."""
    gen_ops.lodestar_snapshot_install(loaded)


def apply(
    handles: Sequence[tf.Tensor],
    files: Sequence[Sequence[str]],
    base: str,
    *,
    optimizer_slots: str = "require",
) -> list[tuple[int, int]]:
    """Takes a delta into each table; returns numbers (written, removed).

    Args:
        handles: The tables'.
        files: Of each, the files of its delta, one for each part.
        base: The state's name, of which changes are noted from here on.
        optimizer_slots: `"require"` or `"reset"`.
    """
    tables = [t for t, of_table in enumerate(files) for _ in of_table]
    written, removed = gen_ops.lodestar_snapshot_apply(
        list(handles),
        _paths([file for of_table in files for file in of_table]),
        tf.constant(tables, tf.int64, [len(tables)]),
        base,
        optimizer_slots=optimizer_slots,
    )
    return list(
        zip(written.numpy().tolist(), removed.numpy().tolist(), strict=True)
    )


def verify_file(path: str) -> TableFile:
    """Reads a snapshot file and checks all that it says of itself."""
    verified = gen_ops.lodestar_snapshot_verify_file(os.fsencode(path))
    return TableFile(*map(int, verified))


def read_block(path: str, offset: int = FIRST_BLOCK) -> Block:
    """Reads one block of a snapshot file and checks it."""
    kind, count, payload, next = gen_ops.lodestar_snapshot_read_block(
        os.fsencode(path), offset
    )
    behind = int(next)
    return Block(
        int(kind), int(count), payload.numpy(), None if behind < 0 else behind
    )


def read_label(path: str) -> bytes | None:
    """What a snapshot file says that it is a part of; None: nothing."""
    block = read_block(path)
    return block.payload if block.kind == _LABEL else None


def compact(files: Sequence[str], out: str, label: bytes = b"") -> TableFile:
    """Makes one whole table file of a whole one and deltas, in order."""
    rows, size, crc = gen_ops.lodestar_snapshot_merge(
        _paths(files), os.fsencode(out), label
    )
    return TableFile(int(size), int(crc), int(rows), removed=0)


def write_blobs(
    path: str, blobs: Sequence[bytes], label: bytes = b""
) -> WrittenFile:
    """Writes a snapshot file of blobs, one behind the other."""
    written = gen_ops.lodestar_snapshot_write_blobs(
        os.fsencode(path), _texts(blobs), label
    )
    return WrittenFile(*map(int, written))


def file_crc(path: str) -> WrittenFile:
    """Returns the size and CRC32C of any file."""
    found = gen_ops.lodestar_snapshot_file_crc(os.fsencode(path))
    return WrittenFile(*map(int, found))
