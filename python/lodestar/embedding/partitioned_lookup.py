"""Look-ups in tables whose rows lie on several devices."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lodestar import _private
from lodestar.embedding.table_parts import TablePart, by_id
from lodestar.ops import (
    embedding_ops,
    embedding_partition_ops,
    id_hash,
    lost_gradients,
)
from lodestar.ops.embedding_collection_ops import FeatureAttrs, FeatureInputs

# A PartitionedEmbeddingVariable, which is built on this module.
Table = Any


def look_up(
    tables: Sequence[Table],
    features: Sequence[FeatureAttrs],
    inputs: Sequence[FeatureInputs],
    *,
    insert: bool,
    count: bool,
    admit: bool | None = None,
) -> list[tf.Tensor]:
    """As `embedding_collection_ops.collection_lookup`, of such tables.

    Each distinct id of a table is sent once, to the device of its row.
    """
    hooks, _, missing = zip(*(t.collection_inputs() for t in tables))
    unique_ids, positions = embedding_partition_ops.unique_features(
        features, inputs, len(tables)
    )
    rows = [
        fetch(table, ids, kind, insert=insert, count=count, admit=admit)[0]
        for table, ids, kind in zip(tables, unique_ids, missing, strict=True)
    ]
    pooled = embedding_partition_ops.pool_features(
        hooks,
        rows,
        unique_ids,
        positions,
        features,
        inputs,
        _default_rows(tables, missing, features),
    )
    if (insert or count) and _private.tape_is_recording():
        looked_up = [
            tables[feature.table].hook_for_layer() for feature in features
        ]
        return [
            _noticed(result, hook) for result, hook in zip(pooled, looked_up)
        ]
    return pooled


def fetch(
    table: Table, ids: tf.Tensor, missing: str, **options: Any
) -> list[tf.Tensor]:
    """Rows `[N, dim]` of distinct `ids` `[N]`, and where only read, found.

    Args:
        table: Whose rows.
        ids: int64.
        missing: What ids without a row read.
        **options: insert, count and admit of `embedding_ops.find_or_insert`.
    """

    def of_part(part: TablePart, own: tf.Tensor) -> list[tf.Tensor]:
        hook, missing_row = part.lookup_inputs()
        inputs = (part.resource_handle, hook, own, missing_row)
        with part.on_device():
            if options.get("insert") or options.get("count"):
                rows = embedding_ops.find_or_insert(
                    *inputs, **options, missing=missing
                )
                return [rows]
            rows, found = embedding_ops.find(*inputs, missing=missing)
            return [rows, tf.cast(found, tf.int64)]

    return by_id(table.parts, ids, of_part)


def find(table: Table, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """As `EmbeddingVariable.find`, of ids of any shape."""
    hook, _, _ = table.collection_inputs()
    feature, inputs = FeatureAttrs(), FeatureInputs(ids, None, None)
    unique_ids, positions = embedding_partition_ops.unique_features(
        [feature], [inputs], 1
    )
    rows, found = fetch(table, unique_ids[0], "zeros")
    (result,) = embedding_partition_ops.pool_features(
        [hook], [rows], unique_ids, positions, [feature], [inputs]
    )
    found = tf.gather(tf.cast(found, tf.bool), positions[0])
    return result, tf.reshape(found, tf.shape(ids))


def _table_id(feature: FeatureAttrs, value: int) -> int:
    if feature.salt is None:
        return value
    return id_hash.mix64(value ^ feature.salt)


def _default_rows(
    tables: Sequence[Table],
    missing: Sequence[str],
    features: Sequence[FeatureAttrs],
) -> list[tf.Tensor]:
    """The row `[dim]` of the default id of each feature that has one."""
    rows = []
    for feature in features:
        if feature.default_id is not None:
            table, kind = tables[feature.table], missing[feature.table]
            default_id = _table_id(feature, feature.default_id)
            ids = tf.constant([default_id], tf.int64)
            rows.append(fetch(table, ids, kind)[0][0])
    return rows


def _noticed(rows: tf.Tensor, hook: Any) -> tf.Tensor:
    """`rows`, whose gradient says that it comes to the look-up."""

    @tf.custom_gradient
    def identity(rows: tf.Tensor) -> Any:
        def gradient(grad: Any) -> Any:
            lost_gradients.reach_hooks([hook])
            return grad

        return tf.identity(rows), gradient

    return identity(rows)
