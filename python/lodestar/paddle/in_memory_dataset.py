"""MultiSlot samples in memory."""

import dataclasses
import functools
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import check_count, is_number
from lodestar._formats import OnError, SparseForm
from lodestar._input_paths import as_input
from lodestar._library import gen_ops
from lodestar._resource import OwnedName
from lodestar._typing import StrPath, StrPaths
from lodestar.data.commands import command_words
from lodestar.data.pieces import Piece
from lodestar.data.record_dataset import (
    ReadOptions,
    as_paths,
    check_shard,
    epochs,
)
from lodestar.data.schema_layout import line_fields
from lodestar.data.skipped_records import SkippedRecords
from lodestar.paddle.sample_exchange import (
    MAX_SEND_BATCH_SIZE,
    SampleExchange,
)
from lodestar.schema import SchemaLike, as_schema

# Options of epochs; the others tell how to read files and make batches.
_EPOCH_OPTIONS = (
    "deterministic",
    "shuffle_files",
    "shuffle",
    "seed",
    "repeat",
)
_NOT_AN_EPOCH = (
    "InMemoryDataset loads samples in the order of files and lines. Use "
    "`shuffle`, `seed` and `repeat` of dataset()."
)


@dataclasses.dataclass(frozen=True)
class MergeCounts:
    """Result of `InMemoryDataset.merge_by_ins_id`, in samples.

    Samples were `merged` from several, or dropped because `too_few` had their ins_id
    or because their dense slots were `conflicting`.
    """

    merged: int
    too_few: int
    conflicting: int


class InMemoryDataset:
    """Loads MultiSlot files into memory, to shuffle and read them repeatedly.

    >>> memory = InMemoryDataset("schema.yaml", 1024)
    >>> memory.load(files_of_today)
    >>> memory.preload(files_of_tomorrow)
    >>> memory.global_shuffle()
    >>> model.fit(memory.dataset(), epochs=2)
    >>> memory.release()
    >>> memory.wait_preload()

    As in Paddle, sparse ids of 0 and sparse floats below 1e-6 in magnitude are
    dropped (an id with its weight, if either is), and an empty sparse slot gets one
    0 (with weight 0), so every slot of every sample has a value. `drop_zeros=False`
    keeps samples as they are in the text. Other slots always keep their zeros.

    Samples use 8 bytes per id and per sparse slot, 4 per float, and 8 per sample
    for its position. `global_shuffle` moves no samples, but uses another 8 bytes
    per sample while it runs; `slots_shuffle` and `merge_by_ins_id` copy all samples
    before they free the old ones.

    Thread-safe. An iterator reads the samples and the order from the beginning of
    its epoch and is not affected by later changes, so released samples are freed
    when their last iterator is.

    Workers partition the data with `shard=(workers, index)`: each loads its part,
    and `global_shuffle` exchanges samples through a folder.
    """

    @explained(refused=dict.fromkeys(_EPOCH_OPTIONS, _NOT_AN_EPOCH))
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
        drop_remainder: bool = False,
        num_parallel_files: int = 2,
        shard: tuple[int, int] | None = None,
        prefetch: int = 1,
        sparse: SparseForm = "ragged",
        on_error: OnError = "raise",
        skipped: SkippedRecords | None = None,
        as_columns: bool = False,
        open_command: Sequence[StrPath] | None = None,
    ):
        """Creates an empty memory.

        Args:
            schema: A `Schema`, the path of a schema file, or a list of `Column`s.
            batch_size: Samples per batch.
            weights: See `open_dataset`.
            pipe_command: See `open_dataset`.
            ins_id: See `open_dataset`.
            parse_content: See `open_dataset`.
            parse_logkey: See `open_dataset`.
            num_queues: Number of parts for `dataset(queue=...)`.
            drop_zeros: Whether to drop sparse zeros, as described above.
            drop_remainder: See `open_dataset`.
            num_parallel_files: See `open_dataset`.
            shard: See `open_dataset`.
            prefetch: See `open_dataset`.
            sparse: See `open_dataset`.
            on_error: See `open_dataset`.
            skipped: See `open_dataset`.
            as_columns: See `open_dataset`.
            open_command: See `open_dataset`.

        Raises:
            ValueError: If an option is out of range or does not apply here, or a
                schema file is invalid.
        """
        check_count("num_queues", num_queues, 1)
        spec = as_schema(schema, weights)
        self._options = ReadOptions(
            batch_size,
            drop_remainder=drop_remainder,
            num_parallel_files=num_parallel_files,
            shard=shard,
            prefetch=prefetch,
            sparse=sparse,
            on_error=on_error,
            skipped=skipped,
            as_columns=as_columns,
            open_command=open_command,
        )
        self._pipe_words = command_words("pipe_command", pipe_command)
        self._num_queues = num_queues
        self._fields = line_fields(ins_id, parse_content, parse_logkey)
        self._layout = self._options.layout(spec, self._fields)
        self._memory = OwnedName("InMemoryDataset", _forget)
        # Must be held to change the samples; an exchange takes long.
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
        """Reads files and appends their samples.

        Args:
            files: One or several paths; see `open_dataset`.

        Raises:
            ValueError: If `files` is empty.
            FileNotFoundError: A file does not exist.
            tf.errors.OpError: As in `open_dataset` while reading. No sample of
                these files is added then.
        """
        with self._changing:
            self._read(files, preload=False)

    def preload(self, files: StrPaths) -> None:
        """Starts to read files in the background, for `wait_preload`.

        The samples in memory do not change.

        Raises:
            ValueError: If `files` is empty.
            tf.errors.FailedPreconditionError: If `wait_preload` was not called
                after an earlier preload.
        """
        self._read(files, preload=True)

    def wait_preload(self) -> None:
        """Waits for the preload and appends its samples.

        Raises:
            tf.errors.FailedPreconditionError: If there is no preload.
            tf.errors.OpError: As in `load`; this ends the preload.
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
        send_batch_size: int = 1024,
    ) -> None:
        """Shuffles the samples of this worker or of all workers.

        Without `folder`, this shuffles the samples of this object. With `folder`,
        every worker of a job must call it. The samples of all workers are then in a
        random order, of which worker `index` has the part from `index / num` to
        `(index + 1) / num`. With the same seed, it is the order of one object that
        has the samples of all workers, starting with worker 0. Workers may have
        any number of samples, even 0, and may be processes or threads, each with
        its own object.

        Samples are sent through the folder as checksummed files. The folder needs
        room for all samples and is cleaned at the end. Until then memory has both the
        old and the new samples, and other methods that change the samples wait.

        After any error below, the samples of all workers are unchanged, because
        they change only once every worker has all of its own. There is one exception,
        with a note on the error: a worker that stops waiting for worker 0's
        commit cannot know whether the others have exchanged theirs.

        Args:
            seed: Seed of the order, the same for all workers. None draws one.
            folder: Folder to exchange samples in, of any `tf.io.gfile` scheme, which
                all workers can access and no exchange, failed or not, has used.
            workers: `(num, index)`; defaults to `shard`.
            timeout: Seconds to wait for the other workers, each time.
            send_batch_size: Number of samples that are encoded and checked at once,
                up to 65,536, the same for all workers. More samples need more
                memory and fewer calls.

        Raises:
            ValueError: If an argument is out of range, or there is a `folder` but
                neither `workers` nor `shard`.
            DataError: A ValueError, if the folder was used before, the workers
                disagree about an argument or their number, or files in the folder have
                other slots or are corrupt.
            TimeoutError: If another worker does not arrive or continue in time.
            RuntimeError: If another worker has failed. The error says why.
            tf.errors.OpError: If the folder cannot be written or read.
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
                "`folder` needs `workers`=(num, index) or the option `shard`."
            )
        check_shard("workers", workers)
        if not is_number(timeout) or not timeout > 0:
            raise ValueError(
                f"`timeout` must be greater than 0, got {timeout!r}."
            )
        check_count("send_batch_size", send_batch_size, 1)
        if send_batch_size > MAX_SEND_BATCH_SIZE:
            raise ValueError(
                f"`send_batch_size` must be at most {MAX_SEND_BATCH_SIZE}, got "
                f"{send_batch_size}."
            )
        if seed is not None:
            seed = int(_seed(seed))
        with self._changing:
            exchange = SampleExchange(
                self._memory.text,
                folder,
                (workers[0], workers[1]),
                timeout,
                send_batch_size,
            )
            exchange.run(self.num_samples, seed)

    def slots_shuffle(
        self, names: str | Iterable[str], seed: int | None = None
    ) -> None:
        """Gives each sample another sample's values in these slots.

        The loss in model quality then shows the importance of the slots. A sample
        gets all these slots, with weights, from the same other sample.

        Args:
            names: Names of sparse slots.
            seed: Seed of the permutation; None draws one.

        Raises:
            tf.errors.InvalidArgumentError: If a name is not a used sparse slot.
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
        """Merges samples with the same ins_id.

        `min_size` or more samples become one, at the position of the first:

        - Sparse slots get the values of all, in the order of the samples. With
          `erase_duplicates` values are unique, and an id has its first weight. The 0
          of an empty slot is not a value.
        - In label, dense and one-hot slots, samples that are all 0 are ignored. If
          the others are bitwise equal, the result has their value. If they differ,
          `erase_duplicates` drops all samples of this ins_id; otherwise the first
          sample's values are used.
        - content, search_id, cmatch and rank are taken from the first sample.

        Smaller groups are kept if `keep_unmerged` is set and dropped otherwise.

        Args:
            min_size: Minimum number of samples to merge, at least 2.
            keep_unmerged: Whether to keep samples that are not merged.
            erase_duplicates: Whether to drop repeated values, and samples that
                differ in dense slots.

        Raises:
            ValueError: If `min_size` is less than 2.
            tf.errors.FailedPreconditionError: If `ins_id` is not True.
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
        """Drops all samples except a preload's; iterators keep theirs."""
        with self._changing:
            gen_ops.lodestar_record_memory_release(memory=self._memory.text)

    @property
    def num_queues(self) -> int:
        """Number of parts for `dataset(queue=...)`."""
        return self._num_queues

    @property
    def num_samples(self) -> int:
        """Number of samples in memory, without a preload's."""
        return int(self._size()[0])

    @property
    def memory_bytes(self) -> int:
        """Size of these samples in bytes."""
        return int(self._size()[1])

    def dataset(
        self,
        queue: int | None = None,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        repeat: int | None = 1,
    ) -> tf.data.Dataset:
        """Returns batches of `(features, label)`, as `open_dataset` does.

        `tf.train.Checkpoint(iterator)` resumes at the next sample, even in another
        process, if the same files were loaded, shuffled and merged with the same
        seeds. With other samples it raises `tf.errors.FailedPreconditionError`.

        Inside a `tf.function`, keep this object as long as the function is used.

        Args:
            queue: Reads only samples whose number modulo `num_queues` is `queue`,
                so that each of `num_queues` threads has its own. None reads all.
            shuffle: Whether to shuffle each epoch differently. Needs no memory and
                does not change the order of `global_shuffle`.
            seed: Seed of these orders.
            repeat: Number of epochs; None repeats without end.

        Raises:
            ValueError: If `queue` is not in [0, num_queues) or `repeat` is out of
                range.
        """
        num_queues = self._num_queues
        if queue is None:
            queue, num_queues = 0, 1
        check_count("queue", queue, 0)
        if queue >= num_queues:
            raise ValueError(
                f"`queue` must be less than `num_queues`={num_queues}, got "
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
            self._options, shuffle=int(shuffle), seed=seed, repeat=repeat
        )
        finish = self._layout.features_and_label
        dataset = epochs([""], epoch, finish, options)
        if not shuffle:
            return dataset
        # An empty dataset that owns the memory, which the epochs only name.
        holder = epoch(None, 0).take(0).map(finish, synchronous=True)
        return holder.concatenate(dataset)

    def pieces(self) -> list[Piece]:
        """Returns the queues as pieces for training by threads."""
        return [
            Piece(f"queue {queue}", functools.partial(self.dataset, queue))
            for queue in range(self._num_queues)
        ]

    def _read(self, files: StrPaths, preload: bool) -> None:
        paths = as_paths(files)
        if not self._options.open_command:
            paths = [as_input(path) for path in paths]
        paths, num_shards, shard_index = self._options.shard_of(paths)
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
