"""open_dataset: opens files or tables as a tf.data.Dataset."""

import dataclasses
import functools
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

import tensorflow as tf

from lodestar import _bases
from lodestar._arguments import explained
from lodestar._checks import check_integer, is_number
from lodestar._errors import DataError
from lodestar._formats import (
    FormatName,
    KeyType,
    Layout,
    MultiSlotMode,
    OnError,
    ReadChecks,
    SparseForm,
)
from lodestar._input_paths import as_input
from lodestar._typing import StrPath
from lodestar.data.arrow.open_arrow import (
    ARROW_OPTIONS,
    ArrowData,
    ArrowOptions,
    open_files,
    open_table,
)
from lodestar.data.arrow.row_source import partitions_of
from lodestar.data.arrow.table_source import is_table, name_of
from lodestar.data.files.find_format import expand_inputs, one_format
from lodestar.data.files.formats import (
    FORMATS,
    TABLE,
    Format,
    check_options,
    format_called,
)
from lodestar.data.files.schema_beside import check_stored_ids, schema_of
from lodestar.data.pieces import Piece
from lodestar.data.record_dataset import (
    READ_OPTIONS,
    ReadArguments,
    ReadOptions,
    as_paths,
    given_options,
)
from lodestar.data.shared_file_list import SharedFileList
from lodestar.data.skipped_records import SkippedRecords
from lodestar.schema import Column, Schema, SchemaLike, as_schema
from lodestar.schema.infer import Wanted

if TYPE_CHECKING:

    class SchemaDataset(_bases.Dataset):
        """A dataset with a schema."""

        schema: Schema

        def pieces(self) -> list[Piece]:
            """Returns its files, unless it is a table or was split."""


class OpenArguments(ReadArguments, total=False):
    """Arguments of `open_dataset` by name, except those that change its result."""

    format: FormatName | None
    label: str | None
    categorical: Collection[str]
    numeric: Collection[str]
    ignore: Collection[str]
    declare: Collection[Column]
    sample_weight: str | None
    na_values: Collection[str] | None
    columns: Sequence[str] | None
    delimiter: str | None
    quote: str | None
    header: bool | None
    skip_lines: int | None
    encoding: str | None
    weights: Mapping[str, str] | None
    split_by: str | None
    verbose: bool
    mode: MultiSlotMode | None
    pipe_command: Sequence[StrPath] | None
    ins_id: bool
    parse_content: bool
    parse_logkey: bool
    key_type: KeyType | None
    check: ReadChecks | None
    layout: Layout | None
    nnz_per_slot: int | Sequence[int] | None
    num_samples: int | None
    slot_size_array: Sequence[int] | None


_BY_COMMAND = "`open_command`"
# Options of formats that Arrow does not read.
_OF_FORMATS = tuple(
    dict.fromkeys(
        name
        for found in FORMATS.values()
        if found.dataset is not None
        for name in found.reads
        if name != "slot_size_array"
    )
)
# With one of these, a dataset has state that files cannot share.
_STATEFUL = {"mode", "shuffle_files", "shuffle"}


@overload
def open_dataset(
    data: Any,
    schema: SchemaLike | None = None,
    batch_size: int = 1024,
    *,
    split: None = None,
    **options: Unpack[OpenArguments],
) -> "SchemaDataset": ...


@overload
def open_dataset(
    data: Any,
    schema: SchemaLike | None = None,
    batch_size: int = 1024,
    *,
    split: float,
    **options: Unpack[OpenArguments],
) -> "tuple[SchemaDataset, SchemaDataset]": ...


@overload
def open_dataset(
    data: Any,
    schema: SchemaLike | None = None,
    batch_size: int = 1024,
    *,
    split: float | None,
    **options: Unpack[OpenArguments],
) -> "SchemaDataset | tuple[SchemaDataset, SchemaDataset]": ...


@explained()
def open_dataset(
    data: Any,
    schema: SchemaLike | None = None,
    batch_size: int = 1024,
    *,
    format: FormatName | None = None,
    label: str | None = None,
    categorical: Collection[str] = (),
    numeric: Collection[str] = (),
    ignore: Collection[str] = (),
    declare: Collection[Column] = (),
    sample_weight: str | None = None,
    na_values: Collection[str] | None = None,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    header: bool | None = None,
    skip_lines: int | None = None,
    encoding: str | None = None,
    weights: Mapping[str, str] | None = None,
    split: float | None = None,
    split_by: str | None = None,
    verbose: bool = True,
    drop_remainder: bool = False,
    num_parallel_files: int = 2,
    deterministic: bool = True,
    shuffle_files: bool = False,
    shuffle: int = 0,
    seed: int | None = None,
    repeat: int | None = 1,
    shard: tuple[int, int] | None = None,
    prefetch: int = 1,
    sparse: SparseForm = "ragged",
    on_error: OnError = "raise",
    skipped: SkippedRecords | None = None,
    as_columns: bool = False,
    open_command: Sequence[StrPath] | None = None,
    mode: MultiSlotMode | None = None,
    pipe_command: Sequence[StrPath] | None = None,
    ins_id: bool = False,
    parse_content: bool = False,
    parse_logkey: bool = False,
    key_type: KeyType | None = None,
    check: ReadChecks | None = None,
    layout: Layout | None = None,
    nnz_per_slot: int | Sequence[int] | None = None,
    num_samples: int | None = None,
    slot_size_array: Sequence[int] | None = None,
) -> "SchemaDataset | tuple[SchemaDataset, SchemaDataset]":
    """Opens files or a table as batches of `(features, label)`.

    The format of files is detected from their first bytes: CSV and other delimited
    text, JSON lines (one object per line), Parquet, Arrow IPC (Feather), TFRecord
    of tf.Example, Paddle MultiSlot, HugeCTR Norm and Raw. Raw files, and those of
    Paddle's FileInstantDataset, are detected by their suffix. Tables are pandas and
    polars DataFrames, Arrow tables and Hugging Face datasets.

    Without `schema`, the kind of each column is inferred from the first rows,
    printed, and returned as `dataset.schema`. Inference decides only where the values
    leave one meaning: integers, for example, may be ids or numbers. All columns in
    doubt are one error, with a call that declares them. Open all other data with that
    schema, so that equal values have the same meaning:

    >>> train = open_dataset("clicks/train.csv", label="click")
    >>> test = open_dataset("clicks/test.parquet", schema=train.schema)
    >>> model.fit(train, validation_data=test)

    Args:
        data: A path or several, or a table. Folders (also Hive-partitioned), file
            lists and patterns (`"day-*.csv"`) stand for the files in them. With
            `schema` and a `format` of MultiSlot, FileInstant, Norm or Raw, also a
            `SharedFileList`, or a string tensor inside a `tf.function`, neither of
            which is inspected.
        schema: A `Schema`, a list of `Column`s, the path of a schema file, or a
            model that was built on `schema.inputs()`. None uses the schema file of
            the data (`PATH.schema.yaml` or `schema.yaml`), and infers a schema if
            there is none. If a source has no label columns, the dataset yields
            features only.
        batch_size: Number of examples per batch.
        format: `"csv"`, `"tsv"`, `"jsonl"`, `"parquet"`, `"arrow"`, `"tfrecord"`,
            `"multislot"`, `"instant"`, `"norm"` or `"raw"`. None detects it.
        label: Without `schema`: the label, as `COLUMN`, or `COLUMN=POSITIVE`: 1
            where the value is POSITIVE, and 0 for the other values that inference
            sees; a new value is an error. Defaults to the column `"label"`.
        categorical: Without `schema`: names of id columns.
        numeric: Without `schema`: names of number columns.
        ignore: Without `schema`: names of columns to leave out.
        declare: Without `schema`: `Column`s that are taken as they are, for what the
            other options cannot say, e.g. `Column.sparse("tags", separator="|")`.
        sample_weight: Without `schema`: the column with the weight of each example
            in the loss.
        na_values: Without `schema`: strings that mean missing, in every source.
        columns: Text: names of all columns, for files without a header or to
            replace the names in it.
        delimiter: Text: the delimiter, of one or several characters. None uses the
            only one of comma, tab, semicolon, `|` and `::` that splits the first
            lines into equally many fields, or that makes the names of `schema`
            or `columns` fit. If there are two or none, this is an error.
        quote: Text: the quote character, or `""` if no character quotes. None
            means double quotes if the delimiter is one character, and refuses a
            file that also has a reading with as many columns in which they are
            ordinary characters of several rows.
        header: Text: whether the first record is a header. None: it is if it
            has the columns that are read, or `columns`, or names above a column of
            numbers; it is not if `columns` is given and the record consists of
            numbers. Otherwise this is an error.
        skip_lines: Text: the number of lines before the first record, e.g. 1 for
            files that begin with a comment. Defaults to 0.
        encoding: Text: the encoding, which must extend ASCII. Defaults to UTF-8.
            The text options are saved in an inferred schema, as `schema.text`, and
            apply to the text files that are opened with that schema.
        weights: Maps an id column to the float column with a weight for each of
            its ids; see `Schema.with_weights`.
        split: The fraction of rows to hold out, e.g. 0.1. Returns a pair of
            datasets, the second with the held-out rows. The choice depends on the
            position of a row in the data and on `seed`, 0 by default. Not for
            MultiSlot, FileInstant, Norm and Raw files.
        split_by: With `split`: a column, of whose values the fraction is held out,
            e.g. `"user"`: each user is in one of the datasets.
        verbose: Whether to print an inferred schema to stderr.
        drop_remainder: Whether to drop an epoch's last batch if it is smaller.
        num_parallel_files: Number of parsing threads.
        deterministic: If False, each thread reads its own file, and examples of
            different files are interleaved as they become ready. Such an iterator
            cannot be saved.
        shuffle_files: Whether to read the files in a new order in every epoch.
        shuffle: If positive, the size of the window from which examples are
            drawn at random, differently in every epoch.
        seed: Seed for shuffling. None draws a new seed for each dataset.
        repeat: Number of epochs. None repeats without end.
        shard: `(num, index)`: reads one of `num` disjoint parts of the data. The
            parts consist of every `num`-th file, or with fewer files than readers,
            of every `num`-th record of each file (in Parquet, TFRecord and text, a
            run of rows).
        prefetch: Number of batches to prepare ahead; 0 prepares each on demand.
        sparse: Form of sparse columns: `"ragged"`; `"lod"`, a
            `lodestar.ragged.LoDTensor` each; or `"csr"`, one HugeCTR CSR over
            all S sparse id columns:
            `features["csr"]` is a dict of `row_offsets`, int64 `[B * S + 1]`, with
            the columns of an example adjacent, and `values`, int64 `[N]`. Sparse
            float columns remain ragged.
        on_error: `"raise"`: a bad record raises an error that names it. `"skip"`:
            bad records are skipped, counted, and reported in `skipped` and in
            TensorFlow's log. An unreadable file, e.g. a missing one, is always an
            error.
        skipped: A `SkippedRecords` for the counts and messages.
        as_columns: If True, an element is a dict of the used columns as a writer's
            `write_batch` accepts them, bit for bit as read: a sparse column is
            `(values, row_splits)`, a one-hot column its ids `[B]`, a label
            `[B, 1]` in its own dtype.
        open_command: A command and its arguments, e.g. `["hdfs", "dfs", "-cat",
            "{path}"]`, for files that no TensorFlow file system supports. It runs
            once per file, with each `{path}` replaced, and without a shell or
            stdin. Its stdout is the content of the file, which is decompressed if
            the path ends in `.gz`. Paths are passed unchanged, without expanding
            folders or file lists. A command that cannot be run or has a nonzero
            exit code is an error like an unreadable file.

    Options of MultiSlot text:
        mode: `"queue"`, the default, streams the lines. `"file_instant"` reads a
            whole file before its first example. `"in_memory"` loads all files now,
            as `lodestar.paddle.InMemoryDataset`.
        pipe_command: A command and its arguments, e.g. `["python", "gen.py"]`. Each
            file goes through a process of its own, without a shell: its
            decompressed bytes are stdin, and stdout is the text that is read.
        ins_id: If True, each line starts with `1 <ins_id>`, the string feature
            `"ins_id"`.
        parse_content: If True, `1 <content>` follows, the feature `"content"`.
        parse_logkey: If True, `1 <logkey>` follows, whose hexadecimal digits 11 to
            13, 14 to 15 and 16 to 31 are the int64 features `"cmatch"`, `"rank"`
            and `"search_id"`.

    Options of Norm files:
        key_type: `"uint32"`, the default, or `"int64"`.
        check: `"auto"`, the default, `"sum"` or `"none"`: whether the files have
            checksums.

    Options of Raw files:
        layout: `"float"`, the default, `"int"`, `"multi_hot_float"` or
            `"multi_hot_int"`; see docs/internals/formats.md.
        key_type: `"uint32"`, the default, or as `layout` allows `"int32"` or
            `"int64"`.
        nnz_per_slot: The number of keys of each sparse and one-hot column, or one
            number for all, in a multi-hot layout. Defaults to 1.
        num_samples: The number of samples to read from each file. Defaults to all.
        slot_size_array: For each id column one more than its largest key (also of
            Parquet files). Keys are checked, and the sizes of the columns before are
            added to them.

    Returns:
        A dataset of `(features, label)`, or of features without a label, with the
        attribute `schema`. `features` maps names to tensors: ids are ragged int64,
        `[batch, None]`; dense columns are float32 `[batch, *shape]`. With sample
        weights or an optional label, `(features, label, weights)`. With `split`, a
        pair of datasets.

    Raises:
        TypeError: An option is unknown.
        ValueError: An option is out of range or contradicts the schema.
        DataError: The format or a column's kind is unclear, or a
            source contradicts the schema.
        FileNotFoundError: A file does not exist.
        tf.errors.OpError: A file cannot be read. While iterating,
            `InvalidArgumentError`: a value contradicts the schema; names the file,
            row and column.
    """
    given = locals()
    options = given_options(
        **{name: given[name] for name in (*READ_OPTIONS, *_OF_FORMATS)}
    )
    found_schema = None if schema is None else as_schema(schema)
    unseen = _why_not_inspected(data, options)
    outside: set[str] = set()
    if unseen is None and not is_table(data):
        for path in as_paths(data):
            outside.update(partitions_of(f"{path}/"))
    arrow = ArrowOptions(
        outside=outside, **{name: given[name] for name in ARROW_OPTIONS}
    )
    special = [*options, *arrow.text, *arrow.inferring]
    if is_table(data):
        for name in ("format", "open_command", "shuffle_files"):
            if {**options, "format": format}.get(name):
                raise ValueError(f"`{name}` is not an option of a table.")
        check_options(name_of(data), TABLE, special)
        read = ReadOptions(batch_size, **options)
        opened = open_table(data, found_schema, arrow, read.skip)
        return _finished(opened, read, split, split_by, verbose)
    if unseen is not None:
        if schema is None or format is None:
            raise ValueError(f"{unseen} needs `schema` and `format`.")
        found = format_called(format)
        if found.dataset is None:
            raise ValueError(
                f"{unseen} is not an option of {found.name} files."
            )
        # A SharedFileList or a tensor goes to the reader as it is.
        paths = as_paths(data) if unseen == _BY_COMMAND else data
    else:
        paths = [as_input(path) for path in expand_inputs(as_paths(data))]
        found = format_called(
            format or _found_format(paths, found_schema, arrow)
        )
    check_options(unseen or paths[0], found, special)
    files = _Files(found, found_schema, arrow, batch_size, options)
    if found.dataset is None:
        opened = files.rows(paths)
        dataset = _finished(opened, files.read, split, split_by, verbose)
    elif split is not None:
        raise ValueError(f"`split` is not an option of {found.name} files.")
    else:
        dataset = files.open(paths)
    if split is None and isinstance(paths, list):
        # Cached, so that the threads of all trainings share their traces.
        dataset.pieces = functools.cache(
            functools.partial(files.pieces, paths, dataset.schema)
        )
    return dataset


@dataclasses.dataclass(frozen=True)
class _Files:
    """How files of one format are read."""

    format: Format
    schema: Schema | None
    arrow: ArrowOptions
    batch_size: int
    options: Mapping[str, Any]

    @property
    def read(self) -> ReadOptions:
        """The options of files that Arrow reads."""
        return ReadOptions(self.batch_size, **self.options)

    def rows(self, paths: list[str]) -> ArrowData:
        """Opens files that Arrow reads."""
        schema = self.schema
        if schema is not None:
            check_stored_ids(paths, schema)
        elif not self.arrow.inferring:
            schema = schema_of(paths)
        return open_files(
            paths, self.format.name, schema, self.arrow, self.read.skip
        )

    def open(self, paths: Any) -> Any:
        """Opens files as one dataset, which has their schema."""
        if self.format.dataset is None:
            return _finished(self.rows(paths), self.read)
        name, schema = self.format.name, self.schema
        if schema is None:
            schema = schema_of(paths)
        if schema is None:
            raise DataError(
                f"{paths[0]}: {name} files do not describe their columns. Pass "
                f"`schema`, or write it to {paths[0]}.schema.yaml."
            )
        if self.arrow.weights:
            schema = schema.with_weights(self.arrow.weights)
        options = dict(self.options)
        if self.arrow.slot_size_array is not None:
            options["slot_size_array"] = self.arrow.slot_size_array
        dataset: Any = self.format.dataset(
            paths, schema, self.batch_size, **options
        )
        dataset.schema = schema
        return dataset

    def pieces(self, paths: list[str], schema: Schema) -> list[Piece]:
        """Returns the files as pieces, each opened separately."""
        # The schema has what these options say.
        arrow = dataclasses.replace(
            self.arrow,
            **dataclasses.asdict(Wanted()),
            weights=None,
        )
        one = dataclasses.replace(self, schema=schema, arrow=arrow)
        open_one = one.open
        is_stateful = _STATEFUL.intersection(one.options)
        if one.format.name == "multislot" and not is_stateful:
            open_one = _TracedOpener(one).open
        return [
            Piece(path, functools.partial(open_one, [path])) for path in paths
        ]


class _TracedOpener:
    """Opens each of many MultiSlot files by a function that is traced once.

    Otherwise the reader's functions are traced again for each file, which takes as
    long as several training steps.
    """

    def __init__(self, files: _Files):
        self._files = files
        self._lock = threading.Lock()
        self._variant: Any = None
        self._element_spec: Any = None

    def open(self, paths: list[str]) -> tf.data.Dataset:
        """Opens one file. Thread-safe."""
        with self._lock:
            if self._variant is None:
                self._variant = self._traced()
        variant = self._variant(tf.constant(paths[0]))
        return tf.data.experimental.from_variant(variant, self._element_spec)

    def _traced(self) -> Any:
        files: Any = self._files
        reader: Any = files.format.dataset

        @tf.function(
            input_signature=[tf.TensorSpec((), tf.string)], autograph=False
        )
        def variant(path: str) -> Any:
            dataset = reader(
                path, files.schema, files.batch_size, **files.options
            )
            self._element_spec = dataset.element_spec
            return tf.data.experimental.to_variant(dataset)

        # TensorFlow counts traces per line of code. Without this, opening datasets
        # in a loop would cause a retracing warning.
        return variant.get_concrete_function()


def _why_not_inspected(data: Any, options: Mapping[str, Any]) -> str | None:
    """Returns which argument keeps the files from being inspected, or None."""
    if isinstance(data, SharedFileList):
        return "A SharedFileList"
    if tf.is_symbolic_tensor(data):
        return "A tensor of paths"
    return None if options.get("open_command") is None else _BY_COMMAND


def _found_format(
    paths: list[str], schema: Schema | None, arrow: ArrowOptions
) -> str:
    """Returns the format of files. Text options imply delimited text."""
    try:
        return one_format(paths, has_text_options=bool(arrow.text))
    except DataError:
        if schema is None or not schema.text:
            raise
        return "csv"


def _finished(
    opened: ArrowData,
    read: ReadOptions,
    split: float | None = None,
    split_by: str | None = None,
    verbose: bool = False,
) -> Any:
    if opened.inferred and verbose:
        print(opened.schema, *opened.notes, sep="\n", file=sys.stderr)
    parts: Sequence[ArrowData] = [opened]
    if split_by is not None and split is None:
        raise ValueError("`split_by` needs `split`, the fraction to hold out.")
    if split is not None:
        if not is_number(split) or not 0 < split < 1:
            raise ValueError(f"`split` must be in (0, 1), got {split!r}.")
        seed = check_integer("seed", read.seed or 0)
        parts = opened.split(split, seed, split_by, read.skip)
    datasets = []
    for part in parts:
        dataset: Any = part.dataset(read)
        dataset.schema = part.schema
        datasets.append(dataset)
    return tuple(datasets) if split is not None else datasets[0]
