"""SampleWriter: the base class of the writers of all formats."""

import abc
import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import tensorflow as tf

from lodestar._checks import check_unmasked, did_you_mean
from lodestar._files import AtomicFile, as_path
from lodestar._typing import StrPath
from lodestar.data.sample_columns import ColumnValues
from lodestar.data.text_ids import ids_of_texts, is_any_of
from lodestar.ragged import LoDTensor
from lodestar.schema import Column, SchemaLike, as_schema
from lodestar.schema.domain import to_float32


class SampleWriter(abc.ABC):
    """Writes examples to a file, which appears atomically.

    A context manager, and the base of `MultiSlotWriter`, `NormWriter`, `RawWriter`
    and `ParquetWriter`. Examples are written to a temporary file in the folder of
    `path`, which is renamed to `path` when the `with` block ends. If the block raises,
    the temporary file is deleted, and an existing file at `path` is unchanged. `path`
    may have any `tf.io.gfile` scheme. Columns with `used=False` are written as well.

    Subclasses implement `_put`, which writes to `self._file`, and if necessary
    `_check_column`, `_check_rows` and `_finish`.
    """

    # Limits the memory that `_put` needs.
    _block_rows = 4096

    def __init__(
        self,
        path: StrPath,
        schema: SchemaLike,
        *,
        header_size: int = 0,
    ):
        """Opens the temporary file, compressed if `path` ends in `.gz`.

        `header_size` is the size in bytes of the header that `_finish` returns.
        """
        self._path = as_path(path)
        self._spec = as_schema(schema)
        for column in self._spec:
            if column.depth > 1:
                raise ValueError(
                    f"{self._path}: column {column.name!r}: lists of lists are "
                    "not written"
                )
        self._num_samples = 0
        # Where `close` writes the schema, if not None.
        self.schema_file: str | None = None
        self._file = AtomicFile(self._path, header_size=header_size)

    @property
    def num_samples(self) -> int:
        """Number of examples written so far."""
        return self._num_samples

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def write(self, sample: Mapping[str, Any]) -> None:
        """Writes one example.

        Args:
            sample: Maps each column name to a number or a (nested) list of numbers.
                Sparse columns may be omitted if they are empty. A column with the
                encoding `"hash"` or `"hex"` takes ids, or strings, of which the
                file gets the ids.

        Raises:
            ValueError: A name is unknown or missing, or values do not match the
                column or the format; names the example and the column.
        """
        columns: dict[str, Any] = {}
        self._check_names(sample)
        for slot in self._spec:
            if slot.kind != "sparse":
                if slot.name not in sample:
                    raise ValueError(self._where(slot) + "is missing")
                values = _as_array(slot, sample[slot.name])
                columns[slot.name] = values[np.newaxis]
            else:
                values = _as_array(slot, sample.get(slot.name, ()))
                if values.ndim == 0:
                    values = values[np.newaxis]
                columns[slot.name] = (values, [0, values.size])
        self.write_batch(columns)

    def write_batch(self, columns: Mapping[str, Any]) -> None:
        """Writes several examples at once.

        Args:
            columns: Maps each column name to the values of B examples. Dense columns
                are `[B, *shape]`, with any size for a -1, or a pair as for sparse
                columns if that size varies. Labels and one-hot ids are `[B]` or
                `[B, 1]`; labels may be the floats that datasets yield. Sparse columns
                are a `tf.RaggedTensor` `[B, None]`, a `LoDTensor` of one level, or a
                pair of flat values and row splits `[B + 1]`; they may be omitted if
                they are empty.

        Raises:
            ValueError: See `write`. None of these examples is written.
            tf.errors.OpError: The file cannot be written, and is discarded.
        """
        if self._file.closed:
            raise ValueError(f"{self._path}: the writer is closed")
        self._check_names(columns)
        rows = None
        checked: list[ColumnValues | None] = []
        for slot in self._spec:
            if slot.name not in columns:
                if slot.kind != "sparse":
                    raise ValueError(self._where(slot) + "is missing")
                checked.append(None)
                continue
            column = self._check(slot, columns[slot.name])
            if rows is None:
                rows = len(column.splits) - 1
            elif rows != len(column.splits) - 1:
                raise ValueError(
                    self._where(slot)
                    + f"must have {rows} samples, got {len(column.splits) - 1}"
                )
            checked.append(column)
        if not rows:
            return
        empty = ColumnValues(
            np.zeros(0, np.int64), np.zeros(rows + 1, np.int64)
        )
        full = [column or empty for column in checked]
        self._check_weights(full)
        ready = [
            self._check_column(slot, column)
            for slot, column in zip(self._spec, full)
        ]
        self._check_rows(ready, rows)
        try:
            for begin in range(0, rows, self._block_rows):
                self._put(ready, begin, min(rows, begin + self._block_rows))
        except BaseException:
            # The file may contain a part of the batch.
            self.discard()
            raise
        self._num_samples += rows

    def close(self) -> None:
        """Publishes the file; the writer cannot be used afterwards.

        Raises ValueError, and discards the file, if no example was written.
        Further calls have no effect.
        """
        if self._file.closed:
            return
        if self._num_samples == 0:
            self.discard()
            raise ValueError(f"{self._path}: no samples were written")
        try:
            header = self._finish()
        except BaseException:
            self.discard()
            raise
        self._file.commit(header)
        if self.schema_file is not None:
            self._spec.stored().save(self.schema_file)

    def discard(self) -> None:
        """Discards the written examples; `path` is unchanged."""
        self._file.discard()

    @abc.abstractmethod
    def _put(self, columns: list[ColumnValues], begin: int, end: int) -> None:
        """Writes the examples [begin, end), given one column per schema column."""

    def _check_column(self, slot: Column, column: ColumnValues) -> ColumnValues:
        """Returns the column for `_put`, or raises ValueError if it is invalid."""
        return column

    def _check_rows(self, columns: list[ColumnValues], rows: int) -> None:
        """Raises ValueError for an example that the format does not support."""
        return

    def _finish(self) -> bytes:
        """Writes data after the examples; returns the header, if any."""
        return b""

    def _where(self, slot: Column, row: int = 0) -> str:
        number = self._num_samples + row + 1
        return f"{self._path}: sample {number}: slot {slot.name!r} "

    def _refuse(
        self, slot: Column, column: ColumnValues, bad: np.ndarray, wanted: str
    ) -> None:
        """Raises ValueError if a value is marked in `bad`, bool `[N]`."""
        if bad.any():
            at = int(np.argmax(bad))
            row = int(np.searchsorted(column.splits, at, side="right")) - 1
            raise ValueError(
                self._where(slot, row)
                + f"must be {wanted}, got {column.values[at]}"
            )

    def _narrow(self, slot: Column, column: ColumnValues) -> ColumnValues:
        """Returns the column as float32; raises ValueError for inexact ids."""
        narrow = column.values.astype(np.float32)
        if slot.dtype != "float":
            # Integers just below 2**63 round to it, which int64 cannot hold.
            back = np.where(narrow < 2.0**63, narrow, 0).astype(np.int64)
            self._refuse(
                slot,
                column,
                back != as_int64(column.values),
                "a whole number that float32 represents exactly",
            )
        return column._replace(values=narrow)

    def _check_names(self, columns: Mapping[str, Any]) -> None:
        for name in columns:
            if name not in self._spec:
                raise ValueError(
                    f"{self._path}: sample {self._num_samples + 1}: unknown "
                    f"slot {name!r}; the slots are "
                    f"{', '.join(self._spec.names())}."
                    f"{did_you_mean(name, self._spec.names())}"
                )

    def _check_weights(self, columns: list[ColumnValues]) -> None:
        by_name = dict(zip(self._spec.names(), columns))
        for ids, weights in self._spec.weights.items():
            found = np.diff(by_name[weights].splits)
            wanted = np.diff(by_name[ids].splits)
            if (bad := found != wanted).any():
                row = int(np.argmax(bad))
                raise ValueError(
                    self._where(self._spec[weights], row)
                    + f"must have {wanted[row]} values, one per id of slot "
                    f"{ids!r}, got {found[row]}"
                )

    def _check(self, slot: Column, given: Any) -> ColumnValues:
        """Converts the caller's values to a column, or raises ValueError."""
        free = slot.num_values is None and isinstance(given, tuple)
        if slot.kind == "sparse" or free:
            values, splits = self._flat(slot, given)
            if (
                values.ndim != 1
                or splits.ndim != 1
                or len(splits) < 1
                or splits[0] != 0
                or splits[-1] != len(values)
                or np.any(np.diff(splits) < 0)
            ):
                raise ValueError(
                    self._where(slot) + "has row_splits that do not rise from "
                    f"0 to its {values.size} values, or values of rank not 1"
                )
            lengths = np.diff(splits)
            if (bad := lengths % slot.multiple != 0).any():
                row = int(np.argmax(bad))
                raise ValueError(
                    self._where(slot, row) + "must have a multiple of "
                    f"{slot.multiple} values, got {lengths[row]}"
                )
        else:
            values = _as_array(slot, given)
            shape = slot.shape if slot.kind == "dense" else (1,)
            if values.ndim == 1 and slot.num_values == 1:
                values = values[:, np.newaxis]
                shape = (1,)
            if values.ndim != 1 + len(shape) or any(
                n not in (-1, m) for n, m in zip(shape, values.shape[1:])
            ):
                raise ValueError(
                    self._where(slot) + f"must have samples of shape "
                    f"{list(shape)}, got {list(values.shape[1:])}"
                )
            size = math.prod(values.shape[1:])
            splits = np.arange(len(values) + 1, dtype=np.int64) * size
            values = values.reshape(-1)
        return self._check_values(slot, ColumnValues(values, splits))

    def _flat(self, slot: Column, given: Any) -> tuple[np.ndarray, np.ndarray]:
        if isinstance(given, LoDTensor):
            if len(given.lod) != 1:
                raise ValueError(
                    self._where(slot) + "must be a LoDTensor of 1 level, got "
                    f"{len(given.lod)}"
                )
            values = given.values.numpy()
            if values.shape[1:] == (1,):  # the form in which Paddle feeds ids
                values = values[:, 0]
            given = (values, given.lod[0].numpy())
        elif isinstance(given, tf.RaggedTensor):
            given = (given.values.numpy(), given.row_splits.numpy())
        if not isinstance(given, tuple) or len(given) != 2:
            raise ValueError(
                self._where(slot)
                + "must be a RaggedTensor or (values, row_splits)"
            )
        return _as_array(slot, given[0]), np.asarray(given[1], dtype=np.int64)

    def _check_values(self, slot: Column, column: ColumnValues) -> ColumnValues:
        values = column.values
        if values.size == 0:
            return column._replace(values=np.zeros(0, np.int64))
        if values.dtype.kind in "OSU" and slot.encoding != "int":
            values = self._ids(slot, column)
        if slot.kind == "label" and values.dtype.kind == "f":
            values = self._whole_labels(slot, column)
        wanted = "biu" if slot.dtype == "uint64" else "biuf"
        if values.dtype.kind not in wanted:
            raise ValueError(
                self._where(slot)
                + "must have "
                + ("integers" if slot.dtype == "uint64" else "numbers")
                + f", got values of dtype {values.dtype}"
                + _advice(slot, values)
            )
        if values.dtype.kind == "b":
            values = values.astype(np.int64)
        elif values.dtype.kind == "f" and values.itemsize > 8:
            values = values.astype(
                np.float64
            )  # the widest float size varies by machine
        column = column._replace(values=values)
        if slot.kind == "label" and slot.binary:
            bad = (values != 0) & (values != 1)
            if slot.optional:
                bad &= values == values
            self._refuse(slot, column, bad, "0 or 1")
        elif slot.kind == "one_hot":
            self._refuse(
                slot,
                column,
                (values < 0) | (values >= slot.size),
                f"a whole number from 0 to {slot.size - 1}",
            )
        elif slot.dtype == "float":
            _, bad = to_float32(slot, values)
            wanted = "a number that float32 holds, exactly from 2**24 on"
            self._refuse(slot, column, bad, wanted)
        elif slot.kind == "label":
            # Beyond int64, readers would return a negative label.
            _, bad = to_float32(slot, values)
            if values.dtype.kind == "u":
                bad |= values > np.iinfo(np.int64).max
            self._refuse(slot, column, bad, "an integer that float32 holds")
        return column

    def _ids(self, slot: Column, column: ColumnValues) -> np.ndarray:
        """Returns the ids of strings, as readers make them."""
        for value in column.values:
            if not isinstance(value, (str, bytes)):  # of an array of objects
                raise ValueError(
                    self._where(slot) + "must have either strings or ids, got "
                    f"strings and {value!r}"
                )
        texts = tf.strings.strip(tf.constant(column.values, tf.string))
        missing = is_any_of(texts, self._spec.na_values).numpy()
        self._refuse(slot, column, missing, "no string of `na_values`")
        ids, good, allowed = ids_of_texts(slot, texts)
        if good is not True:
            self._refuse(slot, column, np.logical_not(good.numpy()), allowed)
        return ids.numpy()

    def _whole_labels(self, slot: Column, column: ColumnValues) -> np.ndarray:
        """Returns uint64 labels as integers, since datasets yield floats."""
        values = column.values
        if slot.dtype == "float":
            return values
        whole = is_int64(values)
        self._refuse(slot, column, ~whole, "a whole number")
        return values.astype(np.int64)


def _advice(slot: Column, values: np.ndarray) -> str:
    if slot.kind != "sparse" or values.dtype.kind not in "OSU":
        return ""
    return (
        "; a column of strings is "
        f"Column.sparse({slot.name!r}, encoding='hash')"
    )


def as_int64(values: np.ndarray) -> np.ndarray:
    """Converts integers to int64; uint64 values keep their bits."""
    dtype = np.uint64 if values.dtype.kind == "u" else np.int64
    values = np.ascontiguousarray(values).astype(dtype, copy=False)
    return values.view(np.int64)


def is_int64(values: np.ndarray) -> np.ndarray:
    """Returns a mask of floats that are exact int64 values."""
    in_range = (values >= -(2.0**63)) & (values < 2.0**63)
    return (np.trunc(values) == values) & in_range


def _as_array(slot: Column, values: Any) -> np.ndarray:
    """Converts values to an array, with 64-bit integers of either sign intact.

    NumPy converts a list with both to floats. Raises ValueError for masked values.
    """
    check_unmasked(slot.name, values)
    if slot.dtype != "uint64" or hasattr(values, "dtype"):
        return np.asarray(values)
    integers = np.asarray(values, dtype=object)
    if not all(
        isinstance(v, (int, np.integer)) and -(2**63) <= v < 2**64
        for v in integers.flat
    ):
        # An array of strings would hold numbers among them as their texts.
        texts = any(isinstance(v, (str, bytes)) for v in integers.flat)
        return integers if texts else np.asarray(values)
    words = [int(v) % 2**64 for v in integers.flat]
    return np.array(words, np.uint64).view(np.int64).reshape(integers.shape)
