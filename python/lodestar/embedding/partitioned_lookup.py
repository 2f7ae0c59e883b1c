"""Lookups in tables with rows on several devices."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from lodestar import _private
from lodestar.embedding import gpu_lookup, workers
from lodestar.embedding.table_parts import TablePart, by_id
from lodestar.ops import (
    embedding_ops,
    embedding_partition_ops,
    lost_gradients,
)
from lodestar.ops.embedding_collection_ops import FeatureAttrs, FeatureInputs
from lodestar.ops.stand_ins import replaceable

# A PartitionedEmbeddingVariable, which imports this module.
Table = Any


@replaceable
def lookup(
    tables: Sequence[Table],
    features: Sequence[FeatureAttrs],
    inputs: Sequence[FeatureInputs],
    *,
    insert: bool,
    count: bool,
    admit: bool | None = None,
    counters: tf.Tensor | None = None,
    gpu_counters: Mapping[str, tf.Tensor] | None = None,
) -> list[tf.Tensor]:
    """Looks up features, as `embedding_collection_ops.collection_lookup` does.

    GPUs pool the bags of the features that `gpu_lookup` accepts. For other
    tables, each unique id is sent once, to the device of its row. `counters` counts
    the latter; `gpu_counters` has the counters of each GPU.
    """
    options: dict[str, Any] = {"insert": insert, "count": count, "admit": admit}
    found: dict[int, tf.Tensor] = {}
    on_gpus = gpu_lookup.taken(tables, features)
    others = sorted({*range(len(features))} - {*on_gpus})
    for lookup_some, own, some_counters in (
        (gpu_lookup.lookup, on_gpus, gpu_counters),
        (_fetch_and_pool, others, counters),
    ):
        if own:
            used = sorted({features[f].table for f in own})
            rows = lookup_some(
                [tables[t] for t in used],
                [
                    features[f]._replace(table=used.index(features[f].table))
                    for f in own
                ],
                [inputs[f] for f in own],
                counters=some_counters,
                **options,
            )
            found.update(zip(own, rows, strict=True))
    results = [found[f] for f in range(len(features))]
    if _private.tape_may_record():
        return [
            _noticed(result, tables[feature.table], insert or count)
            for result, feature in zip(results, features, strict=True)
        ]
    return results


def _fetch_and_pool(
    tables: Sequence[Table],
    features: Sequence[FeatureAttrs],
    inputs: Sequence[FeatureInputs],
    *,
    insert: bool,
    count: bool,
    admit: bool | None,
    counters: tf.Tensor | None,
) -> list[tf.Tensor]:
    hooks, _, missing = zip(*(t.collection_inputs() for t in tables))
    with embedding_ops.on_cpu_in_graphs():
        unique_ids, positions = embedding_partition_ops.unique_features(
            features, inputs, len(tables)
        )
    rows, resident = [], []
    for table, ids, where, kind in zip(
        tables, unique_ids, positions, missing, strict=True
    ):
        if insert or count:
            occurrences = None
            if table.counts_occurrences:
                occurrences = embedding_partition_ops.occurrences(ids, where)
            options = {"insert": insert, "count": count, "admit": admit}
            found = _make(table, ids, kind, occurrences, **options)
        else:
            found = _read(table, ids, kind)
        rows.append(found[0])
        resident.append(found[1])
    if counters is not None:
        embedding_partition_ops.count_features(
            counters, positions, resident, features, inputs
        )
    return embedding_partition_ops.pool_features(
        hooks,
        rows,
        unique_ids,
        positions,
        features,
        inputs,
        _default_rows(tables, missing, features),
    )


def _by_id(table: Table, ids: tf.Tensor, of_part: Any) -> list[tf.Tensor]:
    if table.workers is None:
        return by_id(table.parts, ids, of_part)
    return workers.by_id(table, ids, of_part)


def _read(table: Table, ids: tf.Tensor, missing: str) -> list[tf.Tensor]:
    """Returns rows `[N, dim]` of unique ids `[N]`, and whether each id has one."""

    def of_part(part: TablePart, own: tf.Tensor) -> Sequence[tf.Tensor]:
        hook, missing_row = part.lookup_inputs()
        with part.on_device():
            return embedding_ops.find(
                part.resource_handle, hook, own, missing_row, missing=missing
            )

    return _by_id(table, ids, of_part)


def _make(
    table: Table,
    ids: tf.Tensor,
    missing: str,
    occurrences: tf.Tensor | None,
    **options: Any,
) -> list[tf.Tensor]:
    """As `_read`, adding rows; the second result is from before that."""
    of_parts: dict[int, tf.Tensor] = {}
    if occurrences is not None:
        divided = embedding_partition_ops.partition_rows(
            ids, occurrences, len(table.parts)
        )
        of_parts = {
            id(part): own
            for part, (_, own) in zip(table.parts, divided, strict=True)
        }

    def of_part(part: TablePart, own: tf.Tensor) -> Sequence[tf.Tensor]:
        _, missing_row = part.lookup_inputs()
        with part.on_device():
            return embedding_ops.find_or_insert_unique(
                part.resource_handle,
                own,
                missing_row,
                missing=missing,
                occurrences=of_parts.get(id(part)),
                **options,
            )

    return _by_id(table, ids, of_part)


@replaceable
def find(table: Table, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """As `EmbeddingVariable.find`, for ids of any shape."""
    hook, _, _ = table.collection_inputs()
    feature, inputs = FeatureAttrs(), FeatureInputs(ids)
    unique_ids, positions = embedding_partition_ops.unique_features(
        [feature], [inputs], 1
    )
    rows, found = _read(table, unique_ids[0], "zeros")
    (result,) = embedding_partition_ops.pool_features(
        [hook], [rows], unique_ids, positions, [feature], [inputs]
    )
    found = tf.gather(found, positions[0])
    return result, tf.reshape(found, tf.shape(ids))


def _default_rows(
    tables: Sequence[Table],
    missing: Sequence[str],
    features: Sequence[FeatureAttrs],
) -> list[tf.Tensor]:
    """Returns the row `[dim]` of the default id of each feature with one."""
    rows = []
    for feature in features:
        if feature.default_id is not None:
            table, kind = tables[feature.table], missing[feature.table]
            default_id = feature.table_id(feature.default_id)
            ids = tf.constant([default_id], tf.int64)
            rows.append(_read(table, ids, kind)[0][0])
    return rows


def _noticed(rows: tf.Tensor, table: Any, trains: bool) -> tf.Tensor:
    """Returns `rows`, recording that a gradient reaches the lookup."""

    @tf.custom_gradient
    def identity(rows: tf.Tensor) -> Any:
        def gradient(grad: Any) -> Any:
            lost_gradients.reach_tables([table], trains)
            return grad

        return tf.identity(rows), gradient

    return identity(rows)
