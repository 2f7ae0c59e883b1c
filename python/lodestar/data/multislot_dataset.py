"""MultiSlotDataset: MultiSlot text files as a tf.data.Dataset."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.data.record_dataset import ReadOptions, record_dataset
from lodestar.data.slot_spec import Slot, SlotSpec, as_slot_spec


def MultiSlotDataset(
    files: str | os.PathLike | Iterable[str | os.PathLike],
    slots: SlotSpec | str | os.PathLike | Iterable[Slot],
    batch_size: int,
    *,
    weights: Mapping[str, str] | None = None,
    pipe_command: Sequence[str | os.PathLike] | None = None,
    **options,
) -> tf.data.Dataset:
    """Batches of `(features, label)` from MultiSlot text files.

    `features` maps each slot's name to

    - sparse: a `tf.RaggedTensor` `[B, None]`, int64 (float32 for a float slot);
    - dense: `[B, *shape]`, float32 (int64 for a uint64 slot);
    - one-hot: `[B, size]`, float32.

    `label` is float32 `[B, 1]`; with several label slots a dict of such; without
    one, the elements are `features` alone. Batches straddle files: only the last
    one of an epoch may be smaller.

    The lines are parsed in C++ by threads that run ahead of the training. With
    `deterministic=True`, samples come in the order of files and lines whatever
    the number of threads, and `tf.train.Checkpoint(iterator)` resumes at the
    next sample.

    >>> dataset = MultiSlotDataset(files, "slots.yaml", 1024)  # doctest: +SKIP
    >>> model.fit(dataset)  # doctest: +SKIP

    Args:
        files: One path or several, of any scheme that `tf.io.gfile` knows; a
            name that ends in `.gz` is decompressed.
        slots: A `SlotSpec`, the path of a slot file, or a list of `Slot`s.
        batch_size: Samples a batch.
        weights: Id slot -> the float slot that holds one weight for each of its
            ids, as `SlotSpec.with_weights`; both stay features of their own.
        pipe_command: A command and its arguments, as `["python", "gen.py"]`.
            Each file goes through a process of its own: the file's bytes,
            decompressed if its name ends in `.gz`, are its stdin, and its
            stdout is the text that is read. No shell sees it.
        **options: Those of every dataset: `drop_remainder`, `shuffle_rows`,
            `repeat`, `shard`, ...; see `ReadOptions`.

    Raises:
        ValueError: An option is out of range, `files` is empty, or a slot file
            is not valid.
        tf.errors.InvalidArgumentError: While reading: a line is not as declared
            ("path:line: slot 'C3' at byte 17: ..."), a file is empty or ends
            without a newline. Samples before that line have come first.
        tf.errors.NotFoundError: While reading: a file is missing.
        tf.errors.FailedPreconditionError: While reading, whatever `on_error`
            says: `pipe_command` cannot be run, or does not end with exit code
            0. The end of its stderr is in the error.
    """
    spec = as_slot_spec(slots)
    if weights:
        spec = spec.with_weights(weights)
    op = gen_ops.lodestar_multi_slot_dataset
    if pipe_command is not None:
        op = functools.partial(op, pipe_command=_checked(pipe_command))
    return record_dataset(
        op,
        files,
        spec,
        ReadOptions(batch_size, **options),
    )


def _checked(command: Sequence[str | os.PathLike]) -> list[bytes]:
    """The words of a command; raises ValueError unless it is one."""
    if not isinstance(command, (list, tuple)) or not all(
        isinstance(word, (str, os.PathLike)) for word in command
    ):
        raise ValueError(
            "`pipe_command` must be a list of strings, as ['python', "
            f"'gen.py'], found {command!r}; no shell would take it apart."
        )
    words = [os.fsencode(word) for word in command]
    if not words or not words[0]:
        raise ValueError(
            f"`pipe_command` must name a command, found {command!r}."
        )
    if any(b"\0" in word for word in words):
        raise ValueError(
            f"`pipe_command` must not have a NUL character, found {command!r}."
        )
    return words
