"""What an id table holds, as arrays of numbers."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from lodestar.layers.id_lookup import IdLookup
from lodestar.lookup import IdTable, text_arrays
from lodestar.snapshot import blobs
from lodestar.snapshot.errors import CorruptSnapshotError, SnapshotError
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import Manifest

# What the names of an id table's arrays begin with, before its own.
PREFIX = "id_table/"


def to_arrays(table: IdTable | IdLookup) -> dict[str, np.ndarray]:
    """Copies the content; keys that are text as bytes and their lengths."""
    if isinstance(table, IdLookup):
        arrays: dict[str, np.ndarray] = {}
        table.save_own_variables(arrays)
        return arrays
    keys, ids = (tensor.numpy() for tensor in table.export())
    if table.key_dtype != tf.string:
        return {"keys": keys, "ids": ids}
    joined, lengths = text_arrays.to_arrays(keys)
    return {"keys": joined, "lengths": lengths, "ids": ids}


def read(
    folder: SnapshotFolder, manifest: Manifest
) -> dict[str, dict[str, np.ndarray]]:
    """What a version has of id tables: name -> arrays, as `to_arrays` gives them.

    Raises:
        CorruptSnapshotError: A file is not what was written.
    """
    tables: dict[str, dict[str, np.ndarray]] = {}
    for path, array in blobs.read(folder, manifest, PREFIX).items():
        name, _, part = path.rpartition("/")
        tables.setdefault(name, {})[part] = array
    return tables


def count(arrays: Mapping[str, np.ndarray]) -> int:
    """The number of keys."""
    parts = ("lengths", "keys", "vocabulary")
    return len(next(arrays[part] for part in parts if part in arrays))


def check(
    path: str,
    name: str,
    table: IdTable | IdLookup,
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Raises unless a table, `name` of the version at `path`, can take `arrays`.

    Raises:
        SnapshotError: They are of another kind of table.
        CorruptSnapshotError: They do not fit together.
    """
    what = f"{path}: the table {name!r}"
    wanted = kind_of_table(table)
    found = kind_of_arrays(arrays)
    if found != wanted:
        raise SnapshotError(
            f"{what} is {found} in the snapshot, but {wanted} here; wanted the "
            "same"
        )
    for part, array in arrays.items():
        if array.ndim != 1:
            raise CorruptSnapshotError(
                f"{what} has an array of shape {array.shape}; wanted vectors"
            )
        if part in ("ids", "lengths") and array.dtype != np.int64:
            raise CorruptSnapshotError(
                f"{what} has {part} of {array.dtype}, wanted int64"
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
    if (
        isinstance(table, IdLookup)
        and number == 0
        and len(to_arrays(table)["vocabulary"]) > 0
    ):
        raise SnapshotError(
            f"{what} has no vocabulary in the snapshot, but one here, which it "
            "keeps"
        )
    if "ids" in arrays and len(arrays["ids"]) != number:
        raise CorruptSnapshotError(
            f"{what} has {number} keys, but {len(arrays['ids'])} ids"
        )


def assign(table: IdTable | IdLookup, arrays: Mapping[str, np.ndarray]) -> None:
    """Makes checked `arrays` all that `table` holds."""
    if isinstance(table, IdLookup):
        table.load_own_variables(arrays)
        return
    keys = arrays["keys"]
    if "lengths" in arrays:
        keys = text_arrays.from_arrays(keys, arrays["lengths"])
    table.load(keys, arrays["ids"])


def kind_of_table(table: IdTable | IdLookup) -> str:
    """What a table has to find in a snapshot, in words."""
    if isinstance(table, IdLookup):
        return f"an IdLookup of {table.vocabulary_dtype} keys"
    return f"an IdTable of {table.key_dtype.name} keys"


def kind_of_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """What a snapshot has of a table, in words."""
    text = {"lengths"} & set(arrays)
    if set(arrays) == {"vocabulary"} | text:
        kind, keys = "an IdLookup", arrays["vocabulary"]
    elif set(arrays) == {"keys", "ids"} | text:
        kind, keys = "an IdTable", arrays["keys"]
    else:
        return f"{sorted(arrays)}"
    return f"{kind} of {'string' if text else keys.dtype.name} keys"
