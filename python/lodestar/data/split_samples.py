"""Splits a MultiSlot file at random, for training and evaluation."""

from __future__ import annotations

import os

import numpy as np
import tensorflow as tf

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
    is kept.

    Returns:
        The number of samples in `train` and in `test`.

    Raises:
        ValueError: `fraction` is not between 0 and 1.
        DataError: One of the two would be empty. Neither is left behind.
        tf.errors.OpError: A file cannot be read or written.
    """
    if not 0 < fraction < 1:
        raise ValueError(
            f"`fraction` must be between 0 and 1, found {fraction!r}."
        )
    rng = np.random.default_rng(seed)
    targets = [os.fspath(train), os.fspath(test)]
    temporaries = [f"{target}.tmp-{os.getpid()}" for target in targets]
    counts = [0, 0]
    try:
        with (
            tf.io.gfile.GFile(os.fspath(source), "rb") as lines,
            tf.io.gfile.GFile(temporaries[0], "wb") as first,
            tf.io.gfile.GFile(temporaries[1], "wb") as second,
        ):
            while line := lines.readline():
                part = int(rng.random() < fraction)
                (first, second)[part].write(line)
                counts[part] += 1
        if 0 in counts:
            raise DataError(
                f"{os.fspath(source)}: {sum(counts)} samples are too few to "
                f"split off a fraction of {fraction}"
            )
        for temporary, target in zip(temporaries, targets, strict=True):
            tf.io.gfile.rename(temporary, target, overwrite=True)
    finally:
        for temporary in temporaries:
            if tf.io.gfile.exists(temporary):
                tf.io.gfile.remove(temporary)
    return counts[0], counts[1]
