"""Writer of MultiSlot text."""

import itertools

import numpy as np

from lodestar.data.sample_columns import ColumnValues
from lodestar.data.sample_writer import SampleWriter
from lodestar.schema import Column, Schema
from lodestar.schema.domain import EXACT_BELOW

_SMALL = np.array([str(i) for i in range(256)], dtype=object)


class MultiSlotWriter(SampleWriter):
    """Context manager that writes MultiSlot text (docs/internals/formats.md).

    >>> spec = Schema([Column.label("click"), Column.sparse("C1")])
    >>> with MultiSlotWriter("clicks.txt", spec) as writer:
    ...     writer.write({"click": 1, "C1": [7, 8]})
    """

    def _put(self, columns: list[ColumnValues], begin: int, end: int) -> None:
        self._file.write(_format(self._spec, columns, begin, end))


def number_texts(slot: Column, values: np.ndarray) -> list[str]:
    """Formats values of a slot so that they read back exactly."""
    if slot.dtype == "uint64":
        # Ids keep their bits. A label is a signed number.
        if values.dtype.kind == "i" and slot.kind != "label":
            values = values.astype(np.int64).view(np.uint64)
        return list(map(str, values.tolist()))
    if values.dtype.kind in "iu":
        return list(map(str, values.tolist()))
    if values.dtype == np.float32:
        # The shortest text that reads back as the same float32.
        texts = [t.removesuffix(".0") for t in values.astype(str).tolist()]
    else:
        texts = [repr(v).removesuffix(".0") for v in values.tolist()]
    # It may be the text of another whole number, which is refused.
    large = np.isfinite(values) & (np.abs(values) >= EXACT_BELOW[32])
    for place in np.flatnonzero(large & (np.trunc(values) == values)):
        texts[place] = str(int(values[place]))
    return texts


def _format(
    spec: Schema,
    columns: list[ColumnValues],
    begin: int,
    end: int,
) -> bytes:
    """Formats the samples [begin, end) as lines."""
    counts = np.stack([np.diff(s[begin : end + 1]) for _, s in columns])
    # The tokens of a slot are its count and its values. Find where each slot of
    # each sample begins in the sequence of all tokens:
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
        texts = np.array(number_texts(slot, values[first:last]), dtype=object)
        tokens[np.repeat(starts[:, i] + 1, count) + within] = texts
    flat = tokens.tolist()
    bounds = [*starts[:, 0].tolist(), len(flat)]
    lines = [" ".join(flat[a:b]) for a, b in itertools.pairwise(bounds)]
    return ("\n".join(lines) + "\n").encode()
