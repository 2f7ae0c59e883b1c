"""Writer of HugeCTR's Norm files."""

import struct
from typing import get_args

import numpy as np

from lodestar._checks import check_choice
from lodestar._formats import CHECKS, Checks, NormKeyType
from lodestar._typing import StrPath
from lodestar.data.sample_columns import ColumnValues
from lodestar.hugectr.key_records import WORD, KeyRecordWriter
from lodestar.schema import Column, SchemaLike

_HEADER = struct.Struct("<8q")
_LENGTH = struct.Struct("<i")
_FRAME = _LENGTH.size + 1  # Bytes around a payload: its length and its sum.
_MAX_RECORD = 2**31 - 1  # In bytes: lengths and numbers of keys are int32.


class NormWriter(KeyRecordWriter):
    """Context manager that writes a HugeCTR Norm file.

    The format is in docs/internals/formats.md. Labels and dense values are float32;
    integers must be exact in it. The file does not record `key_type`, which a
    reader needs.

    >>> spec = Schema(
    ...     [Column.label("click"), Column.dense("I", [2]), Column.sparse("C1")]
    ... )
    >>> with NormWriter("clicks.norm", spec) as writer:
    ...     writer.write({"click": 1, "I": [0.5, -2.0], "C1": [7, 8]})
    """

    def __init__(
        self,
        path: StrPath,
        schema: SchemaLike,
        *,
        key_type: NormKeyType = "uint32",
        check: Checks = "sum",
    ):
        """Opens the temporary file, compressed if the path ends in `.gz`.

        `check` "sum" adds the length and a checksum to every record. Raises
        ValueError for a slot that Norm files do not support: sparse floats, dense
        without a fixed shape.
        """
        check_choice("check", check, CHECKS)
        self._sum = check == "sum"
        super().__init__(
            path,
            schema,
            key_type=key_type,
            key_types=get_args(NormKeyType),
            header_size=_HEADER.size + _FRAME * self._sum,
        )
        sizes = [slot.num_values or 0 for slot in self._spec]
        self._label_dim = sum(sizes[i] for i in self._labels)
        self._dense_dim = sum(sizes[i] for i in self._dense)

    def _check_column(self, slot: Column, column: ColumnValues) -> ColumnValues:
        if slot.kind in ("label", "dense"):
            return self._float_column(slot, column)
        return self._key_column(slot, column)

    def _check_rows(self, columns: list[ColumnValues], rows: int) -> None:
        keys = np.zeros(rows, np.int64)
        for i in self._keys:
            keys += np.diff(columns[i].splits)
        words = self._label_dim + self._dense_dim + len(self._keys)
        sizes = (words + keys * self._key_words) * WORD.itemsize
        if sizes.max() > _MAX_RECORD:
            row = int(np.argmax(sizes > _MAX_RECORD))
            raise ValueError(
                f"{self._path}: sample {self._num_samples + row + 1}: must have at "
                f"most {_MAX_RECORD} bytes, got {sizes[row]}"
            )

    def _put(self, columns: list[ColumnValues], begin: int, end: int) -> None:
        words, lengths = self._records(columns, begin, end)
        records = words.view(np.uint8)
        if self._sum:
            records = _framed(records, lengths * WORD.itemsize)
        self._file.write(records.tobytes())

    def _records(
        self, columns: list[ColumnValues], begin: int, end: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the words of samples [begin, end) and the length of each."""
        rows = end - begin
        floats = np.concatenate(
            [
                columns[i].values.reshape(len(columns[i].splits) - 1, -1)[
                    begin:end
                ]
                for i in (*self._labels, *self._dense)
            ]
            or [np.zeros((rows, 0), WORD)],
            axis=1,
        )
        counts = np.array(
            [np.diff(columns[i].splits[begin : end + 1]) for i in self._keys],
            np.int64,
        ).reshape(-1, rows)
        sizes = 1 + counts * self._key_words
        lengths = floats.shape[1] + sizes.sum(axis=0)
        starts = np.cumsum(lengths) - lengths
        words = np.empty(int(lengths.sum()), WORD)
        words[starts[:, np.newaxis] + np.arange(floats.shape[1])] = floats
        at = starts + floats.shape[1]  # Start of the slot in each sample.
        for slot, i in enumerate(self._keys):
            splits = columns[i].splits[begin : end + 1] * self._key_words
            words[at] = counts[slot]
            # Offset from the position of a value in the column to its target.
            shift = at + 1 - splits[:-1]
            to = np.arange(splits[0], splits[-1])
            to += np.repeat(shift, sizes[slot] - 1)
            words[to] = columns[i].values[splits[0] : splits[-1]]
            at += sizes[slot]
        return words, lengths

    def _finish(self) -> bytes:
        header = _HEADER.pack(
            self._sum,
            self._num_samples,
            self._label_dim,
            self._dense_dim,
            len(self._keys),
            0,
            0,
            0,
        )
        if not self._sum:
            return header
        data = np.frombuffer(header, np.uint8)
        return _framed(data, np.array([len(data)])).tobytes()


def _framed(data: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenates payloads, each between its length and its sum."""
    starts = np.cumsum(lengths) - lengths
    framed = np.empty(len(data) + _FRAME * len(lengths), np.uint8)
    begins = starts + _FRAME * np.arange(len(lengths))
    ends = begins + _LENGTH.size + lengths
    payload = np.ones(len(framed), bool)
    payload[begins[:, np.newaxis] + np.arange(_LENGTH.size)] = False
    payload[ends] = False
    framed[payload] = data
    framed[begins[:, np.newaxis] + np.arange(_LENGTH.size)] = (
        lengths.astype("<i4").view(np.uint8).reshape(-1, _LENGTH.size)
    )
    framed[ends] = np.add.reduceat(data, starts, dtype=np.uint8)
    return framed


def norm_header(data: bytes) -> tuple[int, ...] | None:
    """Reads the header from the first bytes of a Norm file.

    It has whether there are checksums, and the sizes of the file and of a sample.
    Returns None if `data` is too short or obviously not of a Norm file.
    """
    if data[:12] == struct.pack("<iq", _HEADER.size, 1):
        data = data[_LENGTH.size :]
    elif data[:8] != bytes(8):
        return None
    return _HEADER.unpack_from(data) if len(data) >= _HEADER.size else None
