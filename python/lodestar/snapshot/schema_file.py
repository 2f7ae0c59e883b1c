"""The schema of a model in a snapshot of it."""

import dataclasses
import functools
import os

from lodestar.data.schema import Schema
from lodestar.ops import snapshot_ops
from lodestar.snapshot.errors import CorruptSnapshotError, SnapshotError
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import FileEntry, Manifest

NAME = "schema.yaml"
# These do not change what a value means.
_IGNORED = ("used", "wide", "why")
_MOST_SHOWN = 10


def write(schema: Schema | None, folder: str) -> list[str]:
    """Writes the schema of a model into a folder; returns the names of files."""
    if schema is None:
        return []
    text = _text(schema)
    with open(os.path.join(folder, NAME), "w", encoding="utf-8") as file:
        file.write(text)
    return [NAME]


# Training waits while the files of a snapshot are written, and the text of many
# columns takes a second.
@functools.lru_cache(maxsize=1)
def _text(schema: Schema) -> str:
    return schema.yaml()


def check(
    folder: SnapshotFolder,
    manifest: Manifest,
    here: Schema | None,
    error: type[SnapshotError] = SnapshotError,
) -> None:
    """Checks that a snapshot was saved of a model with a certain schema.

    Columns that one of the schemas does not have, or does not use, are ignored.
    So is the schema if the model, or the snapshot, has none.

    Args:
        folder: The folder of snapshots.
        manifest: The snapshot.
        here: The schema of the model that takes it.
        error: What to raise if a column is declared differently.

    Raises:
        SnapshotError: A column is declared differently.
        CorruptSnapshotError: The file of the schema is damaged.
    """
    entry = next((f for f in manifest.files if f.file == NAME), None)
    if here is None or entry is None:
        return
    differences = _differences(_read(folder, manifest, entry), here)
    if differences:
        more = len(differences) - _MOST_SHOWN
        shown = differences[:_MOST_SHOWN]
        if more > 0:
            shown.append(f"and {more} more differences")
        raise error(
            f"{folder.version_path(manifest.version)}: was saved of a model "
            f"with another schema: {'; '.join(shown)}. The rows of its tables "
            "belong to values that were read as that schema declares. Build "
            "the model on the schema of the snapshot, lodestar.data.Schema."
            f"load({folder.file_path(manifest.version, NAME)!r})"
        )


def _differences(saved: Schema, here: Schema) -> list[str]:
    found = []
    for column in here.used:
        if column.name not in saved or not saved[column.name].used:
            continue
        other = saved[column.name]
        for field in dataclasses.fields(column):
            values = getattr(other, field.name), getattr(column, field.name)
            if field.name not in _IGNORED and values[0] != values[1]:
                found.append(
                    f"`{field.name}` of the column {column.name!r} is "
                    f"{values[0]!r} in the snapshot, {values[1]!r} here"
                )
    if set(saved.na_values) != set(here.na_values):
        found.append(
            f"`na_values` are {list(saved.na_values)} in the snapshot, "
            f"{list(here.na_values)} here"
        )
    return found


def _read(
    folder: SnapshotFolder, manifest: Manifest, entry: FileEntry
) -> Schema:
    path = folder.check_file(manifest, entry)
    if snapshot_ops.file_crc(path).crc32c != entry.crc32c:
        raise CorruptSnapshotError(
            f"{path}: bytes 0 to {entry.bytes}: the checksum is not "
            f"{entry.crc32c:08x}, as the manifest has it"
        )
    return Schema.load(path)
