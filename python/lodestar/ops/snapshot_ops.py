"""Ops that write and read snapshots. They do not check their arguments.

Paths are strings, of local or mounted files. Every error is a `tf.errors.OpError`;
a damaged file raises `tf.errors.DataLossError`, which names the file and the byte.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from lodestar._library import gen_ops

# Offset of the first block of a snapshot file.
FIRST_BLOCK = 16


class BegunTable(NamedTuple):
    """The content of a running snapshot for one table."""

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
    """A snapshot file; a file of blobs has no rows."""

    bytes: int
    crc32c: int
    rows: int
    removed: int


class Block(NamedTuple):
    """A block of a snapshot file; `next` is the offset of the following one."""

    kind: int
    count: int  # type: ignore[assignment]
    payload: bytes
    next: int | None


def _string_tensor(values: Sequence[str | bytes]) -> tf.Tensor:
    return tf.constant(list(values), tf.string, [len(values)])


def _paths(paths: Sequence[str]) -> tf.Tensor:
    return _string_tensor([os.fsencode(path) for path in paths])


def _strings(tensor: tf.Tensor) -> list[str]:
    return [value.decode() for value in tensor.numpy()]


def table(handle: tf.Tensor) -> tf.Tensor:
    """Returns a reference to a table on any device, for the ops below on a CPU."""
    with tf.device(handle.device):
        return gen_ops.lodestar_snapshot_table(handle)


def begin(
    handles: Sequence[tf.Tensor], bases: Sequence[str]
) -> tuple[tf.Tensor, list[BegunTable]]:
    """Begins a snapshot of tables at a consistent point between two steps.

    `bases` has the state that a delta begins with, or `""` for the whole table. The
    snapshot ends when it is freed.
    """
    snapshot, whole, steps, dims, dtypes, optimizers, num_slots, names = (
        gen_ops.lodestar_snapshot_begin(
            [table(handle) for handle in handles], _string_tensor(bases)
        )
    )
    left = iter(_strings(names))
    begun = [
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
    return snapshot, begun


def write(
    snapshot: tf.Tensor,
    paths: Sequence[str],
    labels: Sequence[bytes],
) -> list[TableFile]:
    """Writes a snapshot to new files, one per table, on the calling thread."""
    rows, removed, sizes, crcs = gen_ops.lodestar_snapshot_write(
        snapshot, _paths(paths), _string_tensor(labels)
    )
    columns = (
        column.numpy().tolist() for column in (sizes, crcs, rows, removed)
    )
    return [TableFile(*table) for table in zip(*columns, strict=True)]


def end(snapshot: tf.Tensor, base: str) -> None:
    """Ends a snapshot: tracks changes since `base`, or `""` if it failed."""
    gen_ops.lodestar_snapshot_end(snapshot, base)


def base(handle: tf.Tensor) -> str:
    """Returns the state since which a table tracks changes, or `""`."""
    with tf.device(handle.device):
        return gen_ops.lodestar_snapshot_base(handle).numpy().decode()


class ListedFile(NamedTuple):
    """A file of a table part with its entry in a manifest.

    A checksum of -1 matches any content.
    """

    path: str
    crc32c: int = -1
    rows: int = 0
    removed: int = 0
    part: int = 0
    parts: int = 1


def _files(
    files: Sequence[Sequence[ListedFile]],
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the paths of each table's files, and their entries."""
    listed = [
        (table, file.part, file.parts, file.crc32c, file.rows, file.removed)
        for table, of_table in enumerate(files)
        for file in of_table
    ]
    paths = _paths([file.path for of_table in files for file in of_table])
    return paths, tf.constant(listed, tf.int64, [len(listed), 6])


def load(
    handles: Sequence[tf.Tensor],
    files: Sequence[Sequence[ListedFile]],
    parts: Sequence[tuple[int, int]],
    bases: Sequence[str],
    *,
    optimizer_slots: str = "require",
) -> tuple[tf.Tensor, list[int]]:
    """Loads files into memory next to the content of tables, for `install`.

    Args:
        handles: Handles of the tables.
        files: The files of each table, part by part; of a part, a full one and
            then deltas.
        parts: The part that each table takes, and the number of parts.
        bases: For each table, the state since which changes are tracked after
            `install`, or `""` for none.
        optimizer_slots: `"require"` or `"reset"`.

    Returns:
        The input of `install`, and the number of rows of each table.
    """
    loaded, rows = gen_ops.lodestar_snapshot_load(
        [table(handle) for handle in handles],
        *_files(files),
        tf.constant(list(parts), tf.int64, [len(handles), 2]),
        _string_tensor(bases),
        optimizer_slots=optimizer_slots,
    )
    return loaded, rows.numpy().tolist()


def install(loaded: tf.Tensor) -> None:
    """Replaces the content of tables by the result of `load`."""
    gen_ops.lodestar_snapshot_install(loaded)


def verify_file(path: str) -> TableFile:
    """Reads a snapshot file and verifies its contents."""
    verified = gen_ops.lodestar_snapshot_verify_file(os.fsencode(path))
    return TableFile(*map(int, verified))


def read_block(path: str, offset: int = FIRST_BLOCK) -> Block:
    """Reads and verifies one block of a snapshot file."""
    kind, count, payload, next = gen_ops.lodestar_snapshot_read_block(
        os.fsencode(path), offset
    )
    behind = int(next)
    return Block(
        int(kind), int(count), payload.numpy(), None if behind < 0 else behind
    )


def read_label(path: str) -> bytes:
    """Returns the label of a snapshot file."""
    return read_block(path).payload


def compact(files: Sequence[ListedFile], out: str, label: bytes) -> TableFile:
    """Merges a full table file and its deltas, in order, into one."""
    rows, size, crc = gen_ops.lodestar_snapshot_merge(
        *_files([files]), os.fsencode(out), label
    )
    return TableFile(int(size), int(crc), int(rows), removed=0)


def write_blobs(path: str, blobs: Sequence[bytes], label: bytes) -> WrittenFile:
    """Writes a snapshot file of consecutive blobs."""
    written = gen_ops.lodestar_snapshot_write_blobs(
        os.fsencode(path), _string_tensor(blobs), label
    )
    return WrittenFile(*map(int, written))


def read_blobs(path: str, crc32c: int = -1) -> bytes:
    """Returns the concatenated blobs of a snapshot file with this checksum."""
    blobs: bytes = gen_ops.lodestar_snapshot_read_blobs(
        os.fsencode(path), crc32c
    ).numpy()
    return blobs


def check_manifest(path: str, content: bytes) -> None:
    """Checks the content of a manifest; `path` is for errors."""
    gen_ops.lodestar_snapshot_check_manifest(os.fsencode(path), content)


def crc32c(data: bytes) -> int:
    """Returns the CRC32C of bytes, 0 to 2^32 - 1."""
    return int(gen_ops.lodestar_snapshot_crc(data))


def file_crc(path: str) -> WrittenFile:
    """Returns the size and CRC32C of any file."""
    found = gen_ops.lodestar_snapshot_file_crc(os.fsencode(path))
    return WrittenFile(*map(int, found))
