"""Files of arrays: dense weights, optimizer variables and id tables."""

import io
from collections.abc import Mapping

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


def to_array(name: str, value: object) -> np.ndarray:
    """Copies a variable, tensor or array of numbers or booleans."""
    try:
        if isinstance(value, keras.Variable):
            value = value.value
        if tf.is_tensor(value) or isinstance(value, tf.Variable):
            # NumPy itself cannot convert a bfloat16 scalar.
            value = tf.convert_to_tensor(value).numpy()
        array = np.array(value)
        dtype = tf.as_dtype(array.dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be an array of numbers: {error}"
        ) from None
    if dtype == tf.string:
        raise ValueError(f"{name} must hold numbers or booleans, got strings.")
    return array


def write(
    folder: SnapshotFolder,
    version: int,
    mark: str,
    arrays: Mapping[str, np.ndarray],
) -> tuple[FileEntry, tuple[BlobEntry, ...]]:
    """Writes blob name -> array to the file `FILE` of a version and syncs it."""
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
        folder.file_path(version, FILE), pieces, make_label(mark, version, FILE)
    )
    return FileEntry(FILE, *written), tuple(entries)


def read_file(
    folder: SnapshotFolder, manifest: Manifest, entry: FileEntry
) -> bytes:
    """Returns the concatenated blobs of a version's file."""
    path = folder.check_file(manifest, entry)
    with corrupt_files():
        return snapshot_ops.read_blobs(path, entry.crc32c)


def read(
    folder: SnapshotFolder, manifest: Manifest, prefix: str
) -> dict[str, np.ndarray]:
    """Returns the arrays whose names begin with `prefix`, without the prefix."""
    wanted = [b for b in manifest.blobs if b.name.startswith(prefix)]
    streams: dict[str, bytes] = {}
    for file in {blob.file for blob in wanted}:
        entry = next(f for f in manifest.files if f.file == file)
        streams[file] = read_file(folder, manifest, entry)
    return {
        blob.name.removeprefix(prefix): _array(
            folder.file_path(manifest.version, blob.file),
            blob,
            streams[blob.file][blob.offset : blob.offset + blob.bytes],
        )
        for blob in wanted
    }


def _npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    if array.dtype.kind not in "biufc":
        # npy files do not support the dtype, so store its bits.
        array = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    np.lib.format.write_array(out, array, allow_pickle=False)
    return out.getvalue()


def _array(path: str, blob: BlobEntry, data: bytes) -> np.ndarray:
    def wrong(found: object) -> CorruptSnapshotError:
        return CorruptSnapshotError(
            f"{path}: the blob {blob.name!r} is not an array of {blob.dtype}: "
            f"{found}"
        )

    stream = io.BytesIO(data)
    try:
        dtype = np.dtype(tf.as_dtype(blob.dtype).as_numpy_dtype)
        array = np.lib.format.read_array(stream, allow_pickle=False)
    except Exception as error:
        # NumPy evaluates the header as Python, which may raise anything.
        raise wrong(describe_error(error)) from None
    stored = array.dtype
    are_bits = stored.kind == "u" and stored.isnative
    are_bits &= stored.itemsize == dtype.itemsize
    if dtype.hasobject or not (stored == dtype or are_bits):
        raise wrong(f"its items are {stored}")
    if array.shape != blob.shape:
        raise CorruptSnapshotError(
            f"{path}: the blob {blob.name!r} has shape {array.shape}, but "
            f"{blob.shape} in the manifest"
        )
    if stream.tell() != len(data):
        raise wrong(f"it ends at byte {stream.tell()} of {len(data)}")
    return array.view(dtype)
