"""HugeCTR's `_metadata.json`, which assigns kinds to Parquet columns."""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from lodestar._checks import is_integer
from lodestar._errors import DataError
from lodestar._files import AtomicFile
from lodestar._input_bytes import open_input
from lodestar.schema import Schema

METADATA_NAME = "_metadata.json"
GROUPS = ("labels", "conts", "cats")
_NAMES = ("file_name", "col_name")


@dataclasses.dataclass(frozen=True)
class ParquetMetadata:
    """Content of a `_metadata.json`.

    `num_rows` maps base names of data files to their rows, in the file's order.
    `columns` has (index in the schema, name) for each of `GROUPS`, by ascending
    index, whatever the order in the file.
    """

    path: str
    num_rows: Mapping[str, int]
    columns: Mapping[str, tuple[tuple[int, str], ...]]

    def rows_of(self, path: str) -> int:
        """Returns the rows that the file at `path` must have, or raises DataError."""
        name = os.path.basename(path)
        if name not in self.num_rows:
            raise DataError(
                f"{path}: is not in 'file_stats' of {self.path}, which has "
                f"{', '.join(self.num_rows) or 'no files'}."
            )
        return self.num_rows[name]


def metadata_path(data_path: str) -> str:
    """Returns the path of `_metadata.json` for a data file."""
    return os.path.join(os.path.dirname(data_path), METADATA_NAME)


def read_metadata(path: str) -> ParquetMetadata | None:
    """Reads a `_metadata.json`; returns None if there is no such file.

    Raises DataError with the key if the content is invalid.
    """
    if not tf.io.gfile.exists(path):
        return None
    with open_input(path) as file:
        data = file.read()
    try:
        return _parse(path, json.loads(data, object_pairs_hook=_unique))
    except RecursionError as error:
        raise DataError(f"{path}: is nested too deeply.") from error
    except ValueError as error:  # Of JSON, UTF-8 and DataError.
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: is not valid JSON: {error}") from error


def write_metadata(metadata: ParquetMetadata) -> None:
    """Writes a `_metadata.json` atomically."""
    content: dict[str, Any] = {
        "file_stats": [
            {"file_name": name, "num_rows": rows}
            for name, rows in metadata.num_rows.items()
        ]
    }
    for group in GROUPS:
        content[group] = [
            {"col_name": name, "index": index}
            for index, name in metadata.columns[group]
        ]
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    with AtomicFile(metadata.path) as file:
        file.write(text.encode())


def metadata_of(data_path: str, schema: Schema) -> ParquetMetadata:
    """Returns the `_metadata.json` of a schema's columns, without files.

    HugeCTR does not support dense integers, free dimensions and sparse floats; they
    are omitted.
    """
    columns: dict[str, list[Any]] = {group: [] for group in GROUPS}
    for index, column in enumerate(schema):
        if column.kind == "label":
            columns["labels"].append((index, column.name))
        elif column.kind != "dense":
            if column.dtype == "uint64":
                columns["cats"].append((index, column.name))
        elif column.dtype == "float" and column.num_values is not None:
            columns["conts"].append((index, column.name))
    return ParquetMetadata(
        metadata_path(data_path),
        {},
        {group: tuple(found) for group, found in columns.items()},
    )


def merged(metadata: ParquetMetadata, path: str, rows: int) -> ParquetMetadata:
    """Returns the stored `_metadata.json` with a data file added.

    Raises DataError if it lists other columns.
    """
    found = read_metadata(metadata.path) or metadata
    if found.columns != metadata.columns:
        raise DataError(
            f"{found.path}: lists other columns than {path}, which needs a separate "
            f"folder: got {_listed(found)}, expected {_listed(metadata)}."
        )
    num_rows = {**found.num_rows, os.path.basename(path): rows}
    return dataclasses.replace(found, num_rows=num_rows)


def _listed(metadata: ParquetMetadata) -> str:
    return "; ".join(
        f"{group} {', '.join(f'{i} {n}' for i, n in columns) or 'none'}"
        for group, columns in metadata.columns.items()
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key!r} is repeated in an object")
        found[key] = value
    return found


def _parse(path: str, content: Any) -> ParquetMetadata:
    wanted = ("file_stats", *GROUPS)
    if not isinstance(content, dict):
        raise DataError(
            f"{path}: must be an object with the keys {', '.join(wanted)}, got "
            f"{type(content).__name__}."
        )
    for key in wanted:
        if key not in content:
            raise DataError(
                f"{path}: key {key!r} is missing; the keys must be "
                f"{', '.join(wanted)}."
            )
    num_rows: dict[str, int] = {}
    for i, entry in enumerate(_list(path, content, "file_stats")):
        where = f"{path}: file_stats[{i}]"
        name = os.path.basename(_member(where, entry, "file_name"))
        rows = _member(where, entry, "num_rows")
        if name in num_rows:
            raise DataError(f"{where}: the file {name!r} is repeated.")
        num_rows[name] = rows
    columns = {}
    groups: dict[int, str] = {}
    for group in GROUPS:
        found = []
        for i, entry in enumerate(_list(path, content, group)):
            where = f"{path}: {group}[{i}]"
            name = _member(where, entry, "col_name")
            index = _member(where, entry, "index")
            if index in groups:
                raise DataError(
                    f"{where}: 'index' {index} is repeated, first in "
                    f"{groups[index]!r}."
                )
            groups[index] = group
            found.append((index, name))
        columns[group] = tuple(sorted(found))
    return ParquetMetadata(path, num_rows, columns)


def _list(path: str, content: Mapping[str, Any], key: str) -> list[Any]:
    if not isinstance(content[key], list):
        raise DataError(
            f"{path}: key {key!r} must be a list, got {content[key]!r}."
        )
    return content[key]


def _member(where: str, entry: Any, key: str) -> Any:
    """Returns the value of a key, a string or a number."""
    if not isinstance(entry, dict) or key not in entry:
        raise DataError(f"{where}: key {key!r} is missing, got {entry!r}.")
    value = entry[key]
    if key in _NAMES:
        wanted, good = "a string", isinstance(value, str) and value
    else:
        wanted = "a whole number of at least 0"
        good = is_integer(value) and value >= 0
    if not good:
        raise DataError(f"{where}: {key!r} must be {wanted}, got {value!r}.")
    return value
