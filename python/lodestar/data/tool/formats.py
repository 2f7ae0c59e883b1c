"""The file formats of samples in one table: how each is read and written.

FORMATS[name].open(paths, slots, options)       a Source of columns
FORMATS[name].writer(options)(path, slots)      a SampleWriter
"""

from __future__ import annotations

import copy
import dataclasses
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._errors import DataError
from lodestar.data.csv.csv_table import CsvTable
from lodestar.data.csv.csv_writer import CsvWriter
from lodestar.data.hugectr.norm_dataset import NormDataset
from lodestar.data.hugectr.norm_writer import NormWriter
from lodestar.data.hugectr.raw_dataset import RawDataset
from lodestar.data.hugectr.raw_writer import RawWriter
from lodestar.data.multislot.multislot_dataset import MultiSlotDataset
from lodestar.data.multislot.multislot_writer import MultiSlotWriter
from lodestar.data.parquet.parquet_dataset import ParquetDataset, parquet_slots
from lodestar.data.parquet.parquet_files import read_footer
from lodestar.data.parquet.parquet_writer import ParquetWriter
from lodestar.data.paths import open_input
from lodestar.data.sample_columns import choose, lengths, num_rows
from lodestar.data.sample_writer import SampleWriter
from lodestar.data.skipped_records import SkippedRecords
from lodestar.data.slot_spec import Slot, SlotSpec
from lodestar.data.tool.output import FOLDER_SLOTS, slots_path

_BATCH = 2048
Options = Mapping[str, Any]


class Source:
    """Files of one format, read as columns.

    Attributes:
        paths: The files.
        spec: Their slots, unused ones included.
        in_bytes: Whether progress counts bytes, and not samples.
    """

    in_bytes = False

    def __init__(
        self,
        paths: Sequence[str],
        spec: SlotSpec,
        skipped: SkippedRecords | None,
        on_progress: Callable[[int], None] | None,
    ):
        """Takes what all formats share."""
        self.paths = list(paths)
        self.spec = spec
        self._skipped = skipped
        self._on_progress = on_progress

    def quiet(self) -> Source:
        """As this one, but that what it leaves out is not noted."""
        source = copy.copy(self)
        if self._skipped is not None:
            source._skipped = SkippedRecords()
        return source

    def size(self, path: str) -> int | None:
        """What the progress of a file adds up to, if that is known."""
        return None

    def batches(self, path: str) -> Iterator[dict[str, Any]]:
        """The columns of all slots, as `SampleWriter.write_batch` takes them."""
        raise NotImplementedError


class _DatasetSource(Source):
    """Reads by a dataset of a format."""

    def __init__(
        self,
        paths: Sequence[str],
        spec: SlotSpec,
        skipped: SkippedRecords | None,
        on_progress: Callable[[int], None] | None,
        dataset: Callable[..., tf.data.Dataset],
        size: Callable[[str, SlotSpec], int | None],
    ):
        super().__init__(paths, spec, skipped, on_progress)
        self._dataset = dataset
        self._size = size
        self._read_spec = SlotSpec(map(_as_read, spec))
        self._free = [s for s in spec if s.kind == "dense" and -1 in s.shape]

    def size(self, path: str) -> int | None:
        return self._size(path, self.spec)

    def batches(self, path: str) -> Iterator[dict[str, Any]]:
        options: dict[str, Any] = {"columns": True}
        if self._skipped is not None:
            options |= {"on_error": "skip", "skipped": self._skipped}
        done = 0
        for element in self._dataset(path, self._read_spec, _BATCH, **options):
            columns = {
                name: (column[0].numpy(), column[1].numpy())
                if isinstance(column, tuple)
                else column.numpy()
                for name, column in element.items()
            }
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
        return columns if keep.all() else choose(columns, keep)


def _as_read(slot: Slot) -> Slot:
    """The slot with which all of its values come, whatever it is used for."""
    if slot.kind == "dense" and -1 in slot.shape:
        return Slot.sparse(slot.name, dtype=slot.dtype)
    return dataclasses.replace(slot, used=True)


class _CsvSource(Source):
    """Reads CSV or TSV."""

    in_bytes = True

    def __init__(self, paths, table: CsvTable, skipped, on_progress):
        super().__init__(paths, table.spec, skipped, on_progress)
        self._table = table

    def quiet(self) -> Source:
        source = super().quiet()
        source._table = self._table.quiet()
        return source

    def size(self, path: str) -> int | None:
        return file_size(path)

    def batches(self, path: str) -> Iterator[dict[str, Any]]:
        return self._table.batches(path)


def file_size(path: str) -> int | None:
    """A file's bytes, if they are known and are what is read."""
    if path.endswith(".gz"):
        return None
    return tf.io.gfile.stat(path).length


@dataclasses.dataclass(frozen=True)
class Format:
    """How a format is read and written.

    Attributes:
        name: What it is called.
        open: Takes (paths, slots or None, options, skipped, on_progress);
            returns a `Source`.
        make: Takes (path, slots, options); returns a `SampleWriter`.
        reads: The options of reading.
        writes: The options of writing.
        dataset: The format's dataset function, if it has one.
        finds_slots: Whether files without a slot file can be read.
        listed: Whether HugeCTR reads several of them by a file list.
    """

    name: str
    open: Callable[..., Source]
    make: Callable[..., SampleWriter]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    dataset: Callable[..., tf.data.Dataset] | None = None
    finds_slots: bool = False
    listed: bool = False

    def writer(
        self, options: Options
    ) -> Callable[[str, SlotSpec], SampleWriter]:
        """What makes the writer of a file."""
        return lambda path, spec: self.make(path, spec, options)


def find_slots(paths: Sequence[str]) -> SlotSpec | None:
    """The slot file beside the files: `PATH.slots.yaml`, or `slots.yaml`.

    Raises:
        DataError: Two files have different slots.
        ValueError: A slot file is not valid.
    """
    first: tuple[str, SlotSpec] | None = None
    read: dict[str, SlotSpec] = {}
    for path in paths:
        beside = os.path.join(os.path.dirname(path), FOLDER_SLOTS)
        for candidate in (slots_path(path), beside):
            if candidate not in read:
                if not tf.io.gfile.exists(candidate):
                    continue
                read[candidate] = SlotSpec.from_yaml(candidate)
            spec = read[candidate]
            if first is None:
                first = (candidate, spec)
            elif first[1] != spec:
                raise DataError(
                    f"{candidate}: the slots differ from those of {first[0]}; "
                    "give --slots YAML"
                )
            break
    return first[1] if first else None


def _dataset_source(
    dataset: Callable[..., tf.data.Dataset],
    size: Callable[[str, SlotSpec, Options], int | None],
) -> Callable[..., Source]:
    def open_source(paths, slots, options, skipped, on_progress) -> Source:
        def read(path, spec, batch_size, **more):
            return dataset(path, spec, batch_size, **options, **more)

        return _DatasetSource(
            paths,
            slots,
            skipped,
            on_progress,
            read,
            lambda path, spec: size(path, spec, options),
        )

    return open_source


def _open_parquet(paths, slots, options, skipped, on_progress) -> Source:
    spec = slots or parquet_slots(paths)

    def read(path, given, batch_size, **more):
        # By name only where asked for: a column may hold several labels.
        if slots is None:
            given = None
            _check_slots(path, parquet_slots(path), paths[0], spec)
        return ParquetDataset(path, given, batch_size, **options, **more)

    return _DatasetSource(
        paths,
        spec,
        skipped,
        on_progress,
        read,
        lambda path, spec: read_footer(path).num_rows,
    )


def _check_slots(
    path: str, found: SlotSpec, first: str, wanted: SlotSpec
) -> None:
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


def _slot_text(slot: Slot | None) -> str:
    if slot is None:
        return "none"
    shape = list(slot.shape) if slot.kind == "dense" else ""
    return f"a {slot.kind} slot of {slot.dtype}{shape}"


def _writer(make: Callable[..., SampleWriter]) -> Callable[..., SampleWriter]:
    return lambda path, spec, options: make(path, spec, **options)


def _csv_format(name: str, read: str | None, written: str) -> Format:
    """Text whose delimiter is `read`, unless it is found, and `written`."""

    def open_source(paths, slots, options, skipped, on_progress) -> Source:
        # The suffix says tab; Criteo's layout and --delimiter come before.
        table = CsvTable(
            paths,
            slots,
            skip=None if skipped is None else skipped.add,
            on_progress=on_progress,
            **{"delimiter": read, **options},
        )
        return _CsvSource(paths, table, skipped, on_progress)

    def make(path: str, spec: SlotSpec, options: Options) -> SampleWriter:
        return CsvWriter(path, spec, **{"delimiter": written, **options})

    return Format(
        name,
        open_source,
        make,
        reads=(
            "label",
            "categorical",
            "numeric",
            "missing",
            "delimiter",
            "ids",
        ),
        writes=("delimiter",),
        finds_slots=True,
    )


def _norm_samples(path: str, spec: SlotSpec, options: Options) -> int | None:
    if path.endswith(".gz"):
        return None
    with open_input(path) as file:
        head = file.read(20)
    # Behind the length of a file with check sums.
    at = 12 if head[:12] == struct.pack("<iq", 64, 1) else 8
    count = int.from_bytes(head[at : at + 8], "little", signed=True)
    return count if count > 0 else None


_RAW = ("layout", "key_type", "nnz_per_slot")

FORMATS = {
    f.name: f
    for f in (
        Format(
            "multislot",
            _dataset_source(MultiSlotDataset, lambda *_: None),
            _writer(MultiSlotWriter),
            dataset=MultiSlotDataset,
        ),
        Format(
            "norm",
            _dataset_source(NormDataset, _norm_samples),
            _writer(NormWriter),
            dataset=NormDataset,
            reads=("key_type",),
            writes=("key_type", "check"),
            listed=True,
        ),
        Format(
            "raw",
            _dataset_source(RawDataset, lambda *_: None),
            _writer(RawWriter),
            dataset=RawDataset,
            reads=(*_RAW, "num_samples", "slot_size_array"),
            writes=_RAW,
        ),
        Format(
            "parquet",
            _open_parquet,
            _writer(ParquetWriter),
            dataset=ParquetDataset,
            reads=("slot_size_array",),
            writes=("row_group_size", "compression"),
            finds_slots=True,
            listed=True,
        ),
        _csv_format("csv", None, ","),
        _csv_format("tsv", "\t", "\t"),
    )
}
