"""The file formats of samples in one table: how each is read and written.

FORMATS[name].open(paths, slots, skipped, on_progress, **options)   a Source
FORMATS[name].make(path, slots, **options)                          a SampleWriter
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._errors import DataError
from lodestar._typing import StrPath
from lodestar.data.arrow.csv_writer import CsvWriter
from lodestar.data.arrow.open_arrow import ArrowOptions, open_files
from lodestar.data.arrow.parquet_file import SUFFIX
from lodestar.data.arrow.parquet_writer import ParquetWriter
from lodestar.data.arrow.row_source import good_rows
from lodestar.data.example.example_dataset import ExampleDataset
from lodestar.data.example.example_writer import ExampleWriter
from lodestar.data.example.sample_table import infer_examples
from lodestar.data.input_bytes import open_input
from lodestar.data.sample_columns import (
    as_lists,
    cut,
    lengths,
    num_rows,
    take,
)
from lodestar.data.sample_writer import SampleWriter
from lodestar.data.schema import Column, Schema
from lodestar.data.skipped_records import SkippedRecords
from lodestar.data.source import Source
from lodestar.hugectr.norm_dataset import NormDataset
from lodestar.hugectr.norm_writer import NormWriter, norm_header
from lodestar.hugectr.raw_dataset import RawDataset
from lodestar.hugectr.raw_writer import RawWriter
from lodestar.paddle.multislot_dataset import MultiSlotDataset
from lodestar.paddle.multislot_writer import MultiSlotWriter

_BATCH = 2048
_NORM_HEAD_BYTES = 100
Options = Mapping[str, Any]


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


def _no_writer(path: StrPath, *args: Any, **options: Any) -> SampleWriter:
    raise DataError(f"{path}: Arrow IPC files are not written; write Parquet")


def _as_read(slot: Column) -> Column:
    """The slot with which all of its values come, whatever it is used for."""
    if slot.kind == "dense" and -1 in slot.shape:
        return Column.sparse(slot.name, dtype=slot.dtype)
    return dataclasses.replace(slot, used=True)


@dataclasses.dataclass(frozen=True)
class Format:
    """How a format is read and written.

    Attributes:
        name: What it is called.
        suffixes: How names of its files end, the first one of those we name.
        open: Takes (paths, schema or None, skipped, on_progress, **options);
            returns a `Source`.
        make: Takes (path, schema, **options); returns a `SampleWriter`.
        dataset: Takes (paths, schema, batch_size, **options); None for formats
            that Arrow reads.
        reads: The options of reading.
        writes: The options of writing.
        infer: Takes (paths, label=, categorical=, numeric=, na_values=); returns
            the schema of files of examples. None for files that do not say it.
        finds_schema: Whether files without a schema file can be read.
        listed: Whether HugeCTR reads several of them by a file list.
    """

    name: str
    suffixes: tuple[str, ...]
    open: Callable[..., Source]
    make: Callable[..., SampleWriter]
    dataset: Callable[..., tf.data.Dataset] | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    infer: Callable[..., Schema] | None = None
    finds_schema: bool = False
    listed: bool = False


_RAW = ("layout", "key_type", "nnz_per_slot")
# Options that say what a schema would say.
INFERRED = ("label", "categorical", "numeric", "na_values")
_TEXT = (*INFERRED, "columns", "delimiter", "encoding")

FORMATS = {
    f.name: f
    for f in (
        Format(
            "multislot",
            (".txt", ".multislot"),
            functools.partial(_DatasetSource, dataset=MultiSlotDataset),
            MultiSlotWriter,
            dataset=MultiSlotDataset,
        ),
        Format(
            "norm",
            (".norm", ".data"),
            functools.partial(_NormSource, dataset=NormDataset),
            NormWriter,
            dataset=NormDataset,
            reads=("key_type",),
            writes=("key_type", "check"),
            listed=True,
        ),
        Format(
            "raw",
            (".raw", ".bin"),
            functools.partial(_DatasetSource, dataset=RawDataset),
            RawWriter,
            dataset=RawDataset,
            reads=(*_RAW, "num_samples", "slot_size_array"),
            writes=_RAW,
        ),
        Format(
            "parquet",
            (SUFFIX,),
            functools.partial(_ArrowSource, format="parquet"),
            ParquetWriter,
            reads=(*INFERRED, "slot_size_array"),
            writes=("row_group_size", "compression"),
            finds_schema=True,
            listed=True,
        ),
        Format(
            "arrow",
            (".arrow", ".feather", ".ipc"),
            functools.partial(_ArrowSource, format="arrow"),
            _no_writer,
            reads=INFERRED,
            finds_schema=True,
        ),
        Format(
            "tfrecord",
            (".tfrecord", ".tfrecords"),
            functools.partial(
                _DatasetSource, dataset=ExampleDataset, infer=infer_examples
            ),
            ExampleWriter,
            dataset=ExampleDataset,
            reads=INFERRED,
            infer=infer_examples,
            finds_schema=True,
        ),
        Format(
            "csv",
            (".csv",),
            functools.partial(_ArrowSource, format="csv"),
            CsvWriter,
            reads=_TEXT,
            writes=("delimiter",),
            finds_schema=True,
        ),
        Format(
            "tsv",
            (".tsv",),
            functools.partial(_ArrowSource, format="tsv"),
            functools.partial(CsvWriter, delimiter="\t"),
            reads=_TEXT,
            writes=("delimiter",),
            finds_schema=True,
        ),
    )
}
