"""Opens files of any format as columns."""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from lodestar._errors import DataError
from lodestar._input_bytes import open_input
from lodestar.data.arrow.open_arrow import ArrowData, ArrowOptions, open_files
from lodestar.data.arrow.row_source import good_rows
from lodestar.data.files.formats import Format
from lodestar.data.sample_columns import (
    as_lists,
    cut,
    lengths,
    num_rows,
    take,
)
from lodestar.data.skipped_records import SkippedRecords
from lodestar.hugectr.norm_writer import norm_header
from lodestar.paddle import instant_dataset
from lodestar.schema import Column, Schema

_BATCH = 2048
_NORM_HEAD_BYTES = 100


class Source:
    """Files of one format, read as columns of `spec`, including unused ones.

    `notes` tell the user about an inferred `spec`.
    """

    def __init__(
        self,
        found: Format,
        paths: Sequence[str],
        schema: Schema | None,
        skipped: SkippedRecords | None = None,
        on_progress: Callable[[int], None] = lambda count: None,
        **options: Any,
    ):
        """Opens files; a schema None is inferred if the format supports it.

        `skipped` receives invalid records; None raises an error for the first.
        `on_progress` is called with the number of records since the last call.
        """
        self.paths = list(paths)
        self.notes: list[str] = []
        self._format = found
        self._skipped = skipped
        self._on_progress = on_progress
        self._options = options
        self._data: ArrowData | None = None
        if found.dataset is not None:
            assert schema is not None
            self.spec = schema
            return
        as_read = None if schema is None else schema.replace(map(_used, schema))
        self._data = open_files(
            self.paths,
            found.name,
            as_read,
            ArrowOptions(**options),
            None if skipped is None else skipped.add,
        )
        self.spec = self._data.schema
        self.notes = self._data.notes
        if schema is not None:
            bound = {binding.column.name for binding in self._data.bindings}
            self.spec = schema.replace(c for c in schema if c.name in bound)

    def quiet(self) -> Self:
        """Returns a copy that does not record skipped samples."""
        source = copy.copy(self)
        if self._skipped is not None:
            source._skipped = SkippedRecords()
        return source

    def size(self, path: str) -> int | None:
        """Returns the total of the progress of a file, if it is known."""
        if self._data is not None:
            return sum(s.num_rows for s in self._data.sources if s.path == path)
        if self._format.name != "norm" or path.endswith(".gz"):
            return None
        with open_input(path) as file:
            header = norm_header(file.read(_NORM_HEAD_BYTES))
        return header[1] if header and header[1] > 0 else None

    def batches(self, path: str) -> Iterator[dict[str, Any]]:
        """Yields columns in the form of `SampleWriter.write_batch`."""
        if self._data is None:
            batches = self._batches_of_dataset(path)
        else:
            batches = self._batches_of_rows(path, self._data)
        for columns in batches:
            yield columns
            self._on_progress(num_rows(columns))

    def _batches_of_dataset(self, path: str) -> Iterator[dict[str, Any]]:
        # The bytes of FileInstant depend on which columns are used.
        is_instant = self._format.name == "instant"
        dataset: Any = self._format.dataset
        spec = self.spec.replace(map(_as_read, self.spec))
        if is_instant:
            dataset, spec = instant_dataset.every_column, self.spec
        options = {**self._options, "as_columns": True}
        if self._skipped is not None:
            options |= {"on_error": "skip", "skipped": self._skipped}
        done = 0
        for columns in dataset(
            path, spec, _BATCH, **options
        ).as_numpy_iterator():
            yield self._good(path, done, columns)
            done += num_rows(columns)

    def _batches_of_rows(
        self, path: str, data: ArrowData
    ) -> Iterator[dict[str, Any]]:
        skip = None if self._skipped is None else self._skipped.add
        for source in data.sources:
            for group, size in enumerate(source.row_groups):
                if source.path != path or not size:
                    continue
                rows = good_rows(
                    source, group, data.bindings, data.na_values, skip
                )
                columns = {
                    binding.column.name: _as_written(binding.column, values)
                    for binding, values in zip(
                        data.bindings, rows.columns.values()
                    )
                }
                for begin in range(0, rows.num_rows, _BATCH):
                    end = min(begin + _BATCH, rows.num_rows)
                    yield cut(columns, begin, end)

    def _good(
        self, path: str, done: int, columns: dict[str, Any]
    ) -> dict[str, Any]:
        """Returns the samples whose free dimensions divide their values evenly."""
        keep = np.ones(num_rows(columns), bool)
        for slot in self.spec:
            if slot.multiple == 1 or slot.num_values is not None:
                continue
            found = lengths(columns[slot.name])
            for row in np.flatnonzero(found % slot.multiple).tolist():
                text = (
                    f"{path}: sample {done + row + 1}: slot {slot.name!r} must "
                    f"have a multiple of {slot.multiple} values, got {found[row]}."
                )
                if self._skipped is None:
                    raise DataError(text)
                if keep[row]:
                    self._skipped.add(text)
                keep[row] = False
        if keep.all():
            return columns
        return take(columns, np.flatnonzero(keep))


def _as_written(column: Column, values: Any) -> Any:
    """Returns the values of a column in the form of `SampleWriter.write_batch`."""
    if column.kind == "sparse":
        return as_lists(values)
    if isinstance(values, tuple) or column.kind == "label":
        return values
    return values.reshape(-1, *column.shape)


def _used(column: Column) -> Column:
    return dataclasses.replace(column, used=True)


def _as_read(column: Column) -> Column:
    """Returns a column that reads all values, of batches of any sizes."""
    if column.kind == "dense" and -1 in column.shape:
        return Column.sparse(column.name, dtype=column.dtype)
    return _used(column)
