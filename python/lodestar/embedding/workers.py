"""Collective operations of the workers of one strategy.

They communicate by `tf.distribute`. All replicas must call them in the same order.
"""

import functools
import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from lodestar.ops import embedding_partition_ops

# TensorFlow cannot gather these dtypes.
_SENT_AS = {
    tf.bool: tf.int32,
    tf.bfloat16: tf.float32,
}
_LENGTH = struct.Struct("<q")


class Workers(NamedTuple):
    """The workers of a `tf.distribute.MultiWorkerMirroredStrategy`.

    Attributes:
        count: Number of workers, more than one.
        index: Index of this process.
        replicas: Number of replicas per worker.
    """

    count: int  # type: ignore[assignment]
    index: int  # type: ignore[assignment]
    replicas: int

    def own_part(self, gradient: tf.IndexedSlices) -> tf.IndexedSlices:
        """Returns the slices of a gradient for the rows of this worker."""
        ids, rows = embedding_partition_ops.partition_rows(
            tf.cast(gradient.indices, tf.int64), gradient.values, self.count
        )[self.index]
        return tf.IndexedSlices(rows, ids, gradient.dense_shape)


def of_strategy() -> Workers | None:
    """Returns the workers of the strategy in scope, or None for a single one."""
    return of(tf.distribute.get_strategy())


def of(strategy: tf.distribute.Strategy) -> Workers | None:
    """Returns the workers of a strategy, or None for a single one."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return None
    replicas = len(strategy.extended.worker_devices)
    count = strategy.num_replicas_in_sync // replicas
    if count == 1:
        return None
    resolver = strategy.cluster_resolver
    index = resolver.task_id
    if resolver.task_type == "worker":
        index += len(resolver.cluster_spec().as_dict().get("chief", []))
    return Workers(count, index, replicas)


def gather(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Returns the concatenated slices of all replicas, in each of them."""
    sizes, ids = _gather(tf.cast(gradient.indices, tf.int64))
    rows = _gather_of(gradient.values, sizes)
    return tf.IndexedSlices(rows, ids, gradient.dense_shape)


def by_id(
    table: Any,
    ids: tf.Tensor,
    run: Callable[[Any, tf.Tensor], Sequence[tf.Tensor]],
) -> list[tf.Tensor]:
    """Runs a function on the ids of each process; returns its results for `ids`.

    Args:
        table: A table with one part in this process.
        ids: int64 `[N]`, different in each replica.
        run: Returns tensors `[N_p, ...]` for the unique ids `[N_p]` of all
            replicas together that belong to this process.
    """
    (here,) = table.parts
    workers = of_strategy()
    if workers is None or tf.distribute.in_cross_replica_context():
        raise RuntimeError(
            f"The rows of {table!r} are partitioned over {table.workers.count} "
            "workers, which must look them up together. Call the step by "
            "strategy.run(step)."
        )
    context = tf.distribute.get_replica_context()
    replica = int(tf.get_static_value(context.replica_id_in_sync_group))
    # In the order of replicas and their examples, as in a single replica.
    sizes, all_ids = _gather(ids)
    distinct, places = tf.unique(all_ids, tf.int64)
    of_workers, order = embedding_partition_ops.partition(
        distinct, workers.count
    )
    own = of_workers[workers.index]
    begin = tf.reduce_sum(sizes[:replica])
    wanted = places[begin : begin + tf.size(ids, tf.int64)]
    wanted = tf.gather(order, wanted)
    found = tf.stack([tf.size(part, tf.int64) for part in of_workers])
    return [
        tf.gather(_gather_of(column, found), wanted)
        for column in run(here, own)
    ]


def of_each(
    strategy: tf.distribute.Strategy, arrays: Sequence[Any]
) -> list[list[np.ndarray]]:
    """Returns the arrays of each process, in all of them; eager only."""
    own = [np.asarray(array) for array in arrays]
    counts = np.array([len(array) for array in own], np.int64)
    sent = b"".join([counts.tobytes(), *(array.tobytes() for array in own)])
    results = []
    for data in exchange(strategy, sent):
        found, at = [], counts.nbytes
        for array, count in zip(own, np.frombuffer(data, np.int64, len(own))):
            shape = (count, *array.shape[1:])
            size = math.prod(shape)
            piece = np.frombuffer(data, array.dtype, size, at)
            found.append(piece.reshape(shape))
            at += piece.nbytes
        results.append(found)
    return results


def any_of(strategy: tf.distribute.Strategy, flag: bool) -> bool:
    """Whether `flag` is True in any process; eager only."""
    if of(strategy) is None:
        return flag
    return any(numbers(strategy, int(flag)))


def agree_to_stop(model: Any) -> bool:
    """Makes all workers stop training if one does; returns whether to stop."""
    stop = any_of(model.distribute_strategy, bool(model.stop_training))
    if stop:
        model.stop_training = True
    return stop


def check_alike(
    strategy: tf.distribute.Strategy, given: Mapping[str, Any]
) -> None:
    """Raises ValueError in all processes if they pass different JSON values."""
    if of(strategy) is None:
        return
    said = [
        json.loads(text)
        for text in exchange(strategy, json.dumps(given).encode())
    ]
    for name in given:
        values = [found[name] for found in said]
        if any(value != values[0] for value in values):
            raise ValueError(
                f"All workers need the same `{name}`, because they run each step "
                f"together, got {values}."
            )


def numbers(strategy: tf.distribute.Strategy, number: int) -> list[int]:
    """Returns the number of each process, in all of them; eager only."""
    return _numbers(strategy)(np.array([number])).numpy().tolist()


@functools.cache
def _numbers(strategy: tf.distribute.Strategy) -> Callable[..., Any]:
    replicas = len(strategy.extended.worker_devices)

    def replica(number: tf.Tensor) -> tf.Tensor:
        # Gathering needs a tensor that was made on the device of the replica.
        return tf.distribute.get_replica_context().all_gather(
            tf.identity(number), axis=0
        )

    @tf.function(
        input_signature=[tf.TensorSpec([1], tf.int64)], autograph=False
    )
    def run(number: tf.Tensor) -> tf.Tensor:
        said = strategy.run(replica, args=(number,))
        said = strategy.experimental_local_results(said)[0]
        return said[::replicas]

    return run


def exchange(strategy: tf.distribute.Strategy, text: bytes) -> list[bytes]:
    """Returns the `text` of each process, in all of them; eager only."""
    padded = _LENGTH.pack(len(text)) + text + bytes(-len(text) % 8)
    sizes, whole = _exchange(strategy)(np.frombuffer(padded, np.int64))
    said = np.split(whole.numpy(), np.cumsum(sizes)[:-1])
    result = []
    for words in said:
        data = words.tobytes()
        (length,) = _LENGTH.unpack_from(data)
        result.append(data[_LENGTH.size : _LENGTH.size + length])
    return result


@functools.cache
def _exchange(strategy: tf.distribute.Strategy) -> Callable[..., Any]:
    """Returns a function for the word counts and the words of all processes."""

    def replica(text: tf.Tensor) -> Any:
        workers = of_strategy()
        assert workers is not None
        context = tf.distribute.get_replica_context()
        number = int(tf.get_static_value(context.replica_id_in_sync_group))
        if number % workers.replicas:
            text = text[:0]  # the first replica of the process sends it
        sizes, whole = _gather(text)
        return sizes[:: workers.replicas], whole

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.int64)], autograph=False
    )
    def run(text: tf.Tensor) -> Any:
        return [
            strategy.experimental_local_results(found)[0]
            for found in strategy.run(replica, args=(text,))
        ]

    return run


def _gather(tensor: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Concatenates the tensors of all replicas; returns their lengths, int64, first."""
    sizes = tf.distribute.get_replica_context().all_gather(
        tf.shape(tensor, tf.int64)[:1], axis=0
    )
    return sizes, _gather_of(tensor, sizes)


def _gather_of(tensor: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
    """As `_gather`, with known lengths."""
    if 0 in tensor.shape[1:]:
        size = tf.reduce_sum(sizes)
        return tf.zeros([size, *tensor.shape[1:]], tensor.dtype)
    # With one more row each: TensorFlow cannot gather empty tensors.
    padding = [[0, 1]] + [[0, 0]] * (tensor.shape.rank - 1)
    dtype = _SENT_AS.get(tensor.dtype, tensor.dtype)
    whole = tf.distribute.get_replica_context().all_gather(
        tf.pad(tf.cast(tensor, dtype), padding), axis=0
    )
    ends = tf.cumsum(sizes + 1) - 1
    real = tf.tensor_scatter_nd_update(
        tf.ones([tf.reduce_sum(sizes + 1)], tf.bool),
        ends[:, None],
        tf.zeros_like(ends, tf.bool),
    )
    return tf.boolean_mask(tf.cast(whole, tensor.dtype), real)
