"""Converts samples between formats in bounded memory."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from lodestar._data_tool.output import Output, Target
from lodestar._data_tool.progress import Progress
from lodestar._data_tool.sources import Source
from lodestar._errors import DataError
from lodestar.data.sample_columns import cut, num_rows


def convert(
    source: Source,
    target: Target,
    *,
    limit: int | None = None,
    progress: Progress,
) -> int:
    """Writes the samples of `source`, in order, and their schema file atomically.

    For several files the source is read twice, first to count the samples, which
    are partitioned evenly. Returns the number of samples written, at most `limit`.
    Raises DataError, with sample and slot, if the format does not support a sample.
    """
    rows: list[int] = []
    if target.num_files is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Writing warns again.
            total = sum(
                num_rows(columns)
                for columns in _limited(
                    source.quiet(), limit, "counting", progress
                )
            )
        if total < target.num_files:
            raise DataError(
                f"{target.path}: {target.num_files} files need at least as many "
                f"samples, got {total}."
            )
        bounds = np.linspace(0, total, target.num_files + 1).astype(np.int64)
        rows = np.diff(bounds).tolist()
    with Output(target, source.spec, inputs=source.paths, rows=rows) as output:
        for columns in _limited(source, limit, "writing", progress):
            output.write_batch(columns)
        if output.num_samples == 0:
            raise DataError(
                f"{source.paths[0]}: there are no samples to write."
            )
    return output.num_samples


def _limited(
    source: Source, limit: int | None, text: str, progress: Progress
) -> Iterator[dict[str, Any]]:
    done = 0
    for path in source.paths:
        progress.start(f"{text} {path}", source.size(path))
        for columns in source.batches(path):
            rows = num_rows(columns)
            if limit is not None and done + rows > limit:
                rows = limit - done
                columns = cut(columns, 0, rows)
            if rows:
                yield columns
            done += rows
            if done == limit:
                return
