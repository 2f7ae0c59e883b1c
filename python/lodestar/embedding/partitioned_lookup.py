"""Lookups in tables with rows on several devices."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from lodestar import _private
from lodestar.embedding import gpu_lookup, table_parts, workers
from lodestar.embedding.devices import on_gpu
from lodestar.embedding.table_parts import Call, TablePart
from lodestar.ops import (
    embedding_ops,
    embedding_partition_ops,
    lost_gradients,
)
from lodestar.ops.embedding_collection_ops import FeatureAttrs, FeatureInputs
from lodestar.ops.stand_ins import replaceable

# An EmbeddingVariable, which imports this module.
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

    `gpu_lookup` pools bags where the rows are, for the features that it accepts. For
    other tables, each unique id is sent once, to the device of its row, and one
    device pools the rows. `counters` counts the latter; `gpu_counters` has the
    counters of each GPU.
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
                _of_tables([features[f] for f in own], used),
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


def _of_tables(
    features: Sequence[FeatureAttrs], used: Sequence[int]
) -> list[FeatureAttrs]:
    """Returns the features with the index of their table in `used`."""
    return [x._replace(table=used.index(x.table)) for x in features]


def _pooling_device(table: Table, number: int) -> str:
    """Returns the device that pools the rows of a table: the CPU, or one of its GPUs.

    `number` divides tables evenly among the GPUs.
    """
    devices = [part.device for part in table._parts]
    if table._workers is not None or not all(map(on_gpu, devices)):
        return "CPU"
    return devices[number % len(devices)]


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
    hooks, _, missing = zip(*(t._collection_inputs() for t in tables))
    with embedding_ops.on_cpu_in_graphs():
        unique_ids, positions = embedding_partition_ops.unique_features(
            features, inputs, len(tables)
        )
    devices = [_pooling_device(table, t) for t, table in enumerate(tables)]
    calls = []
    for table, ids, where, kind, device in zip(
        tables, unique_ids, positions, missing, devices, strict=True
    ):
        occurrences = None
        by_occurrence = getattr(table.admission, "unit", None) == "occurrence"
        if by_occurrence and (insert or count):
            occurrences = embedding_partition_ops.occurrences(ids, where)
        options: Any = {"insert": insert, "count": count, "admit": admit}
        calls.append(_call(table, ids, kind, device, occurrences, **options))
    rows, resident = zip(*_by_id(calls), strict=True)
    if counters is not None:
        embedding_partition_ops.count_features(
            counters, positions, resident, features, inputs
        )
    pooled: dict[int, tf.Tensor] = {}
    for device in dict.fromkeys(devices):
        used = [t for t, other in enumerate(devices) if other == device]
        own = [f for f, x in enumerate(features) if x.table in used]
        chosen = _of_tables([features[f] for f in own], used)
        results = embedding_partition_ops.pool_features(
            [hooks[t] for t in used],
            [rows[t] for t in used],
            [unique_ids[t] for t in used],
            [positions[t] for t in used],
            chosen,
            [inputs[f] for f in own],
            _default_rows(
                [tables[t] for t in used],
                [missing[t] for t in used],
                chosen,
                device,
            ),
            device,
        )
        pooled.update(zip(own, results, strict=True))
    return [pooled[f] for f in range(len(features))]


def _by_id(calls: Sequence[Call]) -> list[list[tf.Tensor]]:
    """Returns the results of functions in the order of their ids."""
    of_workers = [c for c in calls if c.table._workers is not None]
    if not of_workers:
        return table_parts.by_id(calls)
    if len(of_workers) < len(calls):
        return [rows for call in calls for rows in _by_id([call])]
    return workers.by_id(calls)


def _call(
    table: Table,
    ids: tf.Tensor,
    missing: str,
    device: str,
    occurrences: tf.Tensor | None = None,
    *,
    insert: bool = False,
    count: bool = False,
    admit: bool | None = None,
) -> Call:
    """Returns a call that looks unique ids `[N]` up, which may add rows.

    It returns rows `[N, dim]`, and whether each id had one before.
    """

    def of_part(
        part: TablePart, own: tf.Tensor, occurrences: tf.Tensor | None = None
    ) -> Sequence[tf.Tensor]:
        hook, missing_row = part.lookup_inputs()
        handle = part.resource_handle
        with part.on_device():
            if not (insert or count):
                return embedding_ops.find(
                    handle, hook, own, missing_row, missing=missing
                )
            rows, found = embedding_ops.find_or_insert_unique(
                *(handle, own, missing_row),
                missing=missing,
                occurrences=occurrences,
                insert=insert,
                count=count,
                admit=admit,
            )
        rows.set_shape([None, table.output_dim])
        return rows, found

    columns = () if occurrences is None else (occurrences,)
    return Call(table, ids, of_part, device, columns)


@replaceable
def find(table: Table, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """As `EmbeddingVariable.find`, for ids of any shape."""
    hook, _, _ = table._collection_inputs()
    feature, inputs = FeatureAttrs(), FeatureInputs(ids)
    unique_ids, positions = embedding_partition_ops.unique_features(
        [feature], [inputs], 1
    )
    device = _pooling_device(table, 0)
    [(rows, found)] = _by_id([_call(table, unique_ids[0], "zeros", device)])
    (result,) = embedding_partition_ops.pool_features(
        [hook],
        [rows],
        unique_ids,
        positions,
        [feature],
        [inputs],
        device=device,
    )
    found = tf.gather(found, positions[0])
    return result, tf.reshape(found, tf.shape(ids))


def _default_rows(
    tables: Sequence[Table],
    missing: Sequence[str],
    features: Sequence[FeatureAttrs],
    device: str,
) -> list[tf.Tensor]:
    """Returns the row `[dim]` of the default id of each feature with one."""
    rows = []
    for feature in features:
        if feature.default_id is not None:
            table, kind = tables[feature.table], missing[feature.table]
            default_id = feature.table_id(feature.default_id)
            ids = tf.constant([default_id], tf.int64)
            [(found, _)] = _by_id([_call(table, ids, kind, device)])
            with tf.device(device):
                rows.append(found[0])
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
