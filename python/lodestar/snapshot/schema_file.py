"""The schema of a model as a file in its snapshots."""

import dataclasses
import functools
import os

from lodestar.schema import Schema
from lodestar.snapshot.errors import SnapshotError
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import Manifest

NAME = "schema.yaml"
# Fields that do not change the meaning of a value.
_IGNORED = ("used", "wide", "why")
_MOST_SHOWN = 10


def write(schema: Schema | None, folder: str) -> list[str]:
    """Writes the schema into a folder; returns the names of files written."""
    if schema is None:
        return []
    with open(os.path.join(folder, NAME), "w", encoding="utf-8") as file:
        file.write(_yaml(schema))
    return [NAME]


# Cached, since many columns take a second, for which training waits.
@functools.lru_cache(maxsize=1)
def _yaml(schema: Schema) -> str:
    return meanings(schema) + schema.yaml()


def meanings(schema: Schema) -> str:
    """Returns comments that servers compare, which cannot parse the rest.

    A line of each used column has its fields that are not their defaults.
    """
    lines = []
    for column in schema.used:
        fields = [
            f"{field.name}={value!r}"
            for field in dataclasses.fields(column)
            if field.name not in (*_IGNORED, "name")
            and (value := getattr(column, field.name)) != field.default
        ]
        lines.append(f"# the column {column.name!r}\t{', '.join(fields)}\n")
    missing = sorted(set(schema.na_values))
    return "".join([*lines, f"# `na_values`\t{missing}\n"])


def check(
    folder: SnapshotFolder, manifest: Manifest, here: Schema | None
) -> None:
    """Checks that the schemas of a snapshot and of a model agree.

    Ignores columns that either schema lacks or does not use. Does nothing if
    either side has no schema. Raises SnapshotError if a column differs.
    """
    entry = next((f for f in manifest.files if f.file == NAME), None)
    if here is None or entry is None:
        return
    saved = Schema.load(folder.intact_file(manifest, entry))
    differences = _differences(saved, here)
    if differences:
        more = len(differences) - _MOST_SHOWN
        shown = differences[:_MOST_SHOWN]
        if more > 0:
            shown.append(f"and {more} more differences")
        raise SnapshotError(
            f"{folder.version_path(manifest.version)}: was saved from a model "
            f"with another schema: {'; '.join(shown)}. The rows of its tables "
            "belong to values that were read with that schema. Build the model "
            "on the snapshot's schema, lodestar.data.Schema.load("
            f"{folder.file_path(manifest.version, NAME)!r})."
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
