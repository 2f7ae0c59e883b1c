"""Schema files that accompany data files."""

import os
from collections.abc import Sequence

import tensorflow as tf

from lodestar._errors import DataError
from lodestar._typing import StrPath
from lodestar.schema import Schema

FOLDER_SCHEMA = "schema.yaml"


def schema_path(path: StrPath) -> str:
    """Returns the path of the schema file of a data file."""
    return os.fspath(path) + ".schema.yaml"


def schema_of(paths: Sequence[str]) -> Schema | None:
    """Returns the schema of data files: `PATH.schema.yaml`, or `schema.yaml`.

    Raises DataError if two files have different schemas.
    """
    first: tuple[str, Schema] | None = None
    read: dict[str, Schema] = {}
    for path in paths:
        beside = os.path.join(os.path.dirname(path), FOLDER_SCHEMA)
        for candidate in (schema_path(path), beside):
            if candidate not in read:
                if not tf.io.gfile.exists(candidate):
                    continue
                read[candidate] = Schema.load(candidate)
            schema = read[candidate]
            if first is None:
                first = (candidate, schema)
            elif first[1] != schema:
                raise DataError(
                    f"{candidate}: differs from {first[0]}; give `schema` "
                    "(--schema)"
                )
            break
    return first[1] if first else None


def check_stored_ids(paths: Sequence[str], schema: Schema) -> None:
    """Raises DataError if the schema hashes columns that are stored as ids."""
    beside = schema_of(paths)
    if beside is None:
        return
    for column in schema.used:
        if column.encoding == "int" or column.name not in beside:
            continue
        stored = beside[column.name]
        if stored.holds_ids and stored.encoding == "int":
            raise DataError(
                f"{paths[0]}: column {column.name!r}: the schema file of the data "
                f"declares {stored.describe()}, but the given schema "
                f"{column.describe()}. The file stores hashed ids. Open it "
                "without `schema`."
            )
