"""Opens files of any format as columns."""

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from lodestar._errors import DataError
from lodestar._input_bytes import open_input
from lodestar.data.arrow.open_arrow import ArrowOptions, open_files
from lodestar.data.arrow.row_source import good_rows
from lodestar.data.files.formats import Format
from lodestar.data.sample_columns import (
    as_lists,
    cut,
    lengths,
    num_rows,
    take,
)
from lodestar.data.schema import Column, Schema
from lodestar.data.skipped_records import SkippedRecords
from lodestar.hugectr.norm_writer import norm_header
from lodestar.paddle import instant_dataset

_BATCH = 2048
_NORM_HEAD_BYTES = 100


class Source:
    """Files of one format, read as columns of `spec`, including unused ones.

    `notes` tell the user about an inferred `spec`.
    """

    def __init__(
        self,
        paths: Sequence[str],
        spec: Schema,
        skipped: SkippedRecords | None,
        on_progress: Callable[[int], None] | None,
    ):
        self.paths = list(paths)
        self.spec = spec
        self.notes: list[str] = []
        self._skipped = skipped
        self._on_progress = on_progress

    def quiet(self) -> Self:
        """Returns a copy that does not record skipped samples."""
        source = copy.copy(self)
        if self._skipped is not None:
            source._skipped = SkippedRecords()
        return source

    def size(self, path: str) -> int | None:
        """Returns the total of the progress of a file, if it is known."""
        return None

    def batches(self, path: str) -> Iterator[dict[str, Any]]:
        """Yields columns in the form of `SampleWriter.write_batch`."""
        raise NotImplementedError


def open_source(
    found: Format,
    paths: Sequence[str],
    schema: Schema | None,
    skipped: SkippedRecords | None = None,
    on_progress: Callable[[int], None] | None = None,
    **options: Any,
) -> Source:
    """Opens files of a format; a schema None is inferred if the format supports it.

    `skipped` receives invalid records; None raises an error for the first.
    `on_progress` is called with the number of records since the last call.
    """
    if found.dataset is None:
        return _ArrowSource(
            paths, schema, skipped, on_progress, format=found.name, **options
        )
    kinds = {"norm": _NormSource, "instant": _InstantSource}
    return kinds.get(found.name, _DatasetSource)(
        paths,
        schema,
        skipped,
        on_progress,
        dataset=found.dataset,
        **options,
    )


class _DatasetSource(Source):
    """Reads files through the dataset of their format."""

    def __init__(
        self,
        paths: Sequence[str],
        spec: Schema | None,
        skipped: SkippedRecords | None,
        on_progress: Callable[[int], None] | None,
        *,
        dataset: Callable[..., tf.data.Dataset],
        **options: Any,
    ):
        assert spec is not None
        super().__init__(paths, spec, skipped, on_progress)
        self._dataset = functools.partial(dataset, **options)
        self._read_spec: Schema | None = spec.replace(map(_as_read, spec))
        self._free = [s for s in spec if s.kind == "dense" and -1 in s.shape]

    def batches(self, path: str) -> Iterator[dict[str, Any]]:
        options: dict[str, Any] = {"as_columns": True}
        if self._skipped is not None:
            options |= {"on_error": "skip", "skipped": self._skipped}
        done = 0
        dataset = self._dataset(path, self._read_spec, _BATCH, **options)
        for columns in dataset.as_numpy_iterator():
            rows = num_rows(columns)
            if self._free:
                columns = self._good(path, done, columns)
            yield columns
            done += rows
            if self._on_progress is not None:
                self._on_progress(rows)

    def _good(
        self, path: str, done: int, columns: dict[str, Any]
    ) -> dict[str, Any]:
        """Returns the samples whose free dimensions divide their values evenly."""
        keep = np.ones(num_rows(columns), bool)
        for slot in self._free:
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


class _InstantSource(_DatasetSource):
    """Reads FileInstant files, whose bytes depend on which columns are used."""

    def __init__(self, *arguments: Any, dataset: Any, **options: Any):
        super().__init__(
            *arguments, dataset=instant_dataset.every_column, **options
        )
        self._read_spec = self.spec


class _NormSource(_DatasetSource):
    """Reads Norm files, whose header has the number of samples."""

    def size(self, path: str) -> int | None:
        if path.endswith(".gz"):
            return None
        with open_input(path) as file:
            header = norm_header(file.read(_NORM_HEAD_BYTES))
        return header[1] if header and header[1] > 0 else None


class _ArrowSource(Source):
    """Reads files with Arrow; infers their schema if none is given."""

    def __init__(
        self,
        paths: Sequence[str],
        schema: Schema | None,
        skipped: SkippedRecords | None,
        on_progress: Callable[[int], None] | None,
        *,
        format: str,
        **options: Any,
    ):
        as_read = schema
        if schema is not None:
            as_read = schema.replace(
                dataclasses.replace(column, used=True) for column in schema
            )
        self._data = open_files(
            list(paths),
            format,
            as_read,
            ArrowOptions(**options),
            None if skipped is None else skipped.add,
        )
        spec = self._data.schema
        if schema is not None:
            bound = {binding.column.name for binding in self._data.bindings}
            spec = schema.replace(c for c in schema if c.name in bound)
        super().__init__(paths, spec, skipped, on_progress)
        self.notes = self._data.notes

    def size(self, path: str) -> int | None:
        return sum(s.num_rows for s in self._data.sources if s.path == path)

    def batches(self, path: str) -> Iterator[dict[str, Any]]:
        skip = None if self._skipped is None else self._skipped.add
        bindings = self._data.bindings
        for source in self._data.sources:
            if source.path != path:
                continue
            for group, size in enumerate(source.row_groups):
                if not size:
                    continue
                rows = good_rows(
                    source, group, bindings, self._data.na_values, skip
                )
                columns = {
                    binding.column.name: _as_written(binding.column, values)
                    for binding, values in zip(bindings, rows.columns.values())
                }
                for begin in range(0, rows.num_rows, _BATCH):
                    end = min(begin + _BATCH, rows.num_rows)
                    yield cut(columns, begin, end)
                    if self._on_progress is not None:
                        self._on_progress(end - begin)


def _as_written(column: Column, values: Any) -> Any:
    """Returns the values of a column in the form of `SampleWriter.write_batch`."""
    if column.kind == "sparse":
        return as_lists(values)
    if isinstance(values, tuple) or column.kind == "label":
        return values
    return values.reshape(-1, *column.shape)


def _as_read(slot: Column) -> Column:
    """Returns a slot that reads all values, even of an unused slot."""
    if slot.kind == "dense" and -1 in slot.shape:
        return Column.sparse(slot.name, dtype=slot.dtype)
    return dataclasses.replace(slot, used=True)
