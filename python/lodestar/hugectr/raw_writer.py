"""Writer of HugeCTR's Raw files."""

from collections.abc import Sequence

import numpy as np

from lodestar._checks import check_choice, is_integer
from lodestar._formats import LAYOUTS, KeyType, Layout
from lodestar._typing import StrPath
from lodestar.data.sample_columns import ColumnValues
from lodestar.hugectr.key_records import WORD, KeyRecordWriter
from lodestar.schema import Column, Schema, SchemaLike, as_schema

_BLOCK_WORDS = 1 << 20  # Bounds the memory for records.
_INT = np.dtype("<i4")
_INT_LIMITS = np.iinfo(_INT)
# Maximum difference between the logarithms of two libraries.
_LOG_ULPS = 2


def raw_key_types(layout: Layout) -> tuple[str, ...]:
    """Returns the key types of a layout of Raw files, the default first."""
    check_choice("layout", layout, LAYOUTS)
    multi_hot = layout.startswith("multi_hot")
    return ("uint32", "int64") if multi_hot else ("uint32", "int32")


class RawWriter(KeyRecordWriter):
    """Context manager that writes a HugeCTR Raw file (docs/internals/formats.md).

    The file does not describe itself: a reader needs the same slots, layout, key
    type and number of keys.

    | `layout` | label | dense | keys |
    |---|---|---|---|
    | `"float"` | float32 | float32 | 1 per slot; uint32, int32 |
    | `"int"` | int32 | int32 | 1 per slot; uint32, int32 |
    | `"multi_hot_float"` | int32 | float32 | `nnz_per_slot`; uint32, int64 |
    | `"multi_hot_int"` | int32 | int32 | `nnz_per_slot`; uint32, int64 |

    `"float"` is HugeCTR's Raw with `float_label_dense=True`; `"int"` is Raw with
    `float_label_dense=False`, and RawAsync; the others are RawAsync with
    `multi_hot_reader=True` and `is_dense_float` True or False. int32 keys are for
    HugeCTR's Raw reader with `i64_input_key=True`, which extends their sign; with
    `i64_input_key=False` they are uint32.

    HugeCTR reads a dense int32 x as log(x + 1). The dtype of a dense slot determines
    its values, for writing and reading:

    - `"float"`: the float32 log(x + 1). The writer stores x, and rejects values
      that are not the logarithm of an integer x + 1 >= 1.
    - `"uint64"`: x itself, read as int64.

    Float labels stored as int32, and integers stored as float32, must be exact.

    >>> spec = Schema(
    ...     [Column.label("click"), Column.dense("I", [2]), Column.sparse("C1")]
    ... )
    >>> with RawWriter("clicks.raw", spec, layout="int") as writer:
    ...     writer.write({"click": 1, "I": np.log1p([0, 9]), "C1": 7})
    """

    def __init__(
        self,
        path: StrPath,
        schema: SchemaLike,
        *,
        layout: Layout = "float",
        key_type: KeyType = "uint32",
        nnz_per_slot: int | Sequence[int] | None = None,
    ):
        """Opens the temporary file, compressed if the path ends in `.gz`.

        `nnz_per_slot` is the number of keys of each sparse and one-hot slot in a
        multi-hot layout, or one number for all; None is 1. Raises ValueError for a
        slot that Raw files do not support: sparse floats, dense without a fixed
        shape.
        """
        spec = as_schema(schema)
        key_types = raw_key_types(layout)
        self._int_label = layout != "float"
        self._int_dense = layout.endswith("int")
        self._nnz = raw_nnz(spec, layout, nnz_per_slot)
        super().__init__(path, spec, key_type=key_type, key_types=key_types)
        slots_in_order = list(self._spec)
        # (index in the schema, number of words) of a record's slots.
        self._parts = [
            (i, slots_in_order[i].num_values or 0)
            for i in (*self._labels, *self._dense)
        ] + [
            (i, self._nnz[slots_in_order[i].name] * self._key_words)
            for i in self._keys
        ]
        self._stride = sum(words for _, words in self._parts)
        self._block_rows = max(1, _BLOCK_WORDS // self._stride)

    def _check_column(self, slot: Column, column: ColumnValues) -> ColumnValues:
        if slot.name in self._nnz:
            self._check_counts(slot, column)
            return self._key_column(slot, column)
        if slot.kind == "label" and self._int_label:
            return self._int_column(slot, column)
        if slot.kind == "dense" and self._int_dense:
            if slot.dtype == "float":
                return self._unlog_column(slot, column)
            return self._int_column(slot, column)
        return self._float_column(slot, column)

    def _check_counts(self, slot: Column, column: ColumnValues) -> None:
        counts = np.diff(column.splits)
        wanted = self._nnz[slot.name]
        bad = counts != wanted
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(
                self._where(slot, row)
                + f"must have {wanted} keys, got {counts[row]}"
            )

    def _int_column(self, slot: Column, column: ColumnValues) -> ColumnValues:
        values = column.values
        bad = (values < _INT_LIMITS.min) | (values > _INT_LIMITS.max)
        if values.dtype.kind == "f":
            bad |= np.trunc(values) != values  # Includes NaN.
        self._refuse(
            slot,
            column,
            bad,
            f"a whole number from {_INT_LIMITS.min} to {_INT_LIMITS.max}",
        )
        return column._replace(values=values.astype(_INT).view(WORD))

    def _unlog_column(self, slot: Column, column: ColumnValues) -> ColumnValues:
        """Returns the words of x for values log(x + 1)."""
        narrow = column.values.astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            x = np.rint(np.expm1(narrow.astype(np.float64)))
            fits = (x >= 0) & (x <= _INT_LIMITS.max)
            x = np.where(fits, x, 0).astype(_INT)
            # As readers do: the sum is also a float32.
            logs = np.log(x.astype(np.float32) + np.float32(1))
            near = np.abs(logs - narrow) <= _LOG_ULPS * np.spacing(
                np.abs(narrow)
            )
        fits &= near | (logs == narrow)
        self._refuse(
            slot,
            column,
            ~fits,
            "log(x + 1) of a whole number x from 0 to "
            f"{_INT_LIMITS.max}; a uint64 slot has x itself",
        )
        return column._replace(values=x.view(WORD))

    def _put(self, columns: list[ColumnValues], begin: int, end: int) -> None:
        records = np.empty((end - begin, self._stride), WORD)
        at = 0
        for i, words in self._parts:
            values = columns[i].values[begin * words : end * words]
            records[:, at : at + words] = values.reshape(-1, words)
            at += words
        self._file.write(records.tobytes())


def raw_nnz(
    spec: Schema, layout: str, nnz_per_slot: int | Sequence[int] | None
) -> dict[str, int]:
    """Returns the number of keys of sparse and one-hot slots, in order.

    Raises ValueError if `nnz_per_slot` does not match the schema or layout.
    """
    schema = [slot for slot in spec if slot.kind in ("sparse", "one_hot")]
    if nnz_per_slot is None:
        return {slot.name: 1 for slot in schema}
    if not layout.startswith("multi_hot"):
        raise ValueError(
            f"`layout`={layout!r} has 1 key per slot; `nnz_per_slot` is for "
            "'multi_hot_float' and 'multi_hot_int'."
        )
    if isinstance(nnz_per_slot, (int, np.integer)):
        nnz_per_slot = [nnz_per_slot] * len(schema)
    if len(nnz_per_slot) != len(schema):
        raise ValueError(
            f"`nnz_per_slot` must have {len(schema)} numbers, one per sparse or "
            f"one-hot slot, got {len(nnz_per_slot)}."
        )
    nnz = {slot.name: n for slot, n in zip(schema, nnz_per_slot)}
    for slot in schema:
        n = nnz[slot.name]
        if not is_integer(n) or n < 1:
            raise ValueError(
                f"`nnz_per_slot` of slot {slot.name!r} must be a whole number of "
                f"at least 1, got {n!r}."
            )
        if slot.kind == "one_hot" and n != 1:
            raise ValueError(
                f"`nnz_per_slot` of the one-hot slot {slot.name!r} must be 1, got "
                f"{n}."
            )
    return {name: int(n) for name, n in nnz.items()}
