"""MultiSlotWriter: samples to MultiSlot text that appears whole or not at all."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
import tensorflow as tf

from lodestar.data import gzip_files
from lodestar.data.slot_spec import Slot, SlotSpec, as_slot_spec

_BLOCK_ROWS = 4096  # bounds the memory of the text being put together
_SMALL = np.array([str(i) for i in range(256)], dtype=object)


class MultiSlotWriter:
    """Writes MultiSlot text; a context manager.

    The text goes to a temporary file beside `path`, which takes the name `path`
    when the `with` block ends. If the block raises, nothing is left and an older
    file at `path` is untouched. A name that ends in `.gz` is compressed.

    >>> with MultiSlotWriter(path, spec) as writer:  # doctest: +SKIP
    ...     writer.write({"click": 1, "C1": [7, 8]})
    """

    def __init__(
        self,
        path: str | os.PathLike,
        slots: SlotSpec | str | os.PathLike | Iterable[Slot],
    ):
        """Opens the temporary file; raises tf.errors.OpError if it cannot."""
        self._path = os.fspath(path)
        self._spec = as_slot_spec(slots)
        self._temporary = f"{self._path}.tmp-{os.getpid()}"
        self._num_samples = 0
        self._file = tf.io.gfile.GFile(self._temporary, "wb")
        self._file.write(b"")  # GFile opens on the first write
        self._out = gzip_files.writer(self._path, self._file)

    @property
    def num_samples(self) -> int:
        """Samples written so far."""
        return self._num_samples

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type, exc_value, traceback) -> None:
        if exc_type is None:
            self.close()
        else:
            self.discard()

    def write(self, sample: Mapping[str, Any]) -> None:
        """Writes one sample.

        Args:
            sample: For each slot's name a number or a (nested) list of numbers;
                a sparse slot that is not there is empty.

        Raises:
            ValueError: A name is unknown or missing, or values are not what the
                slot declares; names the sample and the slot.
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
        """Writes several samples, vectorised.

        Args:
            columns: For each slot's name, with B samples: dense `[B, *shape]`,
                label and one-hot (its id) `[B]` or `[B, 1]`, sparse a
                `tf.RaggedTensor` `[B, None]` or a pair of flat values and
                row_splits `[B + 1]`; a sparse slot that is not there is empty.

        Raises:
            ValueError: As `write`, before any of these samples is written.
        """
        self._check_names(columns)
        rows = None
        checked = []
        for slot in self._spec:
            if slot.name not in columns:
                if slot.kind != "sparse":
                    raise ValueError(self._where(slot) + "is missing")
                checked.append(None)
                continue
            values, splits = self._check(slot, columns[slot.name])
            if rows is None:
                rows = len(splits) - 1
            elif rows != len(splits) - 1:
                raise ValueError(
                    self._where(slot)
                    + f"has {len(splits) - 1} samples, wanted {rows}"
                )
            checked.append((values, splits))
        if not rows:
            return
        empty = (np.zeros(0, np.int64), np.zeros(rows + 1, np.int64))
        checked = [column or empty for column in checked]
        for begin in range(0, rows, _BLOCK_ROWS):
            end = min(rows, begin + _BLOCK_ROWS)
            self._out.write(_format(self._spec, checked, begin, end))
        self._num_samples += rows

    def close(self) -> None:
        """Gives the file its name.

        Raises:
            ValueError: No sample was written; nothing is left, since an empty
                file is not valid MultiSlot.
        """
        if self._num_samples == 0:
            self.discard()
            raise ValueError(f"{self._path}: no samples were written")
        try:
            if self._out is not self._file:
                self._out.close()
            self._file.close()
            tf.io.gfile.rename(self._temporary, self._path, overwrite=True)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Drops what was written; `path` stays as it was."""
        self._file.close()
        if tf.io.gfile.exists(self._temporary):
            tf.io.gfile.remove(self._temporary)

    def _where(self, slot: Slot, row: int = 0) -> str:
        number = self._num_samples + row + 1
        return f"{self._path}: sample {number}: slot {slot.name!r} "

    def _check_names(self, columns: Mapping[str, Any]) -> None:
        for name in columns:
            if name not in self._spec:
                raise ValueError(
                    f"{self._path}: sample {self._num_samples + 1}: unknown "
                    f"slot {name!r}; the slots are "
                    f"{', '.join(self._spec.names())}"
                )

    def _check(self, slot: Slot, column: Any) -> tuple[np.ndarray, np.ndarray]:
        """The column as flat values and row_splits, or ValueError."""
        if slot.kind == "sparse":
            if isinstance(column, tf.RaggedTensor):
                column = (column.values.numpy(), column.row_splits.numpy())
            if not isinstance(column, tuple) or len(column) != 2:
                raise ValueError(
                    self._where(slot)
                    + "must be a RaggedTensor or (values, row_splits)"
                )
            values = _as_array(slot, column[0])
            splits = np.asarray(column[1], dtype=np.int64)
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
        else:
            values = _as_array(slot, column)
            size = slot.num_values
            shape = slot.shape if slot.kind == "dense" else (1,)
            if values.ndim == 1 and size == 1:
                values = values[:, np.newaxis]
                shape = (1,)
            if values.ndim < 1 or values.shape[1:] != shape:
                raise ValueError(
                    self._where(slot) + f"has a sample of shape "
                    f"{list(values.shape[1:])}, wanted {list(shape)}"
                )
            splits = np.arange(len(values) + 1, dtype=np.int64) * size
            values = values.reshape(-1)
        return self._check_values(slot, values, splits), splits

    def _check_values(
        self, slot: Slot, values: np.ndarray, splits: np.ndarray
    ) -> np.ndarray:
        if values.size == 0:
            return np.zeros(0, np.int64)
        wanted = "biu" if slot.dtype == "uint64" else "biuf"
        if values.dtype.kind not in wanted:
            raise ValueError(
                self._where(slot)
                + f"has values of dtype {values.dtype}, wanted "
                + ("integers" if slot.dtype == "uint64" else "numbers")
            )
        if values.dtype.kind == "b":
            values = values.astype(np.int64)
        bad = None
        if slot.kind == "label" and slot.binary:
            bad, wanted = (values != 0) & (values != 1), "0 or 1"
        elif slot.kind == "one_hot":
            bad = (values < 0) | (values >= slot.size)
            wanted = f"a whole number from 0 to {slot.size - 1}"
        elif slot.dtype == "float":
            with np.errstate(over="ignore"):
                narrow = values.astype(np.float32)
            bad, wanted = np.isinf(narrow) & ~np.isinf(values), "a float32"
        if bad is not None and bad.any():
            at = int(np.argmax(bad))
            row = int(np.searchsorted(splits, at, side="right")) - 1
            raise ValueError(
                self._where(slot, row) + f"is {values[at]}, wanted {wanted}"
            )
        return values


def _as_array(slot: Slot, values: Any) -> np.ndarray:
    """An array of `values` that keeps 64-bit integers with and without sign.

    NumPy alone would make floats of a list that has both.
    """
    if slot.dtype != "uint64" or hasattr(values, "dtype"):
        return np.asarray(values)
    integers = np.asarray(values, dtype=object)
    if not all(
        isinstance(v, (int, np.integer)) and -(2**63) <= v < 2**64
        for v in integers.flat
    ):
        return np.asarray(values)
    words = [int(v) % 2**64 for v in integers.flat]
    return np.array(words, np.uint64).view(np.int64).reshape(integers.shape)


def _texts(slot: Slot, values: np.ndarray) -> list[str]:
    if slot.dtype == "uint64":
        if values.dtype.kind == "i":
            values = values.astype(np.int64).view(np.uint64)
        return list(map(str, values.tolist()))
    if values.dtype.kind in "iu":
        return list(map(str, values.tolist()))
    if values.dtype == np.float32:
        # The shortest text that reads back as the same float32.
        return [t.removesuffix(".0") for t in values.astype(str).tolist()]
    return [repr(v).removesuffix(".0") for v in values.tolist()]


def _format(
    spec: SlotSpec,
    columns: list[tuple[np.ndarray, np.ndarray]],
    begin: int,
    end: int,
) -> bytes:
    """The lines of samples [begin, end)."""
    counts = np.stack([np.diff(s[begin : end + 1]) for _, s in columns])
    # A slot's tokens are its count and its values; where each slot of each
    # sample begins in the sequence of all tokens, sample by sample:
    sizes = counts.T + 1
    starts = np.cumsum(sizes.reshape(-1)).reshape(sizes.shape) - sizes
    tokens = np.empty(int(sizes.sum()), dtype=object)
    for i, (slot, (values, splits)) in enumerate(zip(spec, columns)):
        count = counts[i]
        tokens[starts[:, i]] = (
            _SMALL[count]
            if count.max(initial=0) < len(_SMALL)
            else np.array(list(map(str, count.tolist())), dtype=object)
        )
        first, last = splits[begin], splits[end]
        if first == last:
            continue
        within = np.arange(last - first) - np.repeat(
            splits[begin:end] - first, count
        )
        texts = np.array(_texts(slot, values[first:last]), dtype=object)
        tokens[np.repeat(starts[:, i] + 1, count) + within] = texts
    flat = tokens.tolist()
    bounds = [*starts[:, 0].tolist(), len(flat)]
    lines = [" ".join(flat[a:b]) for a, b in itertools.pairwise(bounds)]
    return ("\n".join(lines) + "\n").encode()
