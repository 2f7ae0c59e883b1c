"""Exchanges of tensors between workers, which send each piece to one worker only.

TensorFlow's all-to-all sends pieces of equal size between processes. Workers agree on
the size, and on a key for the operation, by summing a few numbers over all of them.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lodestar.ops import packing

# Key of the group of all workers, apart from the groups of TensorFlow's own
# collective operations, whose keys count from 1.
_GROUP = 0x10DE57A0
_COUNTER = "lodestar_exchanges"
# Keys of one meeting.
_KEYS = 2


class Exchange:
    """One exchange between all workers, in one or two rounds.

    All workers must make it at the same point of a replica, and run all its rounds.

    Args:
        workers: The `Workers` of the strategy.
        rounds: For each round, the specs of the K tensors of a piece, `[count, ...]`,
            and the counts that this worker sends to each worker, or receives in
            the second round of an exchange: int64 `[workers, K]`.
    """

    def __init__(
        self,
        workers: Any,
        *rounds: tuple[Sequence[tf.TensorSpec], tf.Tensor],
    ):
        assert len(rounds) <= _KEYS
        self._count = workers.count
        self._specs = [list(specs) for specs, _ in rounds]
        widths = [packing.words(*given) for given in rounds]
        own = tf.stack([_number(), *map(tf.reduce_max, widths)])
        place = tf.one_hot(workers.index, workers.count, dtype=tf.int64)
        # A sum in which all other workers add zero.
        said = tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, place[:, None] * own
        )
        # Agreed on when the step runs: workers may trace different numbers of
        # functions, and TensorFlow accepts one size per key.
        self._key = tf.cast(said[0, 0], tf.int32) * _KEYS
        self._widths = tf.unstack(
            tf.reduce_max(said[:, 1:], 0), num=len(rounds)
        )

    def send(
        self, number: int, pieces: Sequence[Sequence[tf.Tensor]]
    ) -> list[list[tf.Tensor]]:
        """Sends each worker its piece and returns the pieces for this worker."""
        with tf.device("CPU:0"):
            received = tf.raw_ops.CollectiveAllToAllV2(
                input=packing.pack(pieces, self._widths[number]),
                group_size=self._count,
                group_key=_GROUP + self._count,
                instance_key=self._key + number,
                ordering_token=[],
                communication_hint="ring",
            )
            return packing.unpack(received, [self._specs[number]] * self._count)


def _number() -> tf.Tensor:
    """Returns a number that is different in each call of this process."""
    with tf.init_scope(), tf.device("CPU:0"):
        if not tf.raw_ops.VarIsInitializedOp(resource=_counter()):
            tf.raw_ops.AssignVariableOp(
                resource=_counter(), value=tf.constant(0, tf.int64)
            )
    with tf.device("CPU:0"):
        return tf.raw_ops.ResourceCountUpTo(
            resource=_counter(), limit=2**31 // _KEYS, T=tf.int64
        )


def _counter() -> tf.Tensor:
    # Not a tf.Variable, which a strategy in scope would mirror.
    return tf.raw_ops.VarHandleOp(
        dtype=tf.int64, shape=[], shared_name=_COUNTER
    )
