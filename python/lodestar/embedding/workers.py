"""What the workers of one strategy do together.

What goes over the wire goes by `tf.distribute`: each function here is called by
all replicas, in the same order.
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

# TensorFlow gathers numbers of some dtypes only.
_SENT_AS = {
    tf.bool: tf.int32,
    tf.bfloat16: tf.float32,
}
_LENGTH = struct.Struct("<q")


class Workers(NamedTuple):
    """The workers of a `tf.distribute.MultiWorkerMirroredStrategy`.

    Attributes:
        count: How many they are, more than one.
        index: Of this process among them.
        replicas: Of each.
    """

    count: int  # type: ignore[assignment]
    index: int  # type: ignore[assignment]
    replicas: int

    def own_part(self, gradient: tf.IndexedSlices) -> tf.IndexedSlices:
        """What of a gradient by id is for the rows that are here."""
        ids, rows = embedding_partition_ops.partition_rows(
            tf.cast(gradient.indices, tf.int64), gradient.values, self.count
        )[self.index]
        return tf.IndexedSlices(rows, ids, gradient.dense_shape)


def of_strategy() -> Workers | None:
    """The workers of the strategy in scope; None where they are not several."""
    return of(tf.distribute.get_strategy())


def of(strategy: tf.distribute.Strategy) -> Workers | None:
    """Those of a strategy; None where they are not several."""
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
    """Slices of all replicas, one after another, in each of them."""
    sizes, ids = _gather(tf.cast(gradient.indices, tf.int64))
    rows = _gather_of(gradient.values, sizes)
    return tf.IndexedSlices(rows, ids, gradient.dense_shape)


def by_id(
    table: Any,
    ids: tf.Tensor,
    run: Callable[[Any, tf.Tensor], Sequence[tf.Tensor]],
) -> list[tf.Tensor]:
    """What `run` gives for each id, in the process that has its row.

    Args:
        table: A table, of which this process has a part.
        ids: int64 `[N]`, another one in each replica.
        run: Returns tensors `[N_p, ...]` for distinct ids `[N_p]`, those of all
            replicas together.
    """
    (here,) = table.parts
    workers = of_strategy()
    if workers is None or tf.distribute.in_cross_replica_context():
        raise RuntimeError(
            f"The rows of {table!r} are spread over {table.workers.count} "
            "workers, which look them up together: call the step by "
            "strategy.run(step)."
        )
    context = tf.distribute.get_replica_context()
    replica = int(tf.get_static_value(context.replica_id_in_sync_group))
    # In the order of replicas, and so of examples, as one replica has them.
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
    """Arrays of each process, in all, eagerly: for each process, its own.

    Args:
        strategy: That of the workers.
        arrays: Of any shape but for the first dimension equal in all.
    """
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
    """Whether a process says so, in all of them, eagerly."""
    if of(strategy) is None:
        return flag
    return any(numbers(strategy, int(flag)))


def agree_to_stop(model: Any) -> bool:
    """Returns whether training is to stop, in all workers if in one of them."""
    stop = any_of(model.distribute_strategy, bool(model.stop_training))
    if stop:
        model.stop_training = True
    return stop


def check_alike(
    strategy: tf.distribute.Strategy, given: Mapping[str, Any]
) -> None:
    """Raises ValueError in all processes unless all are given the same.

    Args:
        strategy: That of the workers, if there are some.
        given: What JSON can hold, by the name that the error names.
    """
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
                f"The workers have a different `{name}`, in their order "
                f"{values}; wanted one for all, as they make each step together."
            )


def numbers(strategy: tf.distribute.Strategy, number: int) -> list[int]:
    """That of each process, in all of them, eagerly; one small message."""
    return _numbers(strategy)(np.array([number])).numpy().tolist()


@functools.cache
def _numbers(strategy: tf.distribute.Strategy) -> Callable[..., Any]:
    replicas = len(strategy.extended.worker_devices)

    def replica(number: tf.Tensor) -> tf.Tensor:
        # What is made in a replica has its device, which gathering asks for.
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
    """What each process says, to all of them, eagerly."""
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
    """How many words each process has, and those of all."""

    def replica(text: tf.Tensor) -> Any:
        workers = of_strategy()
        assert workers is not None
        context = tf.distribute.get_replica_context()
        number = int(tf.get_static_value(context.replica_id_in_sync_group))
        if number % workers.replicas:
            text = text[:0]  # the first one of the process says it
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
    """Those of all replicas, one after another along the first axis.

    Returns:
        How long each is, int64, and all of them.
    """
    sizes = tf.distribute.get_replica_context().all_gather(
        tf.shape(tensor, tf.int64)[:1], axis=0
    )
    return sizes, _gather_of(tensor, sizes)


def _gather_of(tensor: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
    """As `_gather`, of tensors that are known to be so long."""
    if 0 in tensor.shape[1:]:
        size = tf.reduce_sum(sizes)
        return tf.zeros([size, *tensor.shape[1:]], tensor.dtype)
    # With one row more of each: TensorFlow cannot gather nothing.
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
