"""What the records of HugeCTR's Norm and Raw files have in common."""

import os
from typing import Any

import numpy as np

from lodestar._checks import check_choice
from lodestar._typing import StrPath
from lodestar.data.sample_columns import ColumnValues
from lodestar.data.sample_writer import SampleWriter, as_int64
from lodestar.data.schema import Column, Schema, SchemaLike, as_schema

# What a key is stored as.
KEY_DTYPES: dict[str, np.dtype[Any]] = {
    "uint32": np.dtype("<u4"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
}
WORD = np.dtype("<u4")
_FLOAT = np.dtype("<f4")


def slot_kinds(spec: Schema, where: str = "") -> list[str]:
    """What a record holds for each slot: "label", "dense" or "keys".

    Raises:
        ValueError: A slot that no record can hold; `where` comes before it.
    """
    for slot in spec:
        if slot.kind == "sparse" and slot.dtype == "float":
            raise ValueError(
                f"{where}slot {slot.name!r} holds floats, wanted keys"
            )
        if slot.kind == "dense" and slot.num_values is None:
            raise ValueError(
                f"{where}slot {slot.name!r} has the shape {list(slot.shape)}, "
                "wanted a fixed number of values"
            )
    return [s.kind if s.kind in ("label", "dense") else "keys" for s in spec]


class KeyRecordWriter(SampleWriter):
    """The base of `NormWriter` and `RawWriter`.

    A record holds the labels, the dense values and then the keys, each in the
    order of the Schema; a sparse or one-hot slot is one slot of the file. All
    is made of 4-byte words, a key of int64 of two.
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
        """Raises ValueError for a slot or key type that no record can hold."""
        check_choice("key_type", key_type, key_types)
        spec = as_schema(schema)
        kinds = slot_kinds(spec, f"{os.fspath(path)}: ")
        self._key_dtype = KEY_DTYPES[key_type]
        self._takes_int64 = "int64" in key_types
        self._key_words = self._key_dtype.itemsize // WORD.itemsize
        # Where a record's slots are in the spec.
        self._labels = [i for i, kind in enumerate(kinds) if kind == "label"]
        self._dense = [i for i, kind in enumerate(kinds) if kind == "dense"]
        self._keys = [i for i, kind in enumerate(kinds) if kind == "keys"]
        super().__init__(path, spec, header_size=header_size)

    def _key_column(self, slot: Column, column: ColumnValues) -> ColumnValues:
        """The column with the words of its keys; ValueError if one is too big."""
        values = column.values
        if self._key_dtype.itemsize == 8:
            return column._replace(values=as_int64(values).view(WORD))
        limits = np.iinfo(self._key_dtype)
        bad = (values < limits.min) | (values > limits.max)
        wanted = f"a key from {limits.min} to {limits.max}"
        if self._takes_int64:
            wanted += "; the key type int64 holds all"
        self._refuse(slot, column, bad, wanted)
        values = values.astype(self._key_dtype, copy=False)
        return column._replace(values=values.view(WORD))

    def _float_column(self, slot: Column, column: ColumnValues) -> ColumnValues:
        """The column with the words of float32."""
        narrow = self._narrow(slot, column).values.astype(_FLOAT, copy=False)
        return column._replace(values=narrow.view(WORD))
