"""Opens files that Arrow reads, and tables in memory."""

import concurrent.futures
import contextlib
import copy
import dataclasses
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from lodestar._checks import check_texts
from lodestar._errors import DataError, describe_error
from lodestar.data.arrow.arrow_dataset import arrow_dataset
from lodestar.data.arrow.decode import decode_rows
from lodestar.data.arrow.example_source import ExampleSource
from lodestar.data.arrow.faults import Faults
from lodestar.data.arrow.ipc_source import IpcSource
from lodestar.data.arrow.json_source import JsonSource
from lodestar.data.arrow.parquet_file import ParquetFile, one_line
from lodestar.data.arrow.row_source import (
    RowSource,
    good_rows,
    partitions_of,
    split_sources,
    split_sources_by,
)
from lodestar.data.arrow.table_source import TableSource, as_arrow, name_of
from lodestar.data.arrow.text_format import (
    CRITEO_IDS,
    CRITEO_NUMBERS,
    TextFormat,
    find_text_format,
)
from lodestar.data.arrow.text_source import TextSource
from lodestar.data.binding import Binding, bind
from lodestar.data.record_dataset import ReadOptions
from lodestar.hugectr.bind_metadata import bind_metadata, check_same_places
from lodestar.hugectr.parquet_metadata import (
    ParquetMetadata,
    metadata_path,
    read_metadata,
)
from lodestar.hugectr.slot_sizes import slot_offsets
from lodestar.schema import Column, Schema
from lodestar.schema.infer import (
    LEAST_ROWS,
    SAMPLE_CELLS,
    SAMPLE_ROWS,
    Inferred,
    Wanted,
    infer_schema,
)
from lodestar.schema.schema import NA_VALUES
from lodestar.schema.sections import TEXT_OPTIONS

_OPEN_THREADS = 8


@dataclasses.dataclass(frozen=True)
class ArrowOptions(Wanted):
    """Options to infer a schema and to parse text.

    Attributes:
        columns: Text: names of the columns. None: those in the header.
        delimiter: Text: the delimiter. None: the only one that fits.
        quote: Text: the quote character, empty for none. None: a double quote.
        header: Text: whether the first record is a header. None: if certain.
        skip_lines: Text: number of lines before the first record. None: 0.
        encoding: Text: the encoding. None: UTF-8.
        weights: See `Schema.with_weights`.
        slot_size_array: Number of ids of each sparse id column. Ids are checked,
            and shifted by the sum of the preceding sizes.
        outside: Hive partitions above the given paths, which an inferred schema
            excludes.
    """

    columns: Sequence[str] | None = None
    delimiter: str | None = None
    quote: str | None = None
    header: bool | None = None
    skip_lines: int | None = None
    encoding: str | None = None
    weights: Mapping[str, str] | None = None
    slot_size_array: Sequence[int] | None = None
    outside: Collection[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_texts(columns=self.columns)

    @property
    def text(self) -> dict[str, Any]:
        """The given options of text files."""
        values = {name: getattr(self, name) for name in TEXT_OPTIONS}
        if values["columns"] is not None:
            values["columns"] = list(values["columns"])
        return {n: v for n, v in values.items() if v is not None}


# The names of the options, as `open_dataset` has them.
ARROW_OPTIONS = tuple(
    field.name
    for field in dataclasses.fields(ArrowOptions)
    if field.name != "outside"
)


class ArrowData:
    """Sources of rows with a given or inferred schema."""

    def __init__(
        self,
        sources: list[RowSource],
        schema: Schema | None,
        options: ArrowOptions,
        skip: Callable[[str, int], None] | None,
        metadata: ParquetMetadata | None = None,
    ):
        """Determines the schema and checks that all sources have its columns."""
        if schema is not None and options.inferring:
            raise ValueError(
                f"`schema` says what `{options.inferring[0]}` would say; give "
                "one or the other."
            )
        self.inferred = schema is None
        self.notes: list[str] = []
        # Infer from the first source that has rows.
        first = next((s for s in sources if s.num_rows), sources[0])
        use_metadata = schema is None and metadata is not None
        if use_metadata and not options.inferring:
            assert metadata is not None and isinstance(first, ParquetFile)
            self.bindings = bind_metadata(metadata, first)
            schema = Schema(b.column for b in self.bindings)
        else:
            use_metadata = False
            if schema is None:
                schema, self.notes = _inferred(sources, first, options)
            self.bindings = bind(_present(schema, first))
        if options.weights:
            schema = schema.with_weights(options.weights)
            self.bindings = [
                dataclasses.replace(b, column=schema[b.column.name])
                for b in self.bindings
            ]
        if options.slot_size_array is not None:
            self.bindings = _limited(self.bindings, options.slot_size_array)
        self.schema = schema
        self.na_values = schema.na_values
        self.sources = []
        fits = _Fits(self.bindings, self.na_values)
        for source in sources:
            try:
                if use_metadata:
                    assert metadata is not None
                    check_same_places(metadata, source, first)
                fits.check(source)
            except DataError as error:
                if skip is None:
                    raise
                skip(describe_error(error), source.num_rows or 1)
            else:
                self.sources.append(source)
        if not self.sources:
            raise DataError(f"{first.path}: no source has the schema's columns")

    def dataset(self, read: ReadOptions) -> tf.data.Dataset:
        """Returns batches of `(features, label)`."""
        return arrow_dataset(self.sources, self.bindings, self.na_values, read)

    def _with(self, sources: list[RowSource]) -> "ArrowData":
        part = copy.copy(self)
        part.sources = sources
        return part

    def split(
        self,
        held: float,
        seed: int,
        by: str | None,
        skip: Callable[[str, int], None] | None,
    ) -> tuple["ArrowData", "ArrowData"]:
        """Splits the rows in two; the second part has the fraction `held`.

        With `by`, the name of a column, rows of equal values are in one part.
        """
        if by is None:
            parts = split_sources(self.sources, held, seed)
        else:
            parts = split_sources_by(self.sources, by, held, seed, skip)
        rest, part = map(self._with, parts)
        return rest, part


def open_table(
    table: Any,
    schema: Schema | None,
    options: ArrowOptions,
    skip: Callable[[str, int], None] | None,
) -> ArrowData:
    """Opens a table in memory; raises TypeError if it is not a table."""
    source = TableSource(name_of(table), as_arrow(table))
    return ArrowData([source], schema, options, skip)


def open_files(
    paths: list[str],
    format: str,
    schema: Schema | None,
    options: ArrowOptions,
    skip: Callable[[str, int], None] | None,
) -> ArrowData:
    """Opens files that Arrow reads; raises DataError if a file is damaged."""
    metadata = None
    na_values = options.na_values
    if na_values is None:
        na_values = NA_VALUES if schema is None else schema.na_values
    if format == "parquet":
        metadata = read_metadata(metadata_path(paths[0]))
        sources = _parquet_sources(paths, metadata, skip)
    elif format == "arrow":
        sources = _opened(paths, IpcSource, skip)
    elif format == "tfrecord":
        sources = _opened(paths, ExampleSource, skip)
        if not any(source.num_rows for source in sources):
            raise DataError(f"{paths[0]}: no file of {len(paths)} has a record")
    elif format == "jsonl":
        sources = _opened(paths, lambda p: JsonSource(p, na_values), skip)
    else:
        sources = _text_sources(paths, format, schema, options, na_values, skip)
    return ArrowData(sources, schema, options, skip, metadata)


def _opened(
    paths: Sequence[str],
    open_one: Callable[[str], RowSource],
    skip: Callable[[str, int], None] | None,
    rows_of: Callable[[str], int | None] = lambda path: None,
) -> list[RowSource]:
    """Opens files in parallel; `rows_of` is the number of rows to skip, if known."""

    def open_or_fail(path: str) -> RowSource | Exception:
        try:
            return open_one(path)
        except (DataError, tf.errors.OpError) as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(_OPEN_THREADS) as pool:
        found = list(pool.map(open_or_fail, paths))
    sources: list[RowSource] = []
    for path, source in zip(paths, found):
        if isinstance(source, RowSource):
            sources.append(source)
        elif skip is None or isinstance(source, (OSError, tf.errors.OpError)):
            raise source
        else:
            skip(one_line(source), rows_of(path) or 1)
    if not sources:
        raise DataError(f"{paths[0]}: no file of {len(paths)} can be read")
    return sources


def _parquet_sources(
    paths: list[str],
    metadata: ParquetMetadata | None,
    skip: Callable[[str, int], None] | None,
) -> list[RowSource]:
    # Without its own list, a folder may be in the list of the first file.
    counts = {
        beside: read_metadata(beside) or metadata
        for beside in dict.fromkeys(map(metadata_path, paths))
    }

    def rows_of(path: str) -> int | None:
        listed = counts[metadata_path(path)]
        return listed.rows_of(path) if listed else None

    def open_one(path: str) -> RowSource:
        file = ParquetFile(path)
        if rows_of(path) not in (None, file.num_rows):
            listed = counts[metadata_path(path)]
            assert listed is not None
            raise DataError(
                f"{path}: found {file.num_rows} rows, expected {rows_of(path)} "
                f"as in {listed.path}"
            )
        return file

    return _opened(paths, open_one, skip, rows_of)


def _text_sources(
    paths: list[str],
    format: str,
    schema: Schema | None,
    options: ArrowOptions,
    na_values: Collection[str],
    skip: Callable[[str, int], None] | None,
) -> list[RowSource]:
    declared = {**(schema.text if schema else {}), **options.text}
    if format == "tsv":
        declared.setdefault("delimiter", "\t")
    names = _names_in_header(schema, options, partitions_of(paths[0]))

    def layout_of(path: str) -> TextFormat:
        return find_text_format(
            path, names=names, na_values=na_values, **declared
        )

    def open_one(path: str) -> RowSource:
        return TextSource(path, layout_of(path), na_values)

    if not names and len(paths) > 1:
        # A certain header decides for the files that have the same one.
        for path in paths:
            with contextlib.suppress(DataError, tf.errors.OpError):
                layout = layout_of(path)
                if layout.has_header:
                    names = [(name,) for name in layout.columns if name]
                break

    sources = _opened(paths, open_one, skip)
    for source in sources:
        assert isinstance(source, TextSource)
        if not source.ends_with_newline:
            # This is valid, but a file truncated within a field looks the same.
            warnings.warn(
                f"{source.path}: the last line does not end in a newline; the "
                "file may be cut short",
                stacklevel=6,
            )
    return sources


def _names_in_header(
    schema: Schema | None,
    options: ArrowOptions,
    partitions: Collection[str],
) -> list[tuple[str, ...]]:
    """Returns the spellings of each column that a header must have."""
    if schema is not None:
        # A dense column may be stored as several. Labels may be missing.
        return [
            (c.name, f"{c.name}_0")
            for c in schema.used
            if c.is_feature and c.name not in partitions
        ]
    # A label may be `COLUMN=POSITIVE`.
    return [
        (name, name.partition("=")[0]) if name == options.label else (name,)
        for name in options.names()
    ]


def _present(schema: Schema, first: RowSource) -> list[Column]:
    """Returns the used columns, without labels if the source has no label."""
    labels = [column for column in schema.labels if column.used]
    names = [label.name for label in labels]
    if labels and len(first.missing(names)) == len(names):
        features = [c for c in schema.used if c.is_feature]
        if features:
            return features
    return schema.used


def _limited(
    bindings: Sequence[Binding], slot_size_array: Sequence[int]
) -> list[Binding]:
    """Limits the ids of each sparse column, and shifts them to be disjoint."""
    ids = [
        b.column
        for b in bindings
        if b.column.holds_ids or b.column.kind == "one_hot"
    ]
    offsets = slot_offsets(ids, slot_size_array)
    limits: dict[str, dict[str, Any]] = {
        column.name: {"offset": offset, "limit": int(size)}
        for column, offset, size in zip(ids, offsets, slot_size_array)
    }
    return [
        dataclasses.replace(b, **limits.get(b.column.name, {}))
        for b in bindings
    ]


class _Fits:
    """Checks that column types of sources can be read as declared."""

    def __init__(self, bindings: Sequence[Binding], na_values: Collection[str]):
        self._bindings = bindings
        self._na_values = na_values
        self._known: set[Any] = set()

    def check(self, source: RowSource) -> None:
        source.check_names(
            list(dict.fromkeys(b.source for b in self._bindings))
        )
        if isinstance(source, ExampleSource | JsonSource | TextSource):
            return  # each value is checked when it is read
        for binding in self._bindings:
            arrow_type = source.types.get(binding.source)
            if arrow_type is None:
                continue
            column = dataclasses.replace(
                binding.column, name="x", weights_of=None, why="declared"
            )
            key = (arrow_type, column)
            if key in self._known:
                continue
            table = pa.table({binding.source: pa.array([], arrow_type)})
            try:
                decode_rows(
                    [dataclasses.replace(binding, limit=0)],
                    table,
                    self._na_values,
                    Faults(str),
                )
            except DataError as error:
                raise DataError(f"{source.path}: {error}") from error
            except pa.ArrowException as error:
                raise DataError(
                    f"{source.path}: column {binding.source!r}: found "
                    f"{arrow_type}, which cannot be read as "
                    f"{binding.column.describe()}: {describe_error(error)}"
                ) from error
            self._known.add(key)


def _inferred(
    sources: Sequence[RowSource],
    first: RowSource,
    options: ArrowOptions,
) -> Inferred:
    wanted: Wanted = options
    names = first.schema.names
    first.check_names(names)
    partitions = {
        name: [source.partitions.get(name) for source in sources]
        for name in first.partitions
        if name not in names and name not in options.outside
    }
    sample = _sample(sources, partitions)
    # Without a header, the layout of the lines has shown it.
    is_known = (
        isinstance(first, TextSource)
        and not first.format.has_header
        and options.columns is None
    )
    if names[-26:] == CRITEO_IDS and (is_known or _is_criteo(sample)):
        wanted = _of_criteo(wanted, names)
    schema, notes = infer_schema(sample, first.path, wanted, partitions)
    if isinstance(first, TextSource):
        notes = [*notes, f"Text: {first.format.describe()}."]
    schema = Schema(schema, na_values=schema.na_values, text=options.text)
    return Inferred(schema, notes)


def _is_criteo(sample: Any) -> bool:
    """Returns whether columns hold hexadecimal words, as in Criteo's click log.

    Words without a letter could be integers, so one must have a letter.
    """
    columns = [sample[name] for name in CRITEO_IDS]
    if not all(pa.types.is_string(column.type) for column in columns):
        return False
    words = pa.chunked_array([c for column in columns for c in column.chunks])
    is_word = pc.match_substring_regex(words, r"^\s*([0-9a-f]{8})?\s*$")
    has_letter = pc.match_substring_regex(words, "[a-f]")
    return bool(pc.all(is_word).as_py() and pc.any(has_letter).as_py())


def _of_criteo(wanted: Wanted, names: Sequence[str]) -> Wanted:
    """Declares the columns of Criteo's click log that `wanted` leaves open."""
    why = "Criteo's click log"
    log = [
        *(Column.dense(name, why=why) for name in CRITEO_NUMBERS),
        *(
            # Hexadecimal words, of which some have no letters.
            Column.sparse(name, encoding="hash", strings_only=True, why=why)
            for name in CRITEO_IDS
        ),
    ]
    given = wanted.names()
    declared = [c for c in log if c.name in names and c.name not in given]
    return dataclasses.replace(wanted, declare=[*wanted.declare, *declared])


def _sample(
    sources: Sequence[RowSource],
    partitions: Mapping[str, Sequence[str | None]],
) -> Any:
    """Returns the first good rows of the sources with equal schemas."""
    first = next((s for s in sources if s.num_rows), sources[0])
    names = first.leaves
    most = SAMPLE_ROWS
    if names:
        most = min(most, max(LEAST_ROWS, SAMPLE_CELLS // len(names)))
    tables: list[Any] = []
    rows = 0
    for source in sources:
        if not source.num_rows or source.leaves != names:
            continue
        if source is not first and source.schema != first.schema:
            continue
        tables.append(source.head(names, most - rows))
        rows += tables[-1].num_rows
        if rows >= most:
            break
    if not rows and first.num_rows:
        # All rows are bad: raise the error of the first.
        bindings = [
            Binding(Column.sparse(n, encoding="hash"), n) for n in names
        ]
        for group in range(len(first.row_groups)):
            good_rows(first, group, bindings[:1], NA_VALUES, None)
    columns = []
    for i, name in enumerate(names):
        chunks = [chunk for table in tables for chunk in table.column(i).chunks]
        arrow_type = chunks[0].type if chunks else first.types[name]
        columns.append(pa.chunked_array(chunks, arrow_type))
    for name, values in partitions.items():
        repeated = (list(values) * (rows // len(values) + 1))[:rows]
        names = [*names, name]
        columns.append(
            pa.chunked_array([pa.array(repeated, pa.large_string())])
        )
    return pa.table(columns, names=names)
