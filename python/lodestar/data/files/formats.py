"""The table of file formats, with their readers and writers."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import tensorflow as tf

from lodestar._checks import did_you_mean
from lodestar._errors import DataError
from lodestar._typing import StrPath
from lodestar.data.arrow.csv_writer import CsvWriter
from lodestar.data.arrow.example_writer import ExampleWriter
from lodestar.data.arrow.parquet_file import SUFFIX
from lodestar.data.arrow.parquet_writer import ParquetWriter
from lodestar.data.sample_writer import SampleWriter
from lodestar.hugectr.norm_dataset import NormDataset
from lodestar.hugectr.norm_writer import NormWriter
from lodestar.hugectr.raw_dataset import RawDataset
from lodestar.hugectr.raw_writer import RawWriter
from lodestar.paddle.instant_dataset import InstantDataset
from lodestar.paddle.instant_writer import InstantWriter
from lodestar.paddle.multislot_dataset import MultiSlotDataset
from lodestar.paddle.multislot_writer import MultiSlotWriter
from lodestar.schema.infer import INFERRED
from lodestar.schema.sections import TEXT_OPTIONS

Options = Mapping[str, Any]


def _no_writer(path: StrPath, *args: Any, **options: Any) -> SampleWriter:
    raise DataError(
        f"{path}: Arrow IPC and JSON files are not written; write Parquet"
    )


@dataclasses.dataclass(frozen=True)
class Format:
    """A file format.

    Attributes:
        name: Name of the format.
        suffixes: File name suffixes; the first is the preferred one.
        make: Takes (path, schema, **options); returns a `SampleWriter`.
        dataset: Takes (paths, schema, batch_size, **options). None for formats
            that Arrow reads, whose schema can be inferred.
        reads: Names of the reading options.
        writes: Names of the writing options.
        listed: Whether HugeCTR reads several such files through a file list.
    """

    name: str
    suffixes: tuple[str, ...]
    make: Callable[..., SampleWriter]
    dataset: Callable[..., tf.data.Dataset] | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    listed: bool = False


_RAW = ("layout", "key_type", "nnz_per_slot")
_TEXT = (*INFERRED, *TEXT_OPTIONS)

FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format(
            "multislot",
            (".txt", ".multislot"),
            MultiSlotWriter,
            dataset=MultiSlotDataset,
            reads=(
                *("mode", "pipe_command"),
                *("ins_id", "parse_content", "parse_logkey"),
            ),
        ),
        Format(
            "instant",
            (".instant",),
            InstantWriter,
            dataset=InstantDataset,
            writes=("batch_size",),
        ),
        Format(
            "norm",
            (".norm", ".data"),
            NormWriter,
            dataset=NormDataset,
            reads=("key_type", "check"),
            writes=("key_type", "check"),
            listed=True,
        ),
        Format(
            "raw",
            (".raw", ".bin"),
            RawWriter,
            dataset=RawDataset,
            reads=(*_RAW, "num_samples", "slot_size_array"),
            writes=_RAW,
        ),
        Format(
            "parquet",
            (SUFFIX,),
            ParquetWriter,
            reads=(*INFERRED, "slot_size_array"),
            writes=("row_group_size", "compression"),
            listed=True,
        ),
        Format(
            "tfrecord",
            (".tfrecord", ".tfrecords"),
            ExampleWriter,
            reads=INFERRED,
        ),
        Format(
            "csv",
            (".csv",),
            CsvWriter,
            reads=_TEXT,
            writes=("delimiter",),
        ),
        Format(
            "tsv",
            (".tsv",),
            functools.partial(CsvWriter, delimiter="\t"),
            reads=_TEXT,
            writes=("delimiter",),
        ),
        Format(
            "arrow",
            (".arrow", ".feather", ".ipc"),
            _no_writer,
            reads=INFERRED,
        ),
        Format(
            "jsonl",
            (".jsonl", ".ndjson"),
            _no_writer,
            reads=INFERRED,
        ),
    )
}
# A table in memory.
TABLE = Format("a table", (), _no_writer, reads=INFERRED)


def format_called(name: Any) -> Format:
    """Returns the format of a name; raises DataError if there is none."""
    if name not in FORMATS:
        raise DataError(
            f"`format` must be one of {tuple(FORMATS)}, got {name!r}."
            f"{did_you_mean(name, FORMATS)}"
        )
    return FORMATS[name]


def check_options(
    where: str,
    found: Format,
    given: Iterable[str],
    use: Literal["reads", "writes"] = "reads",
) -> None:
    """Raises DataError if an option belongs to other formats."""
    for name in given:
        others = [f.name for f in FORMATS.values() if name in getattr(f, use)]
        if others and name not in getattr(found, use):
            needs = " and needs `schema`" if name in INFERRED else ""
            raise DataError(
                f"{where}: is {found.name}{needs}, but `{name}` is an option of "
                f"{', '.join(others)}"
            )
