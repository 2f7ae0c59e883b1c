"""Updates the content of a loaded model from snapshots.

An update is read and checked first, so that a snapshot that is damaged or of
another model changes nothing.
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from lodestar._checks import did_you_mean
from lodestar._library import gen_ops
from lodestar.data.schema import model_schema
from lodestar.ops import snapshot_ops
from lodestar.serving.errors import OtherModelError
from lodestar.serving.served_id_tables import IdTableUpdate, ServedIdTables
from lodestar.serving.table_numbers import TableNumbers, handles_of, of_tables
from lodestar.snapshot import blobs, model_variables, schema_file
from lodestar.snapshot.errors import corrupt_files, listed
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import Manifest, SavedTable
from lodestar.snapshot.model import WEIGHT
from lodestar.snapshot.saving import DENSE

# Numbers of an update: rows `written` and `removed`, and `bytes` of files read.
Taken: TypeAlias = collections.Counter[str]


@dataclasses.dataclass(frozen=True)
class _Others:
    """The checked content of a version other than embedding tables."""

    id_tables: list[IdTableUpdate]
    weights: list[tuple[tf.Variable, tf.Tensor]]
    bytes: int


class _Part(NamedTuple):
    """Part `number` of the `count` parts of the table with index `table`."""

    handle: tf.Tensor
    table: int
    number: int
    count: int  # type: ignore[assignment]


class ServedContent:
    """Tables, id tables and weights of a loaded model.

    Attributes:
        loaded: The loaded export.
        served: Manifest of the served version; None for the export's content.
        torn: Whether an update was interrupted halfway.
    """

    def __init__(
        self,
        loaded: Any,
        document: Mapping[str, Any],
        rename: Mapping[str, str],
        weights: str,
    ):
        self.loaded = loaded
        self._schema = model_schema.schema_or_none(loaded)
        self.served: Manifest | None = None
        self._tables = {
            entry["key"]: (handles_of(loaded.tables[entry["key"]]), entry)
            for entry in document["tables"]
        }
        self._id_tables = ServedIdTables(loaded, document)
        self._weights: dict[str, tf.Variable] = {}
        if weights == "require":
            paths = [entry["path"] for entry in document["model_variables"]]
            self._weights = dict(
                zip(paths, loaded.model_variables, strict=True)
            )
        for name, new in rename.items():
            if new not in self._tables:
                raise ValueError(
                    f"`rename` maps {name!r} to {new!r}, but the tables of the "
                    f"model are {listed(self._tables)}."
                )
        self._saved_names = {here: there for there, here in rename.items()}
        self.torn = False

    def table_stats(self) -> TableNumbers:
        """Returns the numbers of the tables; see `of_loaded`."""
        return of_tables(
            {key: handles for key, (handles, _) in self._tables.items()}
        )

    def position(self, chain: Sequence[Manifest]) -> int | None:
        """Returns the position of the loaded version in a chain, or None."""
        if self.served is None or self.torn:
            return None
        for at, manifest in enumerate(chain):
            if self.served.mark in manifest.marks:
                return at
        return None

    def renumber(self, manifest: Manifest) -> None:
        """Notes a version of equal content, such as one made by compaction."""
        if self.served is None or self.served.id != manifest.id:
            self.served = manifest

    def take_whole(
        self,
        folder: SnapshotFolder,
        chain: Sequence[Manifest],
        *,
        in_place: bool = False,
    ) -> Taken:
        """Replaces all content by the last version of a chain.

        The new tables are read next to the old ones and swapped in. With
        `in_place`, the old ones are dropped first to save memory.
        """
        others = self._read_others(folder, chain[-1])
        files = [
            folder.table_files(chain, table.name)
            for table in self._entries(folder, chain[-1])
        ]
        listed = [
            [entry.at(path) for part in table for path, entry in part]
            for table in files
        ]
        parts = self._parts()
        rows: list[int] = []
        if in_place:
            self.torn = True
            for part in parts:
                gen_ops.lodestar_embedding_clear(part.handle)
                gen_ops.lodestar_embedding_compact(part.handle)
        if files:
            with corrupt_files():
                loaded, rows = snapshot_ops.load(
                    [part.handle for part in parts],
                    [listed[part.table] for part in parts],
                    [(part.number, part.count) for part in parts],
                    [""] * len(parts),
                    optimizer_slots="reset",
                )
                snapshot_ops.install(loaded)
        self._assign(others)
        self.served = chain[-1]
        read = sum(
            e.bytes for table in files for part in table for _, e in part
        )
        return Taken(written=sum(rows), bytes=read + others.bytes)

    def take_delta(self, folder: SnapshotFolder, manifest: Manifest) -> Taken:
        """Applies a delta on the loaded version: rows one by one, then weights."""
        others = self._read_others(folder, manifest)
        entries = self._entries(folder, manifest)
        paths = [
            [file.at(folder.check_file(manifest, file)) for file in entry.files]
            for entry in entries
        ]
        parts = self._parts()
        counts: list[tuple[int, int]] = []
        if paths:
            with corrupt_files():
                counts = snapshot_ops.apply(
                    [part.handle for part in parts],
                    [paths[part.table] for part in parts],
                    "",
                    parts=[(part.number, part.count) for part in parts],
                    optimizer_slots="reset",
                )
        self._assign(others)
        self.served = manifest
        return Taken(
            written=sum(written for written, _ in counts),
            removed=sum(removed for _, removed in counts),
            bytes=sum(entry.bytes for entry in entries) + others.bytes,
        )

    def is_delta(self, folder: SnapshotFolder, manifest: Manifest) -> bool:
        """Returns whether a version only has changes of each served table."""
        entries = self._entries(folder, manifest)
        return not any(file.whole for entry in entries for file in entry.files)

    def _assign(self, others: _Others) -> None:
        self.torn = True
        for update in others.id_tables:
            update.assign()
        for variable, value in others.weights:
            variable.assign(value)
        self.torn = False

    def _parts(self) -> list[_Part]:
        """Returns the parts of all tables."""
        return [
            _Part(handle, table, number, len(handles))
            for table, (handles, _) in enumerate(self._tables.values())
            for number, handle in enumerate(handles)
        ]

    def _entries(
        self, folder: SnapshotFolder, manifest: Manifest
    ) -> list[SavedTable]:
        """Returns the entries of all served tables, in order."""
        path = folder.version_path(manifest.version)
        entries = []
        for key, (_, here) in self._tables.items():
            name = self._saved_names.get(key, key)
            entry = manifest.table(name)
            if entry is None:
                saved = [t.name for t in manifest.saved_tables()]
                raise OtherModelError(
                    f"{path}: has no table {name!r}, which the model reads; it "
                    f"has {listed(saved)}.{did_you_mean(name, saved)} Use "
                    "`rename`."
                )
            for what in ("dim", "dtype"):
                if getattr(entry, what) != here[what]:
                    raise OtherModelError(
                        f"{path}: the table {name!r} has {what} "
                        f"{getattr(entry, what)}, but {here[what]} in the model."
                    )
            entries.append(entry)
        return entries

    def _read_others(
        self, folder: SnapshotFolder, manifest: Manifest
    ) -> _Others:
        schema_file.check(folder, manifest, self._schema, OtherModelError)
        return _Others(
            self._id_tables.read(folder, manifest),
            self._read_weights(folder, manifest),
            sum(f.bytes for f in manifest.files if manifest.has_blocks(f)),
        )

    def _read_weights(
        self, folder: SnapshotFolder, manifest: Manifest
    ) -> list[tuple[tf.Variable, tf.Tensor]]:
        """Returns the model's weights with their values in a version."""
        if not self._weights:
            return []
        path = folder.version_path(manifest.version)
        saved = blobs.read(folder, manifest, WEIGHT) or blobs.read(
            folder, manifest, DENSE
        )
        names = model_variables.match(list(saved), list(self._weights))
        absent = [name for name in self._weights if name not in names]
        if absent:
            raise OtherModelError(
                f"{path}: has no weights {listed(absent)}, which the model "
                f"reads; it has {listed(saved)}. Save them with snapshot.save of "
                "a model or its `dense`, or use weights='keep' to serve the "
                "SavedModel's weights."
            )
        pairs = []
        for name, variable in self._weights.items():
            array = saved[names[name]]
            wrong = model_variables.difference(array, variable)
            if wrong:
                raise OtherModelError(
                    f"{path}: the weight {name!r} has {wrong}."
                )
            pairs.append((variable, tf.constant(array, variable.dtype)))
        return pairs
