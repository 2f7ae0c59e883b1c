"""One step of several replicas, as that of one with the whole batch.

Replicas of `tf.distribute.MirroredStrategy` hold parts of a batch and read one
table. What they have of a step's gradients is put together where all of them
meet, and goes into tables once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from lodestar.optimizers import gradients as gradients_lib
from lodestar.optimizers.gradients import Gradient


class _Held:
    """What one replica has; `tf.distribute` looks into lists, but not here."""

    def __init__(self, value: Any):
        self.value = value


def are_several() -> bool:
    """Whether who calls is one of several replicas."""
    context = tf.distribute.get_replica_context()
    return context is not None and context.num_replicas_in_sync > 1


def merge(function: Callable[[list[Any]], Any], value: Any) -> Any:
    """Calls `function` once, with the `value` of each replica, in their order.

    Every replica has to come here; each gets what it returns.
    """

    def call(strategy: tf.distribute.Strategy, held: Any) -> Any:
        parts = strategy.experimental_local_results(held)
        return function([part.value for part in parts])

    context = tf.distribute.get_replica_context()
    return context.merge_call(call, args=(_Held(value),))


def in_scope(function: Callable[[], Any]) -> None:
    """Calls `function` once, outside of functions, where variables are made."""

    def call(_: list[Any]) -> None:
        strategy = tf.distribute.get_strategy()
        with tf.init_scope(), strategy.scope():
            function()

    merge(call, None)


def sums(gradients: Sequence[Gradient]) -> list[Gradient]:
    """Those of all replicas together, in each of them."""
    given = [g for g in gradients if g is not None]
    if not given:
        return list(gradients)
    context = tf.distribute.get_replica_context()
    summed = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, given))
    return [None if g is None else next(summed) for g in gradients]


def in_first(gradients: Sequence[Gradient]) -> list[Gradient]:
    """As they are in the first replica, zeros in the others: their sum.

    For an optimizer that sums over replicas, of gradients that each has whole.
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
    """Slices of several replicas, one after another."""
    if len(parts) == 1:
        return parts[0]
    return tf.IndexedSlices(
        tf.concat([part.values for part in parts], 0),
        tf.concat([tf.cast(part.indices, tf.int64) for part in parts], 0),
        parts[0].dense_shape,
    )


def any_of(flag: tf.Tensor) -> tf.Tensor:
    """Whether a bool scalar is true in any replica."""
    context = tf.distribute.get_replica_context()
    count = tf.cast(flag, tf.float32)
    return context.all_reduce(tf.distribute.ReduceOp.SUM, count) > 0
