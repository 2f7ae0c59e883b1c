"""InMemoryDataset: MultiSlot samples that are held in memory."""

import dataclasses
import functools
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._checks import check_count, is_number
from lodestar._library import gen_ops
from lodestar._resource import OwnedName
from lodestar._typing import StrPath, StrPaths
from lodestar.data.commands import command_words
from lodestar.data.pieces import Piece
from lodestar.data.record_dataset import (
    as_paths,
    check_shard,
    epochs,
    options_of,
)
from lodestar.data.schema import SchemaLike, as_schema
from lodestar.data.schema_layout import line_fields
from lodestar.paddle.sample_exchange import SampleExchange

# Those that say how epochs go; the others say how files are read and batched.
_EPOCH_OPTIONS = (
    "deterministic",
    "shuffle_files",
    "shuffle_rows",
    "seed",
    "repeat",
)


@dataclasses.dataclass(frozen=True)
class MergeCounts:
    """What `InMemoryDataset.merge_by_ins_id` has done.

    Attributes:
        merged: Samples that were made of several.
        too_few: Samples dropped, since fewer than `min_size` had their ins_id.
        conflicting: Samples dropped, since their dense slots disagree.
    """

    merged: int
    too_few: int
    conflicting: int


class InMemoryDataset:
    """Loads MultiSlot files, to be shuffled and read any number of times.

    >>> memory = InMemoryDataset("schema.yaml", 1024)
    >>> memory.load(files_of_today)
    >>> memory.preload(files_of_tomorrow)
    >>> memory.global_shuffle()
    >>> model.fit(memory.dataset(), epochs=2)
    >>> memory.release()
    >>> memory.wait_preload()

    As in Paddle, of a sparse slot ids of 0, and floats below 1e-6 in magnitude,
    are dropped (an id and its weight both, if either is), and a slot that has no
    value left, or had none in the text, gets one 0 (with a weight of 0). So
    every sample has a value in every slot. `drop_zeros=False` keeps samples as
    they are in the text. Other slots keep their zeros anyway.

    Samples take 8 bytes an id and a sparse slot, 4 a float, and 8 a sample
    for its place. `global_shuffle` moves none of them, but takes another 8 bytes
    a sample while it runs; `slots_shuffle` and `merge_by_ins_id` make all of
    them anew before the old ones go.

    Any thread may call any method. An iterator reads the samples, in the order,
    that were there when it was made, that is at the beginning of an epoch;
    nothing that is done meanwhile disturbs it. So the memory of released samples
    is free once the last iterator over them is gone.

    Workers share the data by `shard=(workers, index)`: each loads its part, and
    `global_shuffle` exchanges their samples through a folder.
    """

    def __init__(
        self,
        schema: SchemaLike,
        batch_size: int,
        *,
        weights: Mapping[str, str] | None = None,
        pipe_command: Sequence[StrPath] | None = None,
        ins_id: bool = False,
        parse_content: bool = False,
        parse_logkey: bool = False,
        num_queues: int = 1,
        drop_zeros: bool = True,
        **options: Any,
    ):
        """Holds no samples yet.

        Args:
            schema: A `Schema`, the path of a schema file, or a list of `Column`s.
            batch_size: Samples a batch.
            weights: As those of `open_dataset`.
            pipe_command: As that of `open_dataset`.
            ins_id: As that of `open_dataset`.
            parse_content: As that of `open_dataset`.
            parse_logkey: As that of `open_dataset`.
            num_queues: Parts that `dataset(queue=...)` reads one of.
            drop_zeros: Whether to drop sparse zeros, as said above.
            **options: Of `ReadOptions`: `drop_remainder`, `num_parallel_files`,
                `shard`, `prefetch`, `sparse`, `on_error`, `skipped`,
                `open_command`.

        Raises:
            ValueError: An option is out of range, is one that does not apply
                here, or a schema file is not valid.
        """
        for name in _EPOCH_OPTIONS:
            if name in options:
                raise ValueError(
                    f"`{name}` is no option of InMemoryDataset: samples are "
                    "loaded in the order of files and lines, and dataset() has "
                    "`shuffle`, `seed` and `repeat`."
                )
        check_count("num_queues", num_queues, 1)
        spec = as_schema(schema, weights)
        self._options = options_of(InMemoryDataset, batch_size, options)
        self._pipe_words = command_words("pipe_command", pipe_command)
        self._num_queues = num_queues
        self._fields = line_fields(ins_id, parse_content, parse_logkey)
        self._layout = self._options.layout(spec, self._fields)
        self._memory = OwnedName("InMemoryDataset", _forget)
        # Held by what changes the samples: an exchange takes long.
        self._changing = threading.Lock()
        attributes = self._layout.op_attributes()
        gen_ops.lodestar_record_memory_create(
            memory=self._memory.text,
            line_fields=self._fields,
            drop_zeros=drop_zeros,
            **{
                name: value
                for name, value in attributes.items()
                if name.startswith("slot_")
            },
        )

    def load(self, files: StrPaths) -> None:
        """Reads files and adds their samples behind those that are there.

        Args:
            files: As those of `open_dataset`.

        Raises:
            ValueError: `files` is empty.
            tf.errors.OpError: As while `open_dataset` reads. No sample of
                these files is added then.
        """
        with self._changing:
            self._read(files, preload=False)

    def preload(self, files: StrPaths) -> None:
        """Begins to read files in the background; `wait_preload` ends it.

        What is in memory does not change meanwhile.

        Raises:
            ValueError: `files` is empty.
            tf.errors.FailedPreconditionError: A preload was begun before and not
                waited for.
        """
        self._read(files, preload=True)

    def wait_preload(self) -> None:
        """Waits for the preload, then adds its samples behind those there.

        Raises:
            tf.errors.FailedPreconditionError: None was begun.
            tf.errors.OpError: As `load`; the preload is over then.
        """
        with self._changing:
            gen_ops.lodestar_record_memory_wait_preload(
                memory=self._memory.text
            )

    def global_shuffle(
        self,
        seed: int | None = None,
        *,
        folder: StrPath | None = None,
        workers: tuple[int, int] | None = None,
        timeout: float = 600.0,
    ) -> None:
        """Puts the samples in a random order: this worker's, or those of all.

        Without `folder`, the samples of this object. With it, every worker of a
        job calls this, and then the samples of all are in a random order of
        which worker `index` has the part from `index / num` to
        `(index + 1) / num`. That order is the one that one object with all
        samples, those of worker 0 first, would have of the same seed. Workers
        may have any numbers of samples, none too, and may be processes or
        threads, each with an object of its own.

        Samples go as checked files, in pieces of 1,024, through the folder,
        which needs the room of all of them and is cleared of them in the end;
        while that lasts, memory holds the old samples and the new ones. Other
        methods that change the samples wait until it is over.

        On every error below the samples are as they were, on all workers: they
        change only once each has all of its own. One case is left, which a note
        on the error tells: a worker that stops waiting for worker 0's commit
        cannot know whether the others have exchanged theirs.

        Args:
            seed: Fixes the order of equally many samples; None draws one. The
                same for all workers.
            folder: Where the workers meet: a path that all see, of any
                `tf.io.gfile` scheme, and that no exchange, failed or not, has
                used before.
            workers: `(num, index)`; None takes `shard`.
            timeout: Seconds to wait for the others, each time.

        Raises:
            ValueError: An argument is out of range, or there is a `folder` but
                neither `workers` nor `shard`.
            DataError: A ValueError: the folder was used before, the workers do
                not agree about the seed or their number, or samples in the
                folder are of other slots or not as they were written.
            TimeoutError: Others did not come, or did not go on.
            RuntimeError: Another worker has failed; says why.
            tf.errors.OpError: The folder cannot be written or read.
        """
        if folder is None:
            with self._changing:
                gen_ops.lodestar_record_memory_global_shuffle(
                    memory=self._memory.text, seed=_seed(seed)
                )
            return
        workers = workers or self._options.shard
        if workers is None:
            raise ValueError(
                "`folder` needs `workers`=(num, index) where there is no "
                "`shard`."
            )
        check_shard("workers", workers)
        if not is_number(timeout) or not timeout > 0:
            raise ValueError(f"`timeout` must be above 0, found {timeout!r}.")
        if seed is not None:
            seed = int(_seed(seed))
        with self._changing:
            exchange = SampleExchange(
                self._memory.text, folder, (workers[0], workers[1]), timeout
            )
            exchange.run(self.num_samples, seed)

    def slots_shuffle(
        self, names: str | Iterable[str], seed: int | None = None
    ) -> None:
        """Gives each sample the values that another one has in these slots.

        What a model loses by it is what the slots are worth to it. A sample gets
        all these slots from the same other sample, ids with their weights.

        Args:
            names: Sparse slots.
            seed: Fixes which sample is which one's; None draws one.

        Raises:
            tf.errors.InvalidArgumentError: A name is not that of a sparse slot
                that is used.
        """
        names = [names] if isinstance(names, str) else list(names)
        with self._changing:
            gen_ops.lodestar_record_memory_slots_shuffle(
                memory=self._memory.text,
                slots=tf.constant(names, tf.string),
                seed=_seed(seed),
            )

    def merge_by_ins_id(
        self,
        min_size: int = 2,
        keep_unmerged: bool = True,
        erase_duplicates: bool = True,
    ) -> MergeCounts:
        """Makes one sample of all samples that have the same ins_id.

        Where `min_size` or more have it, they become one, where the first of
        them stands:

        - A sparse slot has the values of all, in the order of the samples. With
          `erase_duplicates`, each value only once, an id with its first weight.
          The 0 that stands for an empty slot is none of them.
        - In a label, dense or one-hot slot, a sample whose values there are all
          0 gives way. If the others are equal bit by bit, that is the value. If
          not, `erase_duplicates` drops all samples of this ins_id; without it
          the first one's values stay.
        - content, search_id, cmatch and rank are those of the first one.

        Where fewer have it, `keep_unmerged` keeps them as they are, else they
        are dropped.

        Args:
            min_size: At least 2.
            keep_unmerged: Whether samples that are not merged stay.
            erase_duplicates: Whether repeated values, and samples that
                disagree, are dropped.

        Raises:
            ValueError: `min_size` is below 2.
            tf.errors.FailedPreconditionError: Made without `ins_id=True`.
        """
        check_count("min_size", min_size, 2)
        with self._changing:
            counts = gen_ops.lodestar_record_memory_merge_by_ins_id(
                memory=self._memory.text,
                min_size=tf.constant(min_size, tf.int64),
                keep_unmerged=keep_unmerged,
                erase_duplicates=erase_duplicates,
            )
        return MergeCounts(*(int(count) for count in counts))

    def release(self) -> None:
        """Drops all samples but those of a preload.

        Iterators that are under way read on to their end.
        """
        with self._changing:
            gen_ops.lodestar_record_memory_release(memory=self._memory.text)

    @property
    def num_queues(self) -> int:
        """The parts that `dataset(queue=...)` reads one of."""
        return self._num_queues

    @property
    def num_samples(self) -> int:
        """Samples in memory, without those of a preload."""
        return int(self._size()[0])

    @property
    def memory_bytes(self) -> int:
        """Bytes that these samples take."""
        return int(self._size()[1])

    def dataset(
        self,
        queue: int | None = None,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        repeat: int | None = 1,
    ) -> tf.data.Dataset:
        """Batches of `(features, label)`, as `open_dataset` has them.

        `tf.train.Checkpoint(iterator)` resumes at the next sample, in another
        process too, where the same was loaded, shuffled and merged with the same
        seeds; over other samples it raises `tf.errors.FailedPreconditionError`.

        Inside a `tf.function` keep this object while the function is used.

        Args:
            queue: Reads only samples whose number is `queue` modulo `num_queues`,
                so that each of as many threads has its own; None reads all.
            shuffle: Whether every epoch has an order of its own. Takes no
                memory, and leaves that of `global_shuffle` as it is.
            seed: Fixes these orders.
            repeat: Epochs; None for no end.

        Raises:
            ValueError: `queue` is not from 0 to `num_queues` - 1, or `repeat` is
                out of range.
        """
        num_queues = self._num_queues
        if queue is None:
            queue, num_queues = 0, 1
        check_count("queue", queue, 0)
        if queue >= num_queues:
            raise ValueError(
                f"`queue` must be below `num_queues`={num_queues}, found "
                f"{queue}."
            )

        def epoch(unused: Any, seed: tf.Tensor | int) -> tf.data.Dataset:
            del unused
            variant = gen_ops.lodestar_record_memory_dataset(
                memory=self._memory.text,
                batch_size=tf.constant(self._options.batch_size, tf.int64),
                num_queues=tf.constant(num_queues, tf.int64),
                queue=tf.constant(queue, tf.int64),
                seed=tf.cast(seed, tf.int64),
                line_fields=self._fields,
                drop_remainder=self._options.drop_remainder,
                shuffle=shuffle,
                **self._layout.op_attributes(),
            )
            return tf.data.experimental.from_variant(
                variant, self._layout.tensor_specs
            )

        options = dataclasses.replace(
            self._options, shuffle_rows=int(shuffle), seed=seed, repeat=repeat
        )
        finish = self._layout.features_and_label
        dataset = epochs([""], epoch, finish, options)
        if not shuffle:
            return dataset
        # Without a sample of its own, but it holds the memory: the epochs only
        # name it.
        holder = epoch(None, 0).take(0).map(finish, synchronous=True)
        return holder.concatenate(dataset)

    def pieces(self) -> list[Piece]:
        """Returns the queues, for training by threads."""
        return [
            Piece(f"queue {queue}", functools.partial(self.dataset, queue))
            for queue in range(self._num_queues)
        ]

    def _read(self, files: StrPaths, preload: bool) -> None:
        paths, num_shards, shard_index = self._options.shard_of(as_paths(files))
        gen_ops.lodestar_record_memory_load(
            memory=self._memory.text,
            pipe_command=self._pipe_words,
            preload=preload,
            **self._options.file_arguments(
                tf.constant(paths), num_shards, shard_index
            ),
        )

    def _size(self) -> tf.Tensor:
        return gen_ops.lodestar_record_memory_size(memory=self._memory.text)


def _seed(seed: int | None) -> tf.Tensor:
    if seed is None:
        seed = int(np.random.default_rng().integers(2**63))
    return tf.constant(seed, tf.int64)


def _forget(name: str) -> None:
    gen_ops.lodestar_record_memory_forget(memory=name)
