"""MultiSlotDataset: MultiSlot text files as a tf.data.Dataset."""

from __future__ import annotations

import os
from collections.abc import Iterable

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.data.record_dataset import ReadOptions, as_paths, record_dataset
from lodestar.data.slot_spec import Slot, SlotSpec, as_slot_spec


def MultiSlotDataset(
    files: str | os.PathLike | Iterable[str | os.PathLike],
    slots: SlotSpec | str | os.PathLike | Iterable[Slot],
    batch_size: int,
    *,
    drop_remainder: bool = False,
    num_parallel_files: int = 2,
    deterministic: bool = True,
    shuffle_files: bool = False,
    shuffle_rows: int = 0,
    seed: int | None = None,
    repeat: int | None = 1,
    prefetch: int = 1,
    sparse: str = "ragged",
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
        drop_remainder: Whether to drop an epoch's last, smaller batch.
        num_parallel_files: Parsing threads.
        deterministic: If False, each thread reads a file of its own, and
            samples of different files come mixed, as they are ready.
        shuffle_files: Whether every epoch takes the files in a new order.
        shuffle_rows: If positive, each sample is drawn at random from a window
            of this many, anew in every epoch.
        seed: Fixes the shuffling; None draws a new seed for each dataset.
        repeat: Epochs; None for no end.
        prefetch: Batches made ahead; 0 makes each when it is asked for.
        sparse: How sparse slots come: `"ragged"`; `"lod"`, each a
            `lodestar.LoDTensor`; or `"csr"`, one HugeCTR CSR over all S sparse
            id slots, `features["csr"]`, a dict of `row_offsets` int64
            `[B * S + 1]`, the slots of a sample side by side, and `values`
            int64 `[N]` (a sparse float slot stays ragged).

    Raises:
        ValueError: An option is out of range, `files` is empty, or a slot file
            is not valid.
        tf.errors.InvalidArgumentError: While reading: a line is not as declared
            ("path:line: slot 'C3' at byte 17: ..."), a file is empty or ends
            without a newline. Samples before that line have come first.
        tf.errors.NotFoundError: While reading: a file is missing.
    """
    options = ReadOptions(
        batch_size=batch_size,
        drop_remainder=drop_remainder,
        num_parallel_files=num_parallel_files,
        deterministic=deterministic,
        shuffle_files=shuffle_files,
        shuffle_rows=shuffle_rows,
        seed=seed,
        repeat=repeat,
        prefetch=prefetch,
        sparse=sparse,
    )
    paths = as_paths(files)
    layout = options.layout(as_slot_spec(slots))

    def epoch(files: tf.Tensor, seed: tf.Tensor | int) -> tf.data.Dataset:
        variant = gen_ops.lodestar_multi_slot_dataset(
            **options.op_arguments(layout, files, seed)
        )
        return tf.data.experimental.from_variant(variant, layout.tensor_specs)

    return record_dataset(paths, epoch, layout, options)
