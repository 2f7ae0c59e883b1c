"""Describes the content of files of samples in bounded memory."""

from typing import Any

import numpy as np

from lodestar._command_line import print_table
from lodestar._data_tool.distinct_ids import DistinctIds, unsigned
from lodestar._data_tool.progress import Progress
from lodestar._data_tool.sources import Source
from lodestar.data.sample_columns import cut, flat, lengths, num_rows
from lodestar.schema import Column


def inspect_files(
    source: Source, *, records: int = 0, progress: Progress
) -> dict[str, Any]:
    """Reads every sample and returns statistics for `json.dumps`.

    The dict has the numbers of `files` and `samples`; `columns`, a dict per column
    with its declaration and statistics; and the first `records`, dicts that map
    columns to values.
    """
    statistics = {column.name: _Statistics(column) for column in source.spec}
    num_samples = 0
    first: list[dict[str, list[Any]]] = []
    for path in source.paths:
        progress.start(f"reading {path}", source.size(path))
        for columns in source.batches(path):
            for row in range(min(records - len(first), num_rows(columns))):
                record = cut(columns, row, row + 1)
                first.append(
                    {
                        slot.name: _listed(slot, flat(record[slot.name]))
                        for slot in source.spec
                    }
                )
            num_samples += num_rows(columns)
            for name, column in columns.items():
                statistics[name].add(column)
    return {
        "files": len(source.paths),
        "samples": num_samples,
        "columns": [
            {**statistics[column.name].summary(), "why": why}
            for column, why in zip(source.spec, source.spec.reasons()[0])
        ],
        "records": first,
    }


def print_found(found: dict[str, Any]) -> None:
    """Prints the result of `inspect_files`, with `notes` on its schema."""
    files = "file" if found["files"] == 1 else "files"
    print(f"{found['samples']} samples in {found['files']} {files}")
    rows = [("column", "kind", "why", "values", "values per sample")]
    for column in found["columns"]:
        lengths = column.get("lengths", {})
        rows.append(
            (
                column["name"],
                column["description"],
                column["why"],
                _values_text(column),
                ", ".join(f"{size}: {n}" for size, n in lengths.items()),
            )
        )
    print_table(rows)
    for note in found["notes"]:
        print(note)
    for number, record in enumerate(found["records"], 1):
        print(
            f"sample {number}: "
            + " ".join(f"{n}={_record_text(v)}" for n, v in record.items())
        )


def _values_text(slot: dict[str, Any]) -> str:
    parts = []
    if slot["kind"] == "sparse":
        parts.append(f"{slot['values']} values")
    if "distinct" in slot:
        more = "" if slot["distinct_is_exact"] else " or more"
        parts.append(f"{slot['distinct']}{more} distinct")
    if "mean" in slot:
        parts.append(f"mean {slot['mean']:.6g}")
    if "least" in slot:
        parts.append(
            f"from {slot['least']:.9g} to {slot['most']:.9g}"
            if slot["dtype"] == "float"
            else f"from {slot['least']} to {slot['most']}"
        )
    if slot.get("not_finite"):
        parts.append(f"{slot['not_finite']} are inf or NaN")
    return ", ".join(parts) or "no values"


def _record_text(values: list[Any]) -> str:
    if len(values) == 1:
        return str(values[0])
    return "[" + ", ".join(map(str, values)) + "]"


def _listed(slot: Column, values: np.ndarray) -> list[Any]:
    if slot.dtype == "float":
        # The shortest decimal of a float32; a string where JSON has no number.
        return [
            float(str(v)) if np.isfinite(v) else str(v)
            for v in values.astype(np.float32)
        ]
    return [int(v) for v in unsigned(values)]


class _Statistics:
    """Statistics of one slot."""

    def __init__(self, slot: Column):
        self._slot = slot
        self._is_float = slot.dtype == "float"
        # The mean of ids is meaningless.
        self._is_id = not self._is_float and slot.kind in ("sparse", "one_hot")
        self._varies = slot.num_values is None
        self._rows = 0
        self._values = 0
        self._finite = 0
        self._sum = 0.0
        self._least = self._most = None
        self._longest = 0
        # Number of samples with 0, 1, 2, 3 to 4, 5 to 8, ... values.
        self._lengths: dict[int, int] = {}
        self._distinct = DistinctIds()

    def add(self, column: Any) -> None:
        values = flat(column)
        if self._is_float:
            self._values += len(values)
            values = values[np.isfinite(values)]
        else:
            values = unsigned(values)
            self._values += len(values)
        self._finite += len(values)
        if self._varies:
            counts = lengths(column)
            self._longest = max(self._longest, int(counts.max(initial=0)))
            # Buckets 0, 1, 2 for 0, 1, 2 values, 3 for up to 4, ...
            buckets = np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64)
            buckets += counts > 0
            for bucket, samples in enumerate(np.bincount(buckets).tolist()):
                if samples:
                    self._lengths[bucket] = (
                        self._lengths.get(bucket, 0) + samples
                    )
        if self._is_id:
            self._distinct.add(values)
        if not len(values):
            return
        if not self._is_id:
            self._sum += float(values.astype(np.float64).sum())
        least, most = values.min().item(), values.max().item()
        self._least = least if self._least is None else min(least, self._least)
        self._most = most if self._most is None else max(most, self._most)

    def summary(self) -> dict[str, Any]:
        slot = self._slot
        found: dict[str, Any] = {
            "name": slot.name,
            "kind": slot.kind,
            "description": slot.describe(),
            "dtype": slot.dtype,
            "used": slot.used,
        }
        if slot.kind == "dense":
            found["shape"] = list(slot.shape)
        if slot.kind == "one_hot":
            found["size"] = slot.size
        found["values"] = self._values
        if self._varies:
            found["longest"] = self._longest
            found["lengths"] = {
                _bucket_name(bucket): count
                for bucket, count in sorted(self._lengths.items())
            }
        if self._is_id:
            found["distinct"] = len(self._distinct.ids())
            found["distinct_is_exact"] = self._distinct.exact
        elif self._finite:
            found["mean"] = self._sum / self._finite
        if self._least is not None:
            found["least"], found["most"] = self._least, self._most
        if self._is_float:
            found["not_finite"] = self._values - self._finite
        return found


def _bucket_name(bucket: int) -> str:
    if bucket < 3:
        return str(bucket)
    return f"{2 ** (bucket - 2) + 1}-{2 ** (bucket - 1)}"
