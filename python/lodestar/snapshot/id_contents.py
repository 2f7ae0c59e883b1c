"""The content of an id table as arrays of numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar.layers.id_lookup import IdLookup
from lodestar.lookup import IdTable, string_arrays
from lodestar.ops import snapshot_ops
from lodestar.snapshot import blobs
from lodestar.snapshot.errors import CorruptSnapshotError, SnapshotError
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import Manifest

# Prefix of the names of all arrays of id tables.
PREFIX = "id_table/"


def to_arrays(table: IdTable | IdLookup) -> dict[str, np.ndarray]:
    """Copies the content; string keys become bytes and their lengths."""
    if isinstance(table, IdLookup):
        arrays: dict[str, np.ndarray] = {}
        table.save_own_variables(arrays)
        return arrays
    keys, ids = (tensor.numpy() for tensor in table.export())
    if table.key_dtype != tf.string:
        return {"keys": keys, "ids": ids}
    joined, lengths = string_arrays.to_arrays(keys)
    return {"keys": joined, "lengths": lengths, "ids": ids}


def digest(layer: IdLookup) -> str:
    """Returns the digest of a vocabulary; see the op SnapshotFollower."""
    arrays = to_arrays(layer)
    parts = [
        arrays[name].tobytes() if name in arrays else b""
        for name in ("vocabulary", "lengths")
    ]
    return " ".join(
        f"{len(part)}:{snapshot_ops.crc32c(part)}" for part in parts
    )


def read(
    folder: SnapshotFolder, manifest: Manifest
) -> dict[str, dict[str, np.ndarray]]:
    """Returns name -> arrays of `to_arrays`, for the id tables of a version."""
    tables: dict[str, dict[str, np.ndarray]] = {}
    for path, array in blobs.read(folder, manifest, PREFIX).items():
        name, _, part = path.rpartition("/")
        tables.setdefault(name, {})[part] = array
    return tables


def count(arrays: Mapping[str, np.ndarray]) -> int:
    """Returns the number of keys."""
    parts = ("lengths", "keys", "vocabulary")
    return len(next(arrays[part] for part in parts if part in arrays))


def check_table(
    what: str, arrays: Mapping[str, np.ndarray], table: IdTable | IdLookup
) -> None:
    """Checks that `table` can take the arrays of the table `what`.

    Raises SnapshotError if they are of another kind, and CorruptSnapshotError
    if they are inconsistent.
    """
    found, kind = kind_of_arrays(arrays), kind_of_table(table)
    if found != kind:
        raise SnapshotError(
            f"{what} is {found} in the snapshot, but {kind} here."
        )
    for part, array in arrays.items():
        if array.ndim != 1:
            raise CorruptSnapshotError(
                f"{what} has an array of shape {array.shape} instead of a "
                "vector"
            )
        if part in ("ids", "lengths") and array.dtype != np.int64:
            raise CorruptSnapshotError(
                f"{what} has {part} of {array.dtype} instead of int64"
            )
    number = count(arrays)
    if "lengths" in arrays:
        lengths = arrays["lengths"]
        size = arrays["keys" if "keys" in arrays else "vocabulary"].nbytes
        fits = lengths.min(initial=0) >= 0 and lengths.max(initial=0) <= size
        if not fits or sum(lengths.tolist()) != size:
            raise CorruptSnapshotError(
                f"{what} has keys of {size} bytes, but lengths that add up to "
                f"{sum(lengths.tolist())}"
            )
    if "ids" in arrays and len(arrays["ids"]) != number:
        raise CorruptSnapshotError(
            f"{what} has {number} keys, but {len(arrays['ids'])} ids"
        )
    lookup = isinstance(table, IdLookup)
    if lookup and count(arrays) == 0 and len(to_arrays(table)["vocabulary"]):
        raise SnapshotError(
            f"{what} has no vocabulary in the snapshot, but one here, which "
            "cannot be removed."
        )


def keys(arrays: Mapping[str, np.ndarray]) -> Any:
    """Returns the keys of checked arrays."""
    found = arrays["keys" if "keys" in arrays else "vocabulary"]
    if "lengths" not in arrays:
        return found
    return string_arrays.from_arrays(found, arrays["lengths"])


def assign(table: IdTable | IdLookup, arrays: Mapping[str, np.ndarray]) -> None:
    """Replaces the content of `table` by checked `arrays`."""
    if isinstance(table, IdLookup):
        table.load_own_variables(arrays)
    else:
        table.load(keys(arrays), arrays["ids"])


def kind_of_table(table: IdTable | IdLookup) -> str:
    """Describes a table in the words of `kind_of_arrays`."""
    if isinstance(table, IdLookup):
        return f"an IdLookup of {table.vocabulary_dtype} keys"
    return f"an IdTable of {table.key_dtype.name} keys"


def kind_of_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """Describes the kind of table that a snapshot has arrays of."""
    text = {"lengths"} & set(arrays)
    if set(arrays) == {"vocabulary"} | text:
        kind, keys = "an IdLookup", arrays["vocabulary"]
    elif set(arrays) == {"keys", "ids"} | text:
        kind, keys = "an IdTable", arrays["keys"]
    else:
        return f"{sorted(arrays)}"
    return f"{kind} of {'string' if text else keys.dtype.name} keys"
