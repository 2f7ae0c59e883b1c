"""NormWriter: samples to HugeCTR's Norm files."""

import struct

import numpy as np

from lodestar._checks import check_choice
from lodestar._formats import CHECKS
from lodestar._typing import StrPath
from lodestar.data.sample_columns import ColumnValues
from lodestar.data.schema import Column, SchemaLike
from lodestar.hugectr.key_records import WORD, KeyRecordWriter

NORM_KEY_TYPES = ("uint32", "int64")
_HEADER = struct.Struct("<8q")
_LENGTH = struct.Struct("<i")
_FRAME = _LENGTH.size + 1  # bytes around a payload: its length and its sum
_MAX_RECORD = 2**31 - 1  # bytes: lengths and numbers of keys are int32


class NormWriter(KeyRecordWriter):
    """Writes a HugeCTR Norm file (docs/internals/formats.md); a context manager.

    Labels and dense values are float32; integers have to be exact in it. The
    file does not say which keys it holds: a reader has to be told `key_type`.

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
        key_type: str = "uint32",
        check: str = "sum",
    ):
        """Opens the temporary file.

        Args:
            path: The file's name; `.gz` at its end compresses it.
            schema: A Schema, a list of slots or the path of a schema file.
            key_type: "uint32" or "int64".
            check: "sum" frames every record by its length and a check sum,
                "none" does not.

        Raises:
            ValueError: Another option, or a slot that a Norm file can not hold:
                sparse floats, dense of no fixed shape.
            tf.errors.OpError: The file cannot be opened.
        """
        check_choice("check", check, CHECKS)
        self._sum = check == "sum"
        super().__init__(
            path,
            schema,
            key_type=key_type,
            key_types=NORM_KEY_TYPES,
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
                f"{self._path}: sample {self._num_samples + row + 1}: has "
                f"{sizes[row]} bytes, wanted at most {_MAX_RECORD}"
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
        """The words of samples [begin, end), and how many each sample has."""
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
        at = starts + floats.shape[1]  # where a slot begins in each sample
        for slot, i in enumerate(self._keys):
            splits = columns[i].splits[begin : end + 1] * self._key_words
            words[at] = counts[slot]
            # From where a value is in the column to where it goes.
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
    """Payloads, one after another, each between its length and its sum."""
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
    """The numbers of a Norm file's header, of the file's first bytes.

    Whether it has check sums, its samples and the dims of a sample. None if
    `data` is too short; that it is of a Norm file at all is not sure.
    """
    if data[:12] == struct.pack("<iq", _HEADER.size, 1):
        data = data[_LENGTH.size :]
    elif data[:8] != bytes(8):
        return None
    return _HEADER.unpack_from(data) if len(data) >= _HEADER.size else None
