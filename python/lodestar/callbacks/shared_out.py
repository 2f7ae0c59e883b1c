"""Batches of one reader, shared out to the replicas of a strategy."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from lodestar.callbacks.one_training import OneTraining
from lodestar.snapshot.resumable_dataset import ResumableDataset


class SharedOut(tf.data.Dataset, tf.distribute.DistributedDataset):
    """What `fit` trains on in several replicas, in place of the reader.

    Of a dataset TensorFlow would make an iterator that reads ahead, and whose
    place cannot be saved. This one takes a batch of the reader when a step asks
    for it; the replicas get equal parts of its examples, in order, as they
    would. It is a `tf.data.Dataset` for Keras, which takes it then as it is.

    Args:
        reader: Whose batches they are.
        strategy: Of the replicas.
        training: In which they are trained.

    Raises:
        NotImplementedError: Another strategy than for one machine.
    """

    def __init__(
        self,
        reader: ResumableDataset,
        strategy: tf.distribute.Strategy,
        training: OneTraining,
    ):
        if not isinstance(
            strategy,
            (tf.distribute.OneDeviceStrategy, tf.distribute.MirroredStrategy),
        ):
            raise NotImplementedError(
                f"`fit` of a Snapshot does not know {type(strategy).__name__}, "
                "under which each process reads by itself; wanted "
                "MirroredStrategy, OneDeviceStrategy or none."
            )
        self._reader = reader
        self._strategy = strategy
        self._training = training
        replicas = strategy.num_replicas_in_sync

        @tf.function(input_signature=[reader.element_spec], autograph=False)
        def parts(batch: Any) -> list[Any]:
            return [_part(batch, i, replicas) for i in range(replicas)]

        self._parts = parts
        super().__init__(tf.data.experimental.to_variant(reader))

    @property
    def element_spec(self) -> Any:
        """That of the reader: of whole batches."""
        return self._reader.element_spec

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._reader]

    def __iter__(self) -> Iterator[Any]:
        return _Batches(self)

    def next_batch(self) -> Any:
        """The parts of the next batch, as values of the replicas.

        Raises:
            OutOfRangeError: There is none; as Keras wants it.
        """
        if self._training.running:
            try:
                batch = next(self._reader.iterator)
            except StopIteration:
                raise tf.errors.OutOfRangeError(
                    None, None, "no batch"
                ) from None
        else:
            # Keras looks at one to build a model, and drops it.
            batch = tf.nest.map_structure(_zeros, self.element_spec)
        parts = self._parts(batch)
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group]
        )


class _Batches:
    """An iterator of a SharedOut."""

    def __init__(self, shared_out: SharedOut):
        self._shared_out = shared_out

    def __iter__(self) -> "_Batches":
        return self

    def __next__(self) -> Any:
        return self._shared_out.next_batch()


def _part(batch: Any, index: int, parts: int) -> Any:
    """The examples of a replica; where they are uneven, the last has more."""

    def part(value: Any) -> Any:
        size = (
            value.nrows()
            if isinstance(value, tf.RaggedTensor)
            else tf.shape(value, tf.int64)[0]
        )
        begin = size * index // parts
        return value[begin : size * (index + 1) // parts]

    return tf.nest.map_structure(part, batch)


def _zeros(spec: Any) -> Any:
    """A batch of one example a replica, of as few values as may be."""
    if not isinstance(spec, tf.TensorSpec):
        return spec
    return tf.zeros([size or 8 for size in spec.shape], spec.dtype)
