"""What the workers of one strategy do together.

What goes over the wire goes by `tf.distribute`: each function here is called by
all replicas, in the same order.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from lodestar.ops import embedding_partition_ops

# TensorFlow gathers numbers of some dtypes only.
_SENT_AS = {
    tf.bool: tf.int32,
    tf.uint8: tf.int32,
    tf.bfloat16: tf.float32,
}


class Workers(NamedTuple):
    """The workers of a `tf.distribute.MultiWorkerMirroredStrategy`.

    Attributes:
        count: How many they are, more than one.
        index: Of this process among them.
        replicas: Of each.
    """

    count: int
    index: int
    replicas: int

    def own_part(self, gradient: tf.IndexedSlices) -> tf.IndexedSlices:
        """What of a gradient by id is for the rows that are here."""
        ids, rows = embedding_partition_ops.partition_rows(
            tf.cast(gradient.indices, tf.int64), gradient.values, self.count
        )[self.index]
        return tf.IndexedSlices(rows, ids, gradient.dense_shape)


def of_strategy() -> Workers | None:
    """The workers of the strategy in scope; None where they are not several."""
    strategy = tf.distribute.get_strategy()
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
    return tf.IndexedSlices(
        _gather(gradient.values),
        _gather(tf.cast(gradient.indices, tf.int64)),
        gradient.dense_shape,
    )


def by_id(
    parts: Sequence[Any],
    ids: tf.Tensor,
    run: Callable[[Any, tf.Tensor], Sequence[tf.Tensor]],
) -> list[tf.Tensor]:
    """What `run` gives for each id, in the process that has its row.

    Args:
        parts: The part of a table that is here.
        ids: int64 `[N]`, another one in each replica.
        run: Returns tensors `[N_p, ...]` for distinct ids `[N_p]`, those of all
            replicas together.
    """
    (part,) = parts
    workers = of_strategy()
    if workers is None or tf.distribute.in_cross_replica_context():
        raise RuntimeError(
            f"The rows of {part!r} are spread over {part.workers.count} "
            "workers, which look them up together: call the step by "
            "strategy.run(step)."
        )
    context = tf.distribute.get_replica_context()
    replica = int(tf.get_static_value(context.replica_id_in_sync_group))
    sizes = _gather(tf.shape(ids, tf.int64)[:1])
    # In the order of replicas, and so of examples, as one replica has them.
    distinct, places = tf.unique(_gather(ids), tf.int64)
    own_ids, order = embedding_partition_ops.partition(distinct, workers.count)
    own = own_ids[workers.index]
    if replica % workers.replicas:  # the first one of the process finds them
        own = own[:0]
    begin = tf.reduce_sum(sizes[:replica])
    wanted = places[begin : begin + tf.size(ids, tf.int64)]
    wanted = tf.gather(order, wanted)
    return [tf.gather(_gather(column), wanted) for column in run(part, own)]


def of_each(
    strategy: tf.distribute.Strategy, tensors: Sequence[tf.Tensor]
) -> list[list[tf.Tensor]]:
    """Tensors of the first replica of each process, in all, eagerly.

    Args:
        strategy: That of the workers.
        tensors: Of any shape but for the first dimension equal in all.
    """

    def replica() -> list[Any]:
        workers = of_strategy()
        context = tf.distribute.get_replica_context()
        first = context.replica_id_in_sync_group % workers.replicas == 0
        results = []
        for tensor in tensors:
            tensor = tensor if first else tensor[:0]
            sizes = _gather(tf.shape(tensor, tf.int64)[:1])
            whole = _gather(tensor)
            pieces = tf.split(
                whole, sizes, num=workers.count * workers.replicas
            )
            results.append(pieces[:: workers.replicas])
        return results

    results = strategy.run(replica)
    return [
        [strategy.experimental_local_results(piece)[0] for piece in pieces]
        for pieces in results
    ]


def _gather(tensor: tf.Tensor) -> tf.Tensor:
    """Those of all replicas, one after another along the first axis."""
    gather = tf.distribute.get_replica_context().all_gather
    # With one row more of each: TensorFlow cannot gather nothing.
    sizes = gather(tf.shape(tensor, tf.int64)[:1] + 1, axis=0)
    ends = tf.cumsum(sizes) - 1
    if 0 in tensor.shape[1:]:
        size = tf.reduce_sum(sizes - 1)
        return tf.zeros([size, *tensor.shape[1:]], tensor.dtype)
    padding = [[0, 1]] + [[0, 0]] * (tensor.shape.rank - 1)
    dtype = _SENT_AS.get(tensor.dtype, tensor.dtype)
    whole = gather(tf.pad(tf.cast(tensor, dtype), padding), axis=0)
    whole = tf.cast(whole, tensor.dtype)
    real = tf.tensor_scatter_nd_update(
        tf.ones([tf.reduce_sum(sizes)], tf.bool),
        ends[:, None],
        tf.zeros_like(ends, tf.bool),
    )
    return tf.boolean_mask(whole, real)
