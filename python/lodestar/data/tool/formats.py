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
from lodestar.data.csv.csv_dataset import CsvDataset
from lodestar.data.csv.csv_table import CsvTable
from lodestar.data.csv.csv_writer import CsvWriter
from lodestar.data.example.example_dataset import ExampleDataset
from lodestar.data.example.example_writer import ExampleWriter
from lodestar.data.input_bytes import open_input
from lodestar.data.parquet.parquet_dataset import (
    ParquetDataset,
    parquet_schema_of,
)
from lodestar.data.parquet.parquet_files import SUFFIX, read_footer
from lodestar.data.parquet.parquet_writer import ParquetWriter
from lodestar.data.sample_columns import lengths, num_rows, take
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
        spec: Schema,
        skipped: SkippedRecords | None,
        on_progress: Callable[[int], None] | None,
        *,
        dataset: Callable[..., tf.data.Dataset],
        **options: Any,
    ):
        super().__init__(paths, spec, skipped, on_progress)
        self._dataset = functools.partial(dataset, **options)
        self._read_spec: Schema | None = Schema(map(_as_read, spec))
        self._free = [s for s in spec if s.kind == "dense" and -1 in s.shape]

    def batches(self, path: str) -> Iterator[dict[str, Any]]:
        options: dict[str, Any] = {"columns": True}
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


class _ParquetSource(_DatasetSource):
    """Reads Parquet, which may say by itself what its slots are."""

    def __init__(
        self,
        paths: Sequence[str],
        schema: Schema | None,
        *others: Any,
        **dataset: Any,
    ):
        spec = schema or parquet_schema_of(paths)
        super().__init__(paths, spec, *others, **dataset)
        if schema is None:
            # By name only where asked for: a column may hold several labels.
            self._read_spec = None

    def size(self, path: str) -> int | None:
        return read_footer(path).num_rows

    def batches(self, path: str) -> Iterator[dict[str, Any]]:
        if self._read_spec is None:
            _check_slots(
                path, parquet_schema_of(path), self.paths[0], self.spec
            )
        yield from super().batches(path)


def _as_read(slot: Column) -> Column:
    """The slot with which all of its values come, whatever it is used for."""
    if slot.kind == "dense" and -1 in slot.shape:
        return Column.sparse(slot.name, dtype=slot.dtype)
    return dataclasses.replace(slot, used=True)


def _check_slots(path: str, found: Schema, first: str, wanted: Schema) -> None:
    """Raises DataError where files have different slots."""
    if found == wanted or not read_footer(path).num_rows:
        return
    for name in dict.fromkeys(wanted.names() + found.names()):
        here, there = (
            spec[name] if name in spec else None for spec in (found, wanted)
        )
        if here != there:
            raise DataError(
                f"{path}: column {name!r}: found {_slot_text(here)}, wanted "
                f"{_slot_text(there)} as {first} has it"
            )
    raise DataError(
        f"{path}: the columns are {', '.join(found.names())}, wanted "
        f"{', '.join(wanted.names())} as {first} has them"
    )


def _slot_text(slot: Column | None) -> str:
    if slot is None:
        return "none"
    shape = list(slot.shape) if slot.kind == "dense" else ""
    return f"a {slot.kind} slot of {slot.dtype}{shape}"


@dataclasses.dataclass(frozen=True)
class Format:
    """How a format is read and written.

    Attributes:
        name: What it is called.
        suffixes: How names of its files end, the first one of those we name.
        open: Takes (paths, slots or None, skipped, on_progress, **options);
            returns a `Source`.
        make: Takes (path, slots, **options); returns a `SampleWriter`.
        dataset: The format's dataset function.
        reads: The options of reading.
        writes: The options of writing.
        finds_slots: Whether files without a schema file can be read.
        listed: Whether HugeCTR reads several of them by a file list.
    """

    name: str
    suffixes: tuple[str, ...]
    open: Callable[..., Source]
    make: Callable[..., SampleWriter]
    dataset: Callable[..., tf.data.Dataset]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    finds_slots: bool = False
    listed: bool = False


_RAW = ("layout", "key_type", "nnz_per_slot")
_CSV = ("label", "categorical", "numeric", "missing", "delimiter", "ids")

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
            functools.partial(_ParquetSource, dataset=ParquetDataset),
            ParquetWriter,
            dataset=ParquetDataset,
            reads=("slot_size_array",),
            writes=("row_group_size", "compression"),
            finds_slots=True,
            listed=True,
        ),
        Format(
            "tfrecord",
            (".tfrecord", ".tfrecords"),
            functools.partial(_DatasetSource, dataset=ExampleDataset),
            ExampleWriter,
            ExampleDataset,
            reads=("texts",),
        ),
        Format(
            "csv",
            (".csv",),
            CsvTable,
            CsvWriter,
            CsvDataset,
            reads=_CSV,
            writes=("delimiter",),
            finds_slots=True,
        ),
        Format(
            "tsv",
            (".tsv",),
            functools.partial(CsvTable, delimiter="\t"),
            functools.partial(CsvWriter, delimiter="\t"),
            functools.partial(CsvDataset, delimiter="\t"),
            reads=_CSV,
            writes=("delimiter",),
            finds_slots=True,
        ),
    )
}
