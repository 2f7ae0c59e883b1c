"""Splits a file of samples at random, for training and evaluation."""

import contextlib
from typing import Any

import numpy as np

from lodestar._errors import DataError
from lodestar._files import AtomicFile, as_path
from lodestar._typing import StrPath
from lodestar.data.input_bytes import open_input
from lodestar.data.sample_columns import num_rows, take
from lodestar.data.schema import SchemaLike
from lodestar.data.tool.formats import FORMATS
from lodestar.data.tool.open_files import open_source


def split_samples(
    source: StrPath,
    train: StrPath,
    test: StrPath,
    *,
    fraction: float = 0.2,
    seed: int = 0,
    format: str = "multislot",
    schema: SchemaLike | None = None,
    **options: Any,
) -> tuple[int, int]:
    """Copies each sample of `source` to `train` or to `test`.

    To `test` with probability `fraction`; which ones depends on `seed` and their
    place alone, and not on the format. Their order is kept. Both files are of
    the format of `source`; of MultiSlot text the lines are not parsed. Names
    that end in `.gz` are decompressed and compressed. Memory does not grow with
    the file.

    Args:
        source: The file.
        train: A file to write.
        test: Another.
        fraction: Between 0 and 1.
        seed: At least 0.
        format: Of all three, as `open_source` takes it.
        schema: As `open_source` takes them; not needed for MultiSlot text.
        **options: As `open_source` takes them: how to read `source`, and to
            write the two.
            `slot_size_array` is added to the keys, so that `train` and `test`
            are to be read without.

    Returns:
        The number of samples in `train` and in `test`.

    Raises:
        ValueError: `fraction` is not between 0 and 1, or `train` is `test`.
        DataError: One of the two would be empty, or a compressed `source` is
            not whole. Neither is left behind.
        tf.errors.OpError: A file cannot be read or written.
    """
    if not 0 < fraction < 1:
        raise ValueError(
            f"`fraction` must be between 0 and 1, found {fraction!r}."
        )
    rng = np.random.default_rng(seed)
    source = as_path(source)
    targets = [as_path(train), as_path(test)]
    if targets[0] == targets[1]:
        raise ValueError(f"{targets[0]}: is both `train` and `test`")
    if format == "multislot":
        return _split_lines(source, targets, rng, fraction)
    made = FORMATS[format]
    columns_of = open_source(source, schema, format=format, **options)
    writing = {n: options[n] for n in made.writes if n in options}
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(made.make(target, columns_of.spec, **writing))
            for target in targets
        ]
        for columns in columns_of.batches(source):
            tested = rng.random(num_rows(columns)) < fraction
            for writer, chosen in zip(writers, (~tested, tested)):
                writer.write_batch(take(columns, np.flatnonzero(chosen)))
        counts = [writer.num_samples for writer in writers]
        _check_counts(source, counts, fraction)
    return counts[0], counts[1]


def _split_lines(
    source: str, targets: list[str], rng: np.random.Generator, fraction: float
) -> tuple[int, int]:
    counts = [0, 0]
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open_input(source))
        outputs = [stack.enter_context(AtomicFile(path)) for path in targets]
        for line in file:
            part = int(rng.random() < fraction)
            outputs[part].write(line)
            counts[part] += 1
        _check_counts(source, counts, fraction)
    return counts[0], counts[1]


def _check_counts(source: str, counts: list[int], fraction: float) -> None:
    if 0 in counts:
        raise DataError(
            f"{source}: {sum(counts)} samples are too few to split off a "
            f"fraction of {fraction}"
        )
