"""Evicts rows of all parts of a table, and hands them on."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.embedding import policies, table_parts

# Attributes of a table that only the table itself needs.
_OF_TABLE = ("when_full", "min_norm_every", "min_frequency_every")
# Called with the ids and rows of evicted rows as NumPy arrays.
OnEvict = Callable[[np.ndarray, np.ndarray], Any]


def check_on_evict(
    on_evict: Any, eviction: Sequence[policies.Eviction]
) -> OnEvict | None:
    """Returns the `on_evict` of a table whose policies are `eviction`.

    Raises ValueError unless it is None or a function that gets all rows that the
    policies evict, apart from the cap.
    """
    if on_evict is None:
        return None
    if not callable(on_evict):
        raise ValueError(
            f"`on_evict` must be a function of ids and rows, got {on_evict!r}."
        )
    lost = [p for p in eviction if not isinstance(p, policies.MaxRows)]
    if lost:
        raise ValueError(
            f"`on_evict` would not get the rows that {lost[0]!r} of `eviction` "
            "evicts during training. Leave that policy out of `eviction`, and pass "
            "it to `lodestar.callbacks.Evict` or `evict`, which call `on_evict`."
        )
    result: OnEvict = on_evict
    return result


def evict(
    table: Any, policy: policies.Evictions, return_rows: bool
) -> tf.Tensor | tuple[tf.Tensor, tf.Tensor]:
    """See EmbeddingVariable.evict."""
    on_evict: OnEvict | None = table.on_evict
    of_parts = table_parts.shares(
        policies.check_eviction(policy, "policy"), len(table._parts)
    )
    reads = return_rows or on_evict is not None
    counts, ids, rows = zip(
        *table_parts.each(
            "evict",
            table._parts,
            lambda i, part: part.call(
                gen_ops.lodestar_embedding_evict,
                own_policy=policy is None,
                return_rows=reads,
                dtype=table._row_dtype,
                **{
                    name: value
                    for name, value in policies.attributes(of_parts[i]).items()
                    if name not in _OF_TABLE
                },
            ),
        )
    )
    if not reads:
        return tf.add_n(counts)
    with tf.device("CPU"):
        all_ids = tf.concat(ids, 0)
        order = tf.argsort(all_ids)
        evicted = (
            tf.gather(all_ids, order),
            tf.gather(tf.concat(rows, 0), order),
        )
        if on_evict is not None:
            _call(on_evict, *evicted)
        return evicted if return_rows else tf.size(all_ids, tf.int64)


def _call(on_evict: OnEvict, ids: tf.Tensor, rows: tf.Tensor) -> None:
    def call(ids: np.ndarray, rows: np.ndarray) -> None:
        if ids.size:
            on_evict(ids, rows)

    if tf.executing_eagerly():
        call(ids.numpy(), rows.numpy())
    else:
        tf.numpy_function(call, [ids, rows], [])
