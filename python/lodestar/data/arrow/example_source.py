"""TFRecord files of tf.Examples and tf.SequenceExamples as row sources."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from lodestar._errors import reading
from lodestar._input_paths import as_input
from lodestar._library import gen_ops
from lodestar.data.arrow.file_source import BlockSource
from lodestar.schema import Column

# Features are known after this many records, rounded up to whole blocks.
_DESCRIBED_RECORDS = 1000
# The type of the values of each kind of feature; in the order of the ops.
_TYPES = (pa.null(), pa.large_binary(), pa.float32(), pa.int64())


class ExampleSource(BlockSource):
    """A TFRecord file.

    Each column is the feature of its name. A missing feature is null, and so is
    one without values.

    `schema` has the features of the first records: a feature is a list if one of
    them has several values.
    """

    def __init__(self, path: str):
        """Finds the blocks; raises DataError if the file is truncated."""
        super().__init__(path)
        # A dataset may be opened in a function.
        with tf.init_scope(), tf.device("CPU:0"), reading(path):
            index = gen_ops.lodestar_index_examples(
                filename=as_input(path),
                block_bytes=tf.constant(self._block_bytes, tf.int64),
                described_records=tf.constant(_DESCRIBED_RECORDS, tf.int64),
            )
            self._offsets, records, names, kinds, levels, described = (
                tensor.numpy() for tensor in index
            )
        self.row_groups = tuple(records.tolist())
        self._described = int(described)
        names = [name.decode("utf-8", "backslashreplace") for name in names]
        self._kinds = dict(zip(names, kinds.tolist()))
        self._levels = dict(zip(names, levels.tolist()))
        self.schema = pa.schema(
            [
                (name, _list_type(_TYPES[self._kinds[name]], level))
                for name, level in self._levels.items()
            ]
        )

    def _read(
        self, group: int, columns: Mapping[str, Column]
    ) -> tuple[Any, dict[int, str]]:
        # A sparse column is a list of the feature's values, whatever their number.
        parsed, bad = self._parse(
            group, {name: column.depth > 1 for name, column in columns.items()}
        )
        arrays = []
        for (name, column), (splits, values) in zip(columns.items(), parsed):
            if column.num_values == 1:
                counts = np.diff(splits)
                for row in np.flatnonzero(counts > 1).tolist():
                    text = f"found {counts[row]} values, expected 1"
                    bad.setdefault(row, f"column {name!r}: {text}")
                arrays.append(_first_values(splits, values))
                continue
            mask = None
            # An empty list is a missing value only where that matters.
            if column.kind != "sparse" or column.missing_is_error:
                mask = pa.array(splits[1:] == splits[:-1])
            arrays.append(
                pa.LargeListArray.from_arrays(
                    pa.array(splits), values, mask=mask
                )
            )
        return pa.table(arrays, names=list(columns)), bad

    def head(self, names: Sequence[str], rows: int) -> Any:
        """See RowSource. Only the rows that `schema` describes are inspected."""
        levels = {name: self._levels[name] for name in names}
        tables = [self.schema.empty_table().select(names)]
        for group in range(self._described):
            parsed, bad = self._parse(
                group, {name: level > 1 for name, level in levels.items()}
            )
            table = pa.table(
                [
                    pa.LargeListArray.from_arrays(pa.array(splits), values)
                    if level
                    else _first_values(splits, values)
                    for level, (splits, values) in zip(levels.values(), parsed)
                ],
                names=list(levels),
            )
            good = np.setdiff1d(np.arange(table.num_rows), list(bad))
            tables.append(table.take(good) if bad else table)
        return pa.concat_tables(tables).slice(0, rows)

    def check_names(self, names: Collection[str]) -> None:
        """Does nothing, because any record may have any feature."""

    def where(self, group: int, row: int) -> str:
        """See RowSource."""
        return f"record {sum(self.row_groups[:group]) + row}"

    def _parse(
        self, group: int, nested: dict[str, bool]
    ) -> tuple[list[tuple[np.ndarray, Any]], dict[int, str]]:
        """Returns the row splits and the values of each column, and bad rows."""
        with tf.device("CPU:0"):
            parsed = gen_ops.lodestar_parse_examples(
                data=self._block(group),
                offset=tf.constant(self._offsets[group], tf.int64),
                names=tf.constant(list(nested), tf.string),
                kinds=tf.constant(
                    [self._kinds.get(name, 0) for name in nested], tf.int64
                ),
                nested=tf.constant(list(nested.values()), tf.bool),
                num_columns=len(nested),
            )
        columns = []
        for is_list, kind, rows, lists, ends, data in zip(
            nested.values(),
            parsed.found_kinds.numpy().tolist(),
            parsed.row_splits,
            parsed.list_splits,
            parsed.value_splits,
            parsed.values,
        ):
            values = _values(kind, np.asarray(data), np.asarray(ends))
            if is_list:
                values = pa.LargeListArray.from_arrays(
                    pa.array(np.asarray(lists)), values
                )
            columns.append((np.asarray(rows), values))
        faults = parsed.faults.numpy()
        return columns, {
            row: text.decode("utf-8", "backslashreplace")
            for row, text in zip(parsed.bad_rows.numpy().tolist(), faults)
        }


def _list_type(arrow_type: Any, levels: int) -> Any:
    for _ in range(levels):
        arrow_type = pa.large_list(arrow_type)
    return arrow_type


def _values(kind: int, data: np.ndarray, ends: np.ndarray) -> Any:
    """Returns the values of a feature, sharing memory."""
    arrow_type = _TYPES[kind]
    if not kind:
        return pa.nulls(0)
    buffers = [None, pa.py_buffer(data)]
    count = len(ends) - 1
    if arrow_type == pa.large_binary():
        buffers.insert(1, pa.py_buffer(ends))
    else:
        count = len(data) // (arrow_type.bit_width // 8)
    return pa.Array.from_buffers(arrow_type, count, buffers)


def _first_values(splits: np.ndarray, values: Any) -> Any:
    """Returns the first value of each row, or null."""
    counts = np.diff(splits)
    if (counts == 1).all():
        return values
    return values.take(pa.array(splits[:-1], mask=counts == 0))
