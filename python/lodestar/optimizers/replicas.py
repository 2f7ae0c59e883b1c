"""Makes one step of several replicas equal to one step on the whole batch.

Replicas of `tf.distribute.MirroredStrategy` have parts of a batch and share the
tables. Their gradients are combined where all replicas meet, and applied once.
Replicas in different processes send each other the gradients of rows.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from lodestar.embedding import workers
from lodestar.embedding.exchange import Exchange
from lodestar.embedding.table_variable import TableVariable
from lodestar.ops import embedding_partition_ops
from lodestar.optimizers import gradients as gradients_lib
from lodestar.optimizers.gradients import Gradient


class _Held:
    """A replica's value, opaque to `tf.distribute`, which looks into lists."""

    def __init__(self, value: Any):
        self.value = value


def are_several() -> bool:
    """Returns whether the caller is one of several replicas."""
    context = tf.distribute.get_replica_context()
    return context is not None and context.num_replicas_in_sync > 1


def merge(function: Callable[[list[Any]], Any], value: Any) -> Any:
    """Calls `function` once with the `value` of each replica, in order.

    Every replica must call it; each gets the result.
    """

    def call(strategy: tf.distribute.Strategy, held: Any) -> Any:
        parts = strategy.experimental_local_results(held)
        return function([part.value for part in parts])

    context = tf.distribute.get_replica_context()
    return context.merge_call(call, args=(_Held(value),))


def in_scope(function: Callable[[], Any]) -> None:
    """Calls `function` once, outside of graphs, to create variables."""

    def call(_: list[Any]) -> None:
        strategy = tf.distribute.get_strategy()
        with tf.init_scope(), strategy.scope():
            function()

    merge(call, None)


def build(optimizer: Any, variables: list[Any]) -> None:
    """Builds an optimizer for `variables`, once, unless it is built already."""
    if optimizer.built:
        return
    if are_several():
        in_scope(lambda: optimizer.build(variables))
    else:
        optimizer.build(variables)


def sums(gradients: Sequence[Gradient]) -> list[Gradient]:
    """Returns the sums of the gradients over all replicas."""
    given = [g for g in gradients if g is not None]
    if not given:
        return list(gradients)
    context = tf.distribute.get_replica_context()
    summed = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, given))
    return [None if g is None else next(summed) for g in gradients]


def in_first(gradients: Sequence[Gradient]) -> list[Gradient]:
    """Returns the gradients in the first replica and zeros in the others.

    An optimizer that sums over replicas then gets gradients that are already
    summed only once.
    """
    context = tf.distribute.get_replica_context()
    first = tf.equal(tf.cast(context.replica_id_in_sync_group, tf.int32), 0)
    return [
        gradients_lib.map_values(
            lambda g: tf.where(first, g, tf.zeros_like(g)), gradient
        )
        for gradient in gradients
    ]


def concatenate(parts: Sequence[tf.IndexedSlices]) -> tf.IndexedSlices:
    """Concatenates slices of several replicas."""
    if len(parts) == 1:
        return parts[0]
    return tf.IndexedSlices(
        tf.concat([part.values for part in parts], 0),
        tf.concat([part.indices for part in parts], 0),
        parts[0].dense_shape,
    )


def of_own_rows(
    gradients: Sequence[tuple[tf.IndexedSlices, TableVariable]],
) -> list[tuple[tf.IndexedSlices, TableVariable]]:
    """Returns the sums over all replicas for the rows of this process.

    Requires one replica per process. The ids of a result are unique.
    """
    if not gradients:
        return []
    spread = workers.of_strategy()
    assert spread is not None
    pieces: list[list[tf.Tensor]] = [[] for _ in range(spread.count)]
    specs = []
    for gradient, table in gradients:
        gradient = gradients_lib.merge_duplicates(gradient)
        divided = embedding_partition_ops.partition_rows(
            gradient.indices, gradient.values, spread.count
        )
        for piece, own in zip(pieces, divided, strict=True):
            piece.extend(own)
        rows = [None, table.output_dim]
        specs.append(tf.TensorSpec([None], tf.int64))
        specs.append(tf.TensorSpec(rows, gradient.values.dtype))
    counts = tf.stack(
        [tf.stack([tf.shape(x, tf.int64)[0] for x in p]) for p in pieces]
    )
    exchange = Exchange(spread, (specs, counts))
    received = [tf.concat(x, 0) for x in zip(*exchange.send(0, pieces))]
    sums = [
        gradients_lib.merge_duplicates(
            tf.IndexedSlices(rows, ids, gradient.dense_shape)
        )
        for ids, rows, (gradient, _) in zip(
            received[::2], received[1::2], gradients, strict=True
        )
    ]
    return [*zip(sums, (table for _, table in gradients))]


def sum_of(numbers: tf.Tensor) -> tf.Tensor:
    """Returns the sum of a tensor over all replicas."""
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, numbers)


def any_of(flag: tf.Tensor) -> tf.Tensor:
    """Returns whether a bool scalar is true in any replica."""
    return sum_of(tf.cast(flag, tf.float32)) > 0
