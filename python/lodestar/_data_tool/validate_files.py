"""Finds all errors in files of samples."""

import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._data_tool.distinct_ids import (
    DistinctIds,
    shared_ids,
    unsigned,
)
from lodestar._data_tool.progress import Progress
from lodestar._data_tool.sources import Source
from lodestar._errors import DataError, describe_error
from lodestar.data.arrow.parquet_file import ParquetFile
from lodestar.data.sample_columns import flat, lengths, num_rows
from lodestar.data.skipped_records import SkippedRecords
from lodestar.hugectr.parquet_metadata import metadata_path, read_metadata

_MAX_SHOWN = 3


class Validation:
    """Reads files and yields their errors."""

    def __init__(
        self,
        source: Source,
        skipped: SkippedRecords,
        *,
        format_name: str,
        for_paddle: bool = False,
        progress: Progress,
    ):
        """Creates a validation of `source`, which was opened with `skipped`.

        With `for_paddle`, samples that Paddle rejects in MultiSlot text, such as
        those with an empty slot, are errors.
        """
        self._source = source
        self._skipped = skipped
        self._format = format_name
        self._for_paddle = for_paddle
        self._progress = progress
        self._num_told = 0
        self._others = 0
        self._ids = {
            slot.name: DistinctIds()
            for slot in source.spec.sparse
            if slot.dtype == "uint64"
        }
        self.num_samples = 0

    @property
    def num_errors(self) -> int:
        """Number of errors so far; an unreadable part counts as its samples."""
        return self._skipped.count + self._others

    def shared_ids(self) -> str | None:
        """Describes the ids that several slots have, or returns None.

        They are not an error, but slots that share a table share the rows of these
        ids, and HugeCTR's Norm needs slots without common ids.
        """
        count, examples = shared_ids(self._ids, _MAX_SHOWN)
        if not count:
            return None
        shown = [
            f"{one} in {', '.join(map(repr, names))}"
            for one, names in examples.items()
        ]
        more = "" if all(d.exact for d in self._ids.values()) else " or more"
        return (
            f"{count}{more} id{'' if count == 1 else 's'} shared by slots: "
            + "; ".join(shown + ["..."] * (count > len(shown)))
        )

    def errors(self) -> Iterator[str]:
        """Reads all files and yields a line per error.

        Yields at most the first 100 invalid records.
        """
        if self._format == "parquet":
            first_of_folder: dict[str, str] = {}
            for path in self._source.paths:
                first_of_folder.setdefault(os.path.dirname(path), path)
            for path in first_of_folder.values():
                for text in _metadata_errors(path):
                    yield self._other(text)
        for path in self._source.paths:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                yield from self._file_errors(path)
            for warning in caught:
                if issubclass(warning.category, UserWarning):
                    yield self._other(str(warning.message))

    def _file_errors(self, path: str) -> Iterator[str]:
        done = 0
        try:
            self._progress.start(f"checking {path}", self._source.size(path))
            for columns in self._source.batches(path):
                yield from self._new()
                if self._for_paddle:
                    yield from self._paddle_errors(path, done, columns)
                for name, distinct in self._ids.items():
                    distinct.add(unsigned(flat(columns[name])))
                done += num_rows(columns)
                self.num_samples += num_rows(columns)
        except (DataError, ValueError, OSError, tf.errors.OpError) as error:
            yield from self._new()
            text = describe_error(error)
            if text == f"{path}: no file of 1 can be read":
                return  # The reason has been yielded already.
            yield self._other(text if path in text else f"{path}: {text}")
            return
        yield from self._new()

    def _paddle_errors(
        self, path: str, done: int, columns: Any
    ) -> Iterator[str]:
        for name, column in columns.items():
            for row in np.flatnonzero(lengths(column) == 0).tolist():
                yield self._other(
                    f"{path}: good sample {done + row + 1}: slot {name!r} is "
                    "empty, which Paddle refuses"
                )

    def _new(self) -> list[str]:
        """Returns the records skipped since the last call."""
        if self._skipped.count == self._num_told:
            return []
        messages = self._skipped.messages
        new = messages[self._num_told :]
        self._num_told = len(messages)
        return new

    def _other(self, text: str) -> str:
        self._others += 1
        return text


def _metadata_errors(path: str) -> Iterator[str]:
    """Yields the differences between `_metadata.json` and the data files."""
    where = metadata_path(path)
    try:
        metadata = read_metadata(where)
        if metadata is None:
            return
        schema = ParquetFile(path).schema
    except (DataError, tf.errors.OpError) as error:
        yield describe_error(error)
        return
    for name in metadata.num_rows:
        listed = os.path.join(os.path.dirname(path), name)
        if not tf.io.gfile.exists(listed):
            yield f"{where}: file_stats: the file {listed} does not exist."
    for group, columns in metadata.columns.items():
        for index, name in columns:
            found = schema.names[index] if index < len(schema.names) else None
            if found != name:
                yield (
                    f"{where}: {group}: column {index} of {path} must be "
                    f"{name!r}, got {found!r}."
                )
