"""Shared parts of HugeCTR's Norm and Raw formats."""

import os
from typing import Any

import numpy as np

from lodestar._checks import check_choice
from lodestar._typing import StrPath
from lodestar.data.sample_columns import ColumnValues
from lodestar.data.sample_writer import SampleWriter, as_int64
from lodestar.schema import Column, Schema, SchemaLike, as_schema

# The stored dtypes of keys.
KEY_DTYPES: dict[str, np.dtype[Any]] = {
    "uint32": np.dtype("<u4"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
}
WORD = np.dtype("<u4")
_FLOAT = np.dtype("<f4")


def slot_kinds(spec: Schema, where: str = "") -> list[str]:
    """Returns the part of a record for each slot: "label", "dense" or "keys".

    Raises ValueError, which starts with `where`, for slots of other kinds.
    """
    for slot in spec:
        if slot.kind == "sample_weight":
            raise ValueError(
                f"{where}slot {slot.name!r} must be a label, dense, sparse or "
                "one-hot column, got a sample weight."
            )
        if slot.kind == "sparse" and slot.dtype == "float":
            raise ValueError(
                f"{where}slot {slot.name!r} must have keys, got floats."
            )
        if slot.kind == "dense" and slot.num_values is None:
            raise ValueError(
                f"{where}slot {slot.name!r} must have a fixed number of values, got "
                f"shape {list(slot.shape)}."
            )
    return [s.kind if s.kind in ("label", "dense") else "keys" for s in spec]


class KeyRecordWriter(SampleWriter):
    """Base class of `NormWriter` and `RawWriter`.

    A record has the labels, the dense values and the keys, each in the order of the
    schema, where sparse and one-hot columns are slots. It consists of 4-byte words;
    an int64 key has two.
    """

    def __init__(
        self,
        path: StrPath,
        schema: SchemaLike,
        *,
        key_type: str,
        key_types: tuple[str, ...],
        header_size: int = 0,
    ):
        """Raises ValueError if records do not support a slot or the key type."""
        check_choice("key_type", key_type, key_types)
        spec = as_schema(schema)
        kinds = slot_kinds(spec, f"{os.fspath(path)}: ")
        self._key_dtype = KEY_DTYPES[key_type]
        self._takes_int64 = "int64" in key_types
        self._key_words = self._key_dtype.itemsize // WORD.itemsize
        # Indices of a record's slots in the schema.
        self._labels = [i for i, kind in enumerate(kinds) if kind == "label"]
        self._dense = [i for i, kind in enumerate(kinds) if kind == "dense"]
        self._keys = [i for i, kind in enumerate(kinds) if kind == "keys"]
        super().__init__(path, spec, header_size=header_size)

    def _key_column(self, slot: Column, column: ColumnValues) -> ColumnValues:
        """Returns the column as words of its keys; ValueError if one is too big."""
        values = column.values
        if self._key_dtype.itemsize == 8:
            return column._replace(values=as_int64(values).view(WORD))
        limits = np.iinfo(self._key_dtype)
        bad = (values < limits.min) | (values > limits.max)
        wanted = f"a key from {limits.min} to {limits.max}"
        if self._takes_int64:
            wanted += "; the key type int64 supports all keys"
        self._refuse(slot, column, bad, wanted)
        values = values.astype(self._key_dtype, copy=False)
        return column._replace(values=values.view(WORD))

    def _float_column(self, slot: Column, column: ColumnValues) -> ColumnValues:
        """Returns the column as words of float32."""
        narrow = self._narrow(slot, column).values.astype(_FLOAT, copy=False)
        return column._replace(values=narrow.view(WORD))
