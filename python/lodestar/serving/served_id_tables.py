"""Updates the id tables of a loaded model from snapshots."""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.lookup import string_arrays
from lodestar.serving.errors import OtherModelError
from lodestar.snapshot import id_contents
from lodestar.snapshot.errors import CorruptSnapshotError
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import Manifest


@dataclasses.dataclass
class _Table:
    handle: tf.Tensor
    key_dtype: tf.DType
    # Whether the first key is the mask token of an IdLookup.
    has_mask_token: bool
    # Digest of its arrays; None for the SavedModel's own content.
    digest: bytes | None = None


@dataclasses.dataclass(frozen=True)
class IdTableUpdate:
    """The checked new content of an id table."""

    table: _Table
    keys: tf.Tensor
    ids: np.ndarray
    digest: bytes

    def assign(self) -> None:
        """Replaces the content of the table."""
        gen_ops.lodestar_id_table_import(
            self.table.handle, self.keys, tf.constant(self.ids, tf.int64)
        )
        self.table.digest = self.digest


class ServedIdTables:
    """The id tables of a loaded model, as its features.json lists them."""

    def __init__(self, loaded: Any, document: Mapping[str, Any]):
        self._tables = {
            entry["key"]: _Table(
                loaded.id_tables[entry["key"]].resource_handle,
                tf.as_dtype(entry["key_dtype"]),
                entry["mask_token"],
            )
            for entry in document["id_tables"]
        }

    def read(
        self, folder: SnapshotFolder, manifest: Manifest
    ) -> list[IdTableUpdate]:
        """Returns the updates of tables that a version changes.

        Raises OtherModelError if a table has keys of another type, or if an
        IdLookup, whose numbering is part of the model, has another vocabulary.
        """
        path = folder.version_path(manifest.version)
        updates = []
        for key, arrays in id_contents.read(folder, manifest).items():
            if key not in self._tables:
                continue
            table = self._tables[key]
            digest = _digest(arrays)
            if digest == table.digest:
                continue
            what = f"{path}: the id table {key!r}"
            keys = _keys(what, arrays, table.key_dtype)
            if "vocabulary" in arrays:
                _check_vocabulary(what, keys, table)
                continue
            _check_ids(what, keys, arrays["ids"])
            updates.append(IdTableUpdate(table, keys, arrays["ids"], digest))
        return updates


def _digest(arrays: Mapping[str, np.ndarray]) -> bytes:
    digest = hashlib.blake2b()
    for part, array in sorted(arrays.items()):
        digest.update(f"{part} {array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array))  # type: ignore[arg-type]
    return digest.digest()


def _keys(
    what: str, arrays: Mapping[str, np.ndarray], dtype: tf.DType
) -> tf.Tensor:
    parts = set(arrays) - {"lengths"}
    if parts not in ({"keys", "ids"}, {"vocabulary"}):
        raise CorruptSnapshotError(f"{what} has the arrays {sorted(arrays)}")
    keys = arrays["keys" if "keys" in parts else "vocabulary"]
    if any(array.ndim != 1 for array in arrays.values()):
        raise CorruptSnapshotError(f"{what} has arrays that are not vectors")
    found = "string" if "lengths" in arrays else keys.dtype.name
    if found != dtype.name:
        raise OtherModelError(
            f"{what} has {found} keys, but {dtype.name} keys in the model."
        )
    if "lengths" not in arrays:
        return tf.constant(keys, dtype)
    lengths = arrays["lengths"].astype(np.int64)
    if lengths.min(initial=0) < 0 or lengths.sum() != len(keys):
        raise CorruptSnapshotError(
            f"{what} has keys of {len(keys)} bytes, but their lengths add up "
            f"to {lengths.sum()}"
        )
    return string_arrays.from_arrays(keys, lengths)


def _check_ids(what: str, keys: tf.Tensor, ids: np.ndarray) -> None:
    if ids.dtype != np.int64 or len(ids) != len(keys):
        raise CorruptSnapshotError(
            f"{what} has {len(keys)} keys, but {len(ids)} {ids.dtype} ids "
            f"instead of {len(keys)} int64 ids"
        )
    if len(set(keys.numpy().tolist())) != len(keys):
        raise CorruptSnapshotError(f"{what} has a duplicate key")


def _check_vocabulary(what: str, keys: tf.Tensor, table: _Table) -> None:
    """Raises SnapshotError unless the table has the keys of an IdLookup."""
    exported, _ = gen_ops.lodestar_id_table_export(
        table.handle, Tkeys=table.key_dtype
    )
    here = exported.numpy().tolist()[table.has_mask_token :]
    if here != keys.numpy().tolist():
        raise OtherModelError(
            f"{what}, of an IdLookup, has another vocabulary ({len(keys)} "
            f"keys) than the model ({len(here)}), whose weights depend on it. "
            "Export the model again."
        )
