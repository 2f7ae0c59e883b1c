"""Arrays in files of BLOB blocks: dense weights, optimizers, id tables."""

import io
import math
import os
from collections.abc import Iterator, Mapping

import keras
import numpy as np
import tensorflow as tf

from lodestar._errors import describe_error
from lodestar.ops import snapshot_ops
from lodestar.snapshot.errors import CorruptSnapshotError, corrupt_files
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import (
    BlobEntry,
    FileEntry,
    Manifest,
    make_label,
)

FILE = "blobs"
_BLOB = 7  # the kind of block


def to_array(name: str, value: object) -> np.ndarray:
    """Copies a variable, tensor or array.

    Raises:
        ValueError: It holds no numbers.
    """
    try:
        if isinstance(value, keras.Variable):
            value = value.value
        if tf.is_tensor(value) or isinstance(value, tf.Variable):
            # NumPy itself cannot make an array of a bfloat16 scalar.
            value = tf.convert_to_tensor(value).numpy()
        array = np.array(value)
        dtype = tf.as_dtype(array.dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is no array of numbers: {error}") from None
    if dtype == tf.string:
        raise ValueError(f"{name} holds text, wanted numbers or booleans.")
    return array


def write(
    folder: SnapshotFolder,
    version: int,
    mark: str,
    arrays: Mapping[str, np.ndarray],
) -> tuple[FileEntry, tuple[BlobEntry, ...]]:
    """Writes `arrays`, by the names of their blobs, to `FILE` of a version.

    Brings it to the disk. `mark` is that of the manifest that is to be.

    Raises:
        tf.errors.OpError: It cannot be written (names it).
    """
    pieces: list[bytes] = []
    entries = []
    offset = 0
    for name, array in arrays.items():
        pieces.append(_npy(array))
        size = len(pieces[-1])
        entries.append(
            BlobEntry(name, FILE, offset, size, array.dtype.name, array.shape)
        )
        offset += size
    written = snapshot_ops.write_blobs(
        folder.file_path(version, FILE),
        pieces,
        make_label(mark, version, FILE),
    )
    return FileEntry(FILE, *written), tuple(entries)


def copy(source: str, target: str, label: bytes) -> FileEntry:
    """Writes what a file of blobs holds to a new one with a label of its own.

    Raises:
        CorruptSnapshotError: `source` is not what was written.
        tf.errors.OpError: It cannot be written (names it).
    """
    written = snapshot_ops.write_blobs(target, [_payloads(source)], label)
    return FileEntry(os.path.basename(target), *written)


def read(
    folder: SnapshotFolder, manifest: Manifest, prefix: str
) -> dict[str, np.ndarray]:
    """The arrays whose names begin with `prefix`, by the rest of the name.

    Raises:
        CorruptSnapshotError: A file is not what was written.
    """
    wanted = [b for b in manifest.blobs if b.name.startswith(prefix)]
    streams: dict[str, bytes] = {}
    for file in {blob.file for blob in wanted}:
        entry = next(f for f in manifest.files if f.file == file)
        streams[file] = _payloads(folder.check_file(manifest, entry))
    return {
        blob.name.removeprefix(prefix): _array(
            folder.file_path(manifest.version, blob.file),
            blob,
            streams[blob.file][blob.offset : blob.offset + blob.bytes],
        )
        for blob in wanted
    }


def blocks(path: str) -> Iterator[snapshot_ops.Block]:
    """All blocks of a file, each checked.

    Raises:
        CorruptSnapshotError: One is not what was written.
    """
    offset: int | None = snapshot_ops.FIRST_BLOCK
    while offset is not None:
        with corrupt_files():
            block = snapshot_ops.read_block(path, offset)
        offset = block.next
        yield block


def _payloads(path: str) -> bytes:
    return b"".join(b.payload for b in blocks(path) if b.kind == _BLOB)


def _npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    if array.dtype.kind not in "biufc":
        # NumPy's files do not know the dtype: its bits.
        array = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    np.lib.format.write_array(out, array, allow_pickle=False)
    return out.getvalue()


def _array(path: str, blob: BlobEntry, data: bytes) -> np.ndarray:
    def wrong(found: object) -> CorruptSnapshotError:
        return CorruptSnapshotError(
            f"{path}: the blob {blob.name!r} is no array of {blob.dtype}: "
            f"{found}"
        )

    stream = io.BytesIO(data)
    try:
        dtype = np.dtype(tf.as_dtype(blob.dtype).as_numpy_dtype)
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            header = np.lib.format.read_array_header_1_0(stream)
        else:
            header = np.lib.format.read_array_header_2_0(stream)
    except Exception as error:
        # NumPy reads the header as Python: there is no end of what that raises.
        raise wrong(describe_error(error)) from None
    shape, in_columns, stored = header
    if stored != dtype and stored != np.dtype(f"u{dtype.itemsize}"):
        raise wrong(f"its items are {stored}")
    if shape != blob.shape:
        raise CorruptSnapshotError(
            f"{path}: the blob {blob.name!r} has shape {shape}, wanted "
            f"{blob.shape} as the manifest has it"
        )
    body = data[stream.tell() :]
    if dtype.hasobject or len(body) != math.prod(shape) * dtype.itemsize:
        raise wrong(f"it has {len(body)} bytes for the shape {shape}")
    array = np.frombuffer(bytearray(body), stored).view(dtype)
    return array.reshape(shape, order="F" if in_columns else "C")
