"""Splits a MultiSlot file at random, for training and evaluation."""

from __future__ import annotations

import contextlib
import os
import zlib
from typing import IO

import numpy as np
import tensorflow as tf

from lodestar.data import gzip_files
from lodestar.data.errors import DataError


def split_samples(
    source: str | os.PathLike,
    train: str | os.PathLike,
    test: str | os.PathLike,
    *,
    fraction: float = 0.2,
    seed: int = 0,
) -> tuple[int, int]:
    """Copies each line of `source` to `train` or to `test`.

    To `test` with probability `fraction`. The lines are not parsed; their order
    is kept. Names that end in `.gz` are decompressed and compressed.

    Returns:
        The number of samples in `train` and in `test`.

    Raises:
        ValueError: `fraction` is not between 0 and 1.
        DataError: One of the two would be empty, or a compressed `source` is
            not whole. Neither is left behind.
        tf.errors.OpError: A file cannot be read or written.
    """
    if not 0 < fraction < 1:
        raise ValueError(
            f"`fraction` must be between 0 and 1, found {fraction!r}."
        )
    rng = np.random.default_rng(seed)
    source = os.fspath(source)
    targets = [os.fspath(train), os.fspath(test)]
    temporaries = [f"{target}.tmp-{os.getpid()}" for target in targets]
    counts = [0, 0]
    try:
        with contextlib.ExitStack() as stack:
            lines = gzip_files.reader(
                source, stack.enter_context(tf.io.gfile.GFile(source, "rb"))
            )
            files = [
                stack.enter_context(tf.io.gfile.GFile(temporary, "wb"))
                for temporary in temporaries
            ]
            outputs = [
                stack.enter_context(
                    contextlib.closing(gzip_files.writer(target, file))
                )
                for target, file in zip(targets, files, strict=True)
            ]
            while line := _read_line(lines, source):
                part = int(rng.random() < fraction)
                outputs[part].write(line)
                counts[part] += 1
        if 0 in counts:
            raise DataError(
                f"{source}: {sum(counts)} samples are too few to split off a "
                f"fraction of {fraction}"
            )
        for temporary, target in zip(temporaries, targets, strict=True):
            tf.io.gfile.rename(temporary, target, overwrite=True)
    finally:
        for temporary in temporaries:
            if tf.io.gfile.exists(temporary):
                tf.io.gfile.remove(temporary)
    return counts[0], counts[1]


def _read_line(lines: IO[bytes], path: str) -> bytes:
    try:
        return lines.readline()
    # What gzip says of a file that is cut short or not its own.
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path}: {error}") from error
