"""What MultiSlot files hold, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from lodestar.data.multislot_dataset import MultiSlotDataset
from lodestar.data.slot_spec import as_slot_spec

_BATCH = 4096
# Distinct ids are counted up to here, so that memory stays bounded.
_MAX_DISTINCT = 1_000_000


def inspect_files(
    files: Sequence[str | os.PathLike], slots: str | os.PathLike
) -> Iterator[str]:
    """Reads every sample and yields lines of text.

    First the number of samples, then for each slot what it holds.

    Raises:
        ValueError, tf.errors.OpError: As `MultiSlotDataset`.
    """
    spec = as_slot_spec(slots)
    statistics = {slot.name: _Statistics() for slot in spec}
    num_samples = 0
    for element in MultiSlotDataset(files, spec, _BATCH):
        features, labels = element if spec.labels else (element, {})
        if len(spec.labels) == 1:
            labels = {spec.labels[0].name: labels}
        num_samples += int(_rows(next(iter({**features, **labels}.values()))))
        for name, column in {**features, **labels}.items():
            statistics[name].add(column, spec[name].kind == "one_hot")
    yield f"{num_samples} samples in {len(files)} files"
    for slot in spec:
        yield f"{slot.kind:8}{slot.name:24}{statistics[slot.name].text(slot)}"


def _rows(column) -> int:
    if isinstance(column, tf.RaggedTensor):
        return column.nrows().numpy()
    return column.shape[0]


class _Statistics:
    def __init__(self):
        self._rows = 0
        self._values = 0
        self._sum = 0.0
        self._low, self._high = np.inf, -np.inf
        self._longest = 0
        self._empty = 0
        self._ids: set[int] = set()

    def add(self, column, is_one_hot: bool) -> None:
        self._rows += int(_rows(column))
        if isinstance(column, tf.RaggedTensor):
            lengths = np.diff(column.row_splits.numpy())
            self._longest = max(self._longest, int(lengths.max(initial=0)))
            self._empty += int((lengths == 0).sum())
            values = column.values.numpy()
            if values.dtype == np.int64 and len(self._ids) < _MAX_DISTINCT:
                self._ids.update(np.unique(values).tolist())
        else:
            values = column.numpy().reshape(-1)
            if is_one_hot:
                values = column.numpy().argmax(axis=1)
        self._values += values.size
        if values.size:
            self._sum += float(values.astype(np.float64).sum())
            self._low = min(self._low, values.min())
            self._high = max(self._high, values.max())

    def text(self, slot) -> str:
        if slot.kind == "sparse":
            parts = [
                f"{self._values / max(self._rows, 1):.3g} values a sample",
                f"at most {self._longest}",
                f"{self._empty} empty",
            ]
            if slot.dtype == "uint64":
                more = " or more" if len(self._ids) >= _MAX_DISTINCT else ""
                parts.append(f"{len(self._ids)}{more} distinct ids")
            return ", ".join(parts)
        return (
            f"mean {self._sum / max(self._values, 1):.6g}, "
            f"from {self._low:.6g} to {self._high:.6g}"
        )
