"""MultiSlotDataset: MultiSlot text files as a tf.data.Dataset."""

from __future__ import annotations

import os
from collections.abc import Iterable

import tensorflow as tf

from lodestar._library import gen_ops
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

    Raises:
        ValueError: An option is out of range, `files` is empty, or a slot file
            is not valid.
        tf.errors.InvalidArgumentError: While reading: a line is not as declared
            ("path:line: slot 'C3' at byte 17: ..."), a file is empty or ends
            without a newline. Samples before that line have come first.
        tf.errors.NotFoundError: While reading: a file is missing.
    """
    paths = _paths(files)
    spec = as_slot_spec(slots)
    for name, value, least in (
        ("batch_size", batch_size, 1),
        ("num_parallel_files", num_parallel_files, 1),
        ("shuffle_rows", shuffle_rows, 0),
        ("prefetch", prefetch, 0),
    ):
        _check_at_least(name, value, least)
    if repeat is not None:
        _check_at_least("repeat", repeat, 1)

    source = _Source(spec, batch_size, drop_remainder, deterministic)

    def epoch(epoch_seed: tf.Tensor | int) -> tf.data.Dataset:
        order = tf.constant(paths)
        if shuffle_files:
            order = tf.random.experimental.stateless_shuffle(
                order, seed=tf.stack([tf.cast(epoch_seed, tf.int64), 0])
            )
        return source.dataset(
            order, num_parallel_files, shuffle_rows, epoch_seed
        )

    if shuffle_files or shuffle_rows:
        # One random number an epoch, new ones each time fit() starts over.
        seeds = tf.data.Dataset.random(
            seed=seed, rerandomize_each_iteration=True
        )
        if repeat is not None:
            seeds = seeds.take(repeat)
        dataset = seeds.flat_map(epoch)
    else:
        dataset = epoch(0)
        if repeat != 1:
            dataset = dataset.repeat(repeat)
    dataset = dataset.map(source.features_and_label)
    return dataset.prefetch(prefetch) if prefetch else dataset


class _Source:
    """The op's view of a SlotSpec, and the way back from its flat tensors."""

    def __init__(
        self,
        spec: SlotSpec,
        batch_size: int,
        drop_remainder: bool,
        deterministic: bool,
    ):
        self._spec = spec
        self._batch_size = batch_size
        self._drop_remainder = drop_remainder
        self._deterministic = deterministic
        rows = batch_size if drop_remainder else None
        self._specs: list[tf.TensorSpec] = []
        self._shapes: list[tf.TensorShape] = []
        self._limits: list[int] = []
        for slot in spec:
            dtype = tf.float32 if slot.dtype == "float" else tf.int64
            if slot.kind == "sparse":
                shape = tf.TensorShape(None)
                splits = [None if rows is None else rows + 1]
                self._specs.append(tf.TensorSpec([None], dtype))
                self._specs.append(tf.TensorSpec(splits, tf.int64))
            else:
                shape = tf.TensorShape(
                    [] if slot.kind == "one_hot" else slot.shape
                )
                if slot.kind == "label":
                    shape = tf.TensorShape([1])
                self._specs.append(tf.TensorSpec([rows, *shape], dtype))
            self._shapes.append(shape)
            binary = slot.kind == "label" and slot.binary
            self._limits.append(2 if binary else slot.size)

    def dataset(
        self, files, num_threads, shuffle_rows, seed
    ) -> tf.data.Dataset:
        types = [
            tf.float32 if slot.dtype == "float" else tf.int64
            for slot in self._spec
        ]
        variant = gen_ops.lodestar_multi_slot_dataset(
            filenames=files,
            batch_size=tf.constant(self._batch_size, tf.int64),
            num_parallel_files=tf.constant(num_threads, tf.int64),
            shuffle_rows=tf.constant(shuffle_rows, tf.int64),
            seed=tf.cast(seed, tf.int64),
            slot_names=self._spec.names(),
            slot_types=types,
            slot_shapes=self._shapes,
            slot_limits=self._limits,
            drop_remainder=self._drop_remainder,
            deterministic=self._deterministic,
            output_types=[s.dtype for s in self._specs],
            output_shapes=[s.shape for s in self._specs],
        )
        return tf.data.experimental.from_variant(variant, tuple(self._specs))

    def features_and_label(self, *tensors):
        features, labels = {}, {}
        remaining = iter(tensors)
        for slot in self._spec:
            values = next(remaining)
            if slot.kind == "sparse":
                features[slot.name] = tf.RaggedTensor.from_row_splits(
                    values, next(remaining), validate=False
                )
            elif slot.kind == "one_hot":
                features[slot.name] = tf.one_hot(values, slot.size)
            elif slot.kind == "label":
                labels[slot.name] = tf.cast(values, tf.float32)
            else:
                features[slot.name] = values
        if not labels:
            return features
        if len(labels) == 1:
            (label,) = labels.values()
            return features, label
        return features, labels


def _paths(files) -> list[str]:
    if isinstance(files, (str, bytes, os.PathLike)):
        files = [files]
    paths = [os.fsdecode(path) for path in files]
    if not paths:
        raise ValueError("`files` is empty; wanted at least one path.")
    return paths


def _check_at_least(name: str, value, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(
            f"`{name}` must be an integer of at least {least}, found {value!r}."
        )
