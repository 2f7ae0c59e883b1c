"""Updates the id tables of a loaded model from snapshots."""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._library import gen_ops
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
            kind = "an IdLookup" if "vocabulary" in arrays else "an IdTable"
            kind += f" of {table.key_dtype.name} keys"
            id_contents.check(what, arrays, kind, OtherModelError)
            keys = tf.constant(id_contents.keys(arrays), table.key_dtype)
            if "vocabulary" in arrays:
                _check_vocabulary(what, keys, table)
                continue
            if len(set(keys.numpy().tolist())) != len(keys):
                raise CorruptSnapshotError(f"{what} has a duplicate key")
            updates.append(IdTableUpdate(table, keys, arrays["ids"], digest))
        return updates


def _digest(arrays: Mapping[str, np.ndarray]) -> bytes:
    digest = hashlib.blake2b()
    for part, array in sorted(arrays.items()):
        digest.update(f"{part} {array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array))  # type: ignore[arg-type]
    return digest.digest()


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
