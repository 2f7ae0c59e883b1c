"""Files of any format as sources of columns."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._data_tool.source import Source
from lodestar._errors import DataError
from lodestar._input_bytes import open_input
from lodestar.data.arrow.open_arrow import ArrowOptions, open_files
from lodestar.data.arrow.row_source import good_rows
from lodestar.data.files.formats import INFERRED, Format
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

_BATCH = 2048
_NORM_HEAD_BYTES = 100


def open_source(
    found: Format,
    paths: Sequence[str],
    schema: Schema | None,
    skipped: SkippedRecords | None = None,
    on_progress: Callable[[int], None] | None = None,
    **options: Any,
) -> Source:
    """Opens files of a format.

    Args:
        found: The format.
        paths: The files.
        schema: Their schema; None infers it, where the format does.
        skipped: Receives bad records; None raises an error for the first.
        on_progress: Called with the number of records read since the last call.
        **options: The format's options of reading.
    """
    if found.dataset is None:
        return _ArrowSource(
            paths, schema, skipped, on_progress, format=found.name, **options
        )
    kind = _NormSource if found.name == "norm" else _DatasetSource
    return kind(
        paths,
        schema,
        skipped,
        on_progress,
        dataset=found.dataset,
        infer=found.infer,
        **options,
    )


class _DatasetSource(Source):
    """Reads by a dataset of a format."""

    def __init__(
        self,
        paths: Sequence[str],
        spec: Schema | None,
        skipped: SkippedRecords | None,
        on_progress: Callable[[int], None] | None,
        *,
        dataset: Callable[..., tf.data.Dataset],
        infer: Callable[..., Schema] | None = None,
        **options: Any,
    ):
        if infer is not None:
            inferred = {n: options.pop(n) for n in INFERRED if n in options}
            spec = spec or infer(paths, skip=skipped is not None, **inferred)
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
        """The samples whose free dims come out even; the others are errors."""
        keep = np.ones(num_rows(columns), bool)
        for slot in self._free:
            found = lengths(columns[slot.name])
            for row in np.flatnonzero(found % slot.multiple).tolist():
                text = (
                    f"{path}: sample {done + row + 1}: slot {slot.name!r} has "
                    f"{found[row]} values, wanted a multiple of {slot.multiple}"
                )
                if self._skipped is None:
                    raise DataError(text)
                if keep[row]:
                    self._skipped.add(text)
                keep[row] = False
        if keep.all():
            return columns
        return take(columns, np.flatnonzero(keep))


class _NormSource(_DatasetSource):
    """Reads Norm, whose header says how many samples follow."""

    def size(self, path: str) -> int | None:
        if path.endswith(".gz"):
            return None
        with open_input(path) as file:
            header = norm_header(file.read(_NORM_HEAD_BYTES))
        return header[1] if header and header[1] > 0 else None


class _ArrowSource(Source):
    """Reads files that Arrow reads, and finds their schema if none is given."""

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
    """Returns the values of a column as `SampleWriter.write_batch` takes them."""
    if column.kind == "sparse":
        return as_lists(values)
    if isinstance(values, tuple) or column.kind == "label":
        return values
    return values.reshape(-1, *column.shape)


def _as_read(slot: Column) -> Column:
    """The slot with which all of its values come, whatever it is used for."""
    if slot.kind == "dense" and -1 in slot.shape:
        return Column.sparse(slot.name, dtype=slot.dtype)
    return dataclasses.replace(slot, used=True)
