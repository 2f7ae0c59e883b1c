"""Collective operations of the workers of one strategy.

They communicate by `tf.distribute`. All replicas must call them in the same order.
"""

import functools
import itertools
import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.embedding.exchange import Exchange
from lodestar.ops import embedding_partition_ops

_NUMBERS = tf.TensorSpec([None], tf.int64)
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


def by_id(calls: Sequence[Any]) -> list[list[tf.Tensor]]:
    """Runs `table_parts.Call`s where the rows are; returns the results for their ids.

    A process receives each id once, and answers each process that sent it. The
    functions return rows and a bool per id. Columns are summed by id.
    """
    workers = of_strategy()
    for call in calls:
        if workers is None or tf.distribute.in_cross_replica_context():
            raise RuntimeError(
                f"The rows of {call.table!r} are partitioned over "
                f"{call.table._workers.count} workers, which must look them up "
                "together. Call the step by strategy.run(step). To export or "
                "call the model in one process, restore a snapshot there "
                "without a strategy."
            )
    assert workers is not None
    divided = [call.divide(workers.count) for call in calls]
    counts = tf.stack(
        [
            tf.stack([tf.size(own, tf.int64) for own, *_ in of_workers])
            for of_workers, _ in divided
        ],
        1,
    )
    sent = [i for i, call in enumerate(calls) for _ in (0, *call.columns)]
    results = []
    for call in calls:
        shape = [None, call.table.output_dim]
        results.append(tf.TensorSpec(shape, call.table._row_dtype))
        results.append(tf.TensorSpec([None], tf.bool))
    of_results = [i for i, _ in enumerate(calls) for _ in range(2)]
    exchange = Exchange(
        workers,
        ([_NUMBERS] * len(sent), tf.gather(counts, sent, axis=1)),
        (results, tf.gather(counts, of_results, axis=1)),
    )
    received = exchange.send(
        0,
        [
            [*itertools.chain(*pieces)]
            for pieces in zip(*(own for own, _ in divided), strict=True)
        ],
    )
    columns_of_workers = zip(*received, strict=True)
    answers: list[list[tf.Tensor]] = [[] for _ in received]
    for call in calls:
        (here,) = call.table._parts
        ids = next(columns_of_workers)
        # In the order of replicas and their examples, as in a single replica.
        unique_ids, positions = gen_ops.lodestar_embedding_unique(
            tf.concat(ids, 0)
        )
        sums = [
            tf.math.unsorted_segment_sum(
                tf.concat(next(columns_of_workers), 0),
                positions,
                tf.size(unique_ids),
            )
            for _ in call.columns
        ]
        wanted = tf.split(positions, [tf.size(own) for own in ids])
        for column in call.run(here, unique_ids, *sums):
            for answer, places in zip(answers, wanted):
                answer.append(tf.gather(column, places))
    columns = [
        embedding_partition_ops.assemble(own, divided[i][1])
        for i, own in zip(of_results, zip(*exchange.send(1, answers)))
    ]
    return [columns[i : i + 2] for i in range(0, len(columns), 2)]


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


def _gather(words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Concatenates int64 vectors of all replicas; returns their lengths first."""
    gather = tf.distribute.get_replica_context().all_gather
    sizes = gather(tf.shape(words, tf.int64), axis=0)
    # With one more word each: TensorFlow cannot gather empty tensors.
    whole = gather(tf.pad(words, [[0, 1]]), axis=0)
    ends = tf.cumsum(sizes + 1) - 1
    real = tf.tensor_scatter_nd_update(
        tf.ones_like(whole, tf.bool),
        ends[:, None],
        tf.zeros_like(ends, tf.bool),
    )
    return sizes, tf.boolean_mask(whole, real)
