"""What the datasets of all formats share: options, epochs, prefetching."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable

import tensorflow as tf

from lodestar.data.slot_layout import SlotLayout
from lodestar.data.slot_spec import SlotSpec


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """The options that every dataset takes, checked; MultiSlotDataset says more.

    Raises:
        ValueError: An option is out of range.
    """

    batch_size: int
    drop_remainder: bool = False
    num_parallel_files: int = 2
    deterministic: bool = True
    shuffle_files: bool = False
    shuffle_rows: int = 0
    seed: int | None = None
    repeat: int | None = 1
    prefetch: int = 1
    sparse: str = "ragged"

    def __post_init__(self):
        check_at_least("batch_size", self.batch_size, 1)
        check_at_least("num_parallel_files", self.num_parallel_files, 1)
        check_at_least("shuffle_rows", self.shuffle_rows, 0)
        check_at_least("prefetch", self.prefetch, 0)
        if self.repeat is not None:
            check_at_least("repeat", self.repeat, 1)

    def layout(self, spec: SlotSpec) -> SlotLayout:
        """The layout of the batches."""
        rows = self.batch_size if self.drop_remainder else None
        return SlotLayout(spec, sparse=self.sparse, rows=rows)

    def op_arguments(
        self, layout: SlotLayout, files, seed: tf.Tensor | int
    ) -> dict:
        """The arguments of a format's dataset op."""
        return {
            "filenames": files,
            "batch_size": tf.constant(self.batch_size, tf.int64),
            "num_parallel_files": tf.constant(
                self.num_parallel_files, tf.int64
            ),
            "shuffle_rows": tf.constant(self.shuffle_rows, tf.int64),
            "seed": tf.cast(seed, tf.int64),
            "drop_remainder": self.drop_remainder,
            "deterministic": self.deterministic,
            **layout.op_attributes(),
        }


def record_dataset(
    files: Iterable[str],
    epoch: Callable[[tf.Tensor, tf.Tensor | int], tf.data.Dataset],
    layout: SlotLayout,
    options: ReadOptions,
) -> tf.data.Dataset:
    """Repeats, and prefetches, epochs of `(features, label)`.

    Args:
        files: Paths, at least one.
        epoch: Called with the paths of an epoch in their order, a string tensor,
            and a seed for its rows; returns a dataset of the flat tensors.
        layout: Of these tensors.
        options: Those of the dataset.
    """
    paths = tf.constant(list(files))

    def one_epoch(seed: tf.Tensor | int) -> tf.data.Dataset:
        if not options.shuffle_files:
            return epoch(paths, seed)
        order = tf.random.experimental.stateless_shuffle(
            paths, seed=tf.stack([tf.cast(seed, tf.int64), 0])
        )
        return epoch(order, seed)

    if options.shuffle_files or options.shuffle_rows:
        # One random number an epoch, new ones each time fit() starts over.
        seeds = tf.data.Dataset.random(
            seed=options.seed, rerandomize_each_iteration=True
        )
        if options.repeat is not None:
            seeds = seeds.take(options.repeat)
        dataset = seeds.flat_map(one_epoch)
    else:
        dataset = one_epoch(0)
        if options.repeat != 1:
            dataset = dataset.repeat(options.repeat)
    dataset = dataset.map(layout.features_and_label)
    return dataset.prefetch(options.prefetch) if options.prefetch else dataset


def as_paths(files: str | os.PathLike | Iterable[str | os.PathLike]) -> list:
    """The paths as strings; raises ValueError if there is none."""
    if isinstance(files, (str, bytes, os.PathLike)):
        files = [files]
    paths = [os.fsdecode(path) for path in files]
    if not paths:
        raise ValueError("`files` is empty; wanted at least one path.")
    return paths


def check_at_least(name: str, value, least: int) -> None:
    """Raises ValueError unless `value` is an integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(
            f"`{name}` must be an integer of at least {least}, found {value!r}."
        )
