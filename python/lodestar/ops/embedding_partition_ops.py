"""Lookups in tables with rows in several places.

A lookup deduplicates ids (`unique_features`), divides them among the parts of the
table (`partition`, by `id_hash.part_of_id`), fetches a row for each, restores the
order of the ids (`assemble`), and pools the rows (`pool_features`).
`embedding_collection_ops.collection_lookup` does the same for a local table.
"""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.ops import embedding_collection_ops as collection_ops

# Inputs of a pooling op with one item per table.
_TABLES_INPUTS = ("hooks", "rows", "unique_ids", "positions")


def unique_features(
    features: Sequence[collection_ops.FeatureAttrs],
    inputs: Sequence[collection_ops.FeatureInputs],
    num_tables: int,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Deduplicates the ids that F features read from T tables.

    Returns T unique_ids, int64 `[U]`, salted and without padding in order of first
    occurrence, and T positions, int64: the index there of each id of the table's
    features, -1 for padding, without ids beyond max_length.
    """
    unique = gen_ops.lodestar_embedding_collection_unique(
        T=num_tables,
        **collection_ops.batch_arguments(
            features, [x._replace(weights=None) for x in inputs]
        ),
    )
    return unique.unique_ids, unique.positions


def occurrences(unique_ids: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """Returns how often each unique id of a table is in the batch, int64 `[U]`."""
    return tf.math.unsorted_segment_sum(  # drops -1
        tf.ones_like(positions), positions, tf.size(unique_ids)
    )


def count_features(
    counters: tf.Tensor,
    positions: Sequence[tf.Tensor],
    resident: Sequence[tf.Tensor],
    features: Sequence[collection_ops.FeatureAttrs],
    inputs: Sequence[collection_ops.FeatureInputs],
) -> tf.Operation | None:
    """Counts the lookups of features in a resource, as `collection_lookup` does.

    `resident` has T bool `[U]`, whether each unique id had a row before.
    """
    return gen_ops.lodestar_embedding_collection_count(
        counters,
        positions,
        resident,
        **collection_ops.batch_arguments(
            features, [x._replace(weights=None) for x in inputs]
        ),
    )


def pool_features(
    hooks: Sequence[tf.Tensor],
    rows: Sequence[tf.Tensor],
    unique_ids: Sequence[tf.Tensor],
    positions: Sequence[tf.Tensor],
    features: Sequence[collection_ops.FeatureAttrs],
    inputs: Sequence[collection_ops.FeatureInputs],
    default_rows: Sequence[tf.Tensor] = (),
    device: str = "CPU",
) -> list[tf.Tensor]:
    """Pools the rows `[U, D]` of unique ids; bitwise equal to a lookup of these rows.

    Differentiable in hooks `[0, D]`, with `tf.IndexedSlices` over unique_ids, and in
    weights. default_rows has the row `[D]` of an empty bag for each feature with a
    default_id.
    """
    with tf.device(device):
        return gen_ops.lodestar_embedding_collection_pool(
            rows=rows,
            unique_ids=unique_ids,
            positions=positions,
            default_rows=default_rows,
            **collection_ops.lookup_arguments(features, inputs, hooks),
        ).pooled


def partition_bags(
    features: Sequence[collection_ops.FeatureAttrs],
    inputs: Sequence[collection_ops.FeatureInputs],
    num_parts: int,
) -> list[list[collection_ops.FeatureInputs]]:
    """Divides bags of each feature among the P parts of its table, with salted ids.

    The weighted sums of the parts add up to the pooled row. Padding is in the
    first part. Differentiable in weights. Features need a combiner other than
    max and no default_id.
    """
    shared = gen_ops.lodestar_embedding_collection_partition_bags(
        T=1 + max(f.table for f in features),
        N=len(features) * num_parts,
        num_parts=num_parts,
        **collection_ops.batch_arguments(features, inputs),
    )
    of_parts = [
        collection_ops.FeatureInputs(*share)
        for share in zip(
            shared.part_ids,
            shared.part_row_splits,
            shared.part_factors,
            strict=True,
        )
    ]
    return [
        of_parts[first : first + num_parts]
        for first in range(0, len(of_parts), num_parts)
    ]


@tf.RegisterGradient("Lodestar>EmbeddingCollectionPartitionBags")
def _partition_bags_gradient(
    op: tf.Operation, *grads: tf.Tensor
) -> list[tf.Tensor | None]:
    attrs = collection_ops.feature_attrs(op)
    num_parts, num_shares = op.get_attr("num_parts"), op.get_attr("N")
    inputs = collection_ops.named_inputs(op, attrs)
    places = op.outputs[3 * num_shares :]
    factor_grads = grads[2 * num_shares : 3 * num_shares]
    result: list[tf.Tensor | None] = [None] * len(op.inputs)
    at = len(op.inputs) - len(inputs["weights"])
    for feature in collection_ops.features_of(attrs, inputs):
        if feature.weights is None:
            continue
        # A factor's gradient is the dot product of the row and the bag's
        # gradient. The zero at the end is for ids without a place.
        f = feature.place
        along = tf.concat(
            [*factor_grads[f * num_parts : (f + 1) * num_parts], [0.0]], 0
        )
        last = tf.size(along, tf.int64) - 1
        result[at] = collection_ops.weights_gradient(
            feature,
            tf.gather(along, tf.where(places[f] >= 0, places[f], last)),
            feature.bags(),
        )
        at += 1
    return result


def partition(
    ids: tf.Tensor, num_parts: int
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Divides ids `[N]` among the P parts of a table.

    Returns P int64 `[N_p]` in the order of `ids`, and places, int64 `[N]`: the index of
    each id in the concatenated parts.
    """
    parts, places = gen_ops.lodestar_embedding_partition(
        ids, num_parts=num_parts
    )
    return parts, places


def partition_rows(
    ids: tf.Tensor, rows: tf.Tensor, num_parts: int, device: str = "CPU"
) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Divides ids `[N]` with rows `[N, ...]` among parts; differentiable in rows.

    On a GPU rows must be float32.
    """
    with tf.device(device):
        shared = gen_ops.lodestar_embedding_partition_rows(
            ids, rows, num_parts=num_parts
        )
    return list(zip(shared.part_ids, shared.part_rows, strict=True))


def assemble(
    rows: Sequence[tf.Tensor], places: tf.Tensor, device: str = "CPU"
) -> tf.Tensor:
    """Returns `tf.gather(tf.concat(rows, 0), places)`, on the CPU with one copy.

    It reverts `partition` and is differentiable in rows.
    """
    with tf.device(device):
        if device != "CPU":
            return tf.gather(tf.concat(rows, 0), places)
        return gen_ops.lodestar_embedding_assemble(rows, places)


@tf.RegisterGradient("Lodestar>EmbeddingAssemble")
def _assemble_gradient(
    op: tf.Operation, grad: tf.Tensor
) -> list[tf.Tensor | None]:
    *rows, places = op.inputs
    sizes = tf.stack([tf.shape(x, tf.int64)[0] for x in rows])
    sums = tf.math.unsorted_segment_sum(
        tf.convert_to_tensor(grad), places, tf.reduce_sum(sizes)
    )
    return [*tf.split(sums, sizes), None]


@tf.RegisterGradient("Lodestar>EmbeddingPartitionRows")
def _partition_rows_gradient(
    op: tf.Operation, *grads: tf.Tensor
) -> tuple[None, tf.Tensor]:
    num_parts = op.get_attr("num_parts")
    rows = [tf.convert_to_tensor(x) for x in grads[num_parts : 2 * num_parts]]
    return None, assemble(rows, op.outputs[-1])


@tf.RegisterGradient("Lodestar>EmbeddingCollectionPool")
def _pool_gradient(
    op: tf.Operation, *grads: tf.Tensor
) -> list[tf.Tensor | tf.IndexedSlices | None]:
    attrs = collection_ops.feature_attrs(op)
    tables, features = op.get_attr("T"), len(attrs["names"])
    inputs = collection_ops.named_inputs(op, attrs, *_TABLES_INPUTS)
    gradients = list(grads[:features])
    result = [None] * len(op.inputs)
    result[:tables] = collection_ops.hook_gradients(
        op,
        attrs,
        gradients,
        inputs,
        {**inputs, "winners": list(op.outputs[features:])},
    )
    positions = functools.cache(lambda: _positions_of_features(attrs, inputs))

    def rows_of(feature: collection_ops.FeatureOfOp, _: tf.Tensor) -> tf.Tensor:
        table = feature.attrs["tables"]
        *_, left = feature.bags()
        # Zeros first, for padding and ids beyond max_length.
        rows = tf.pad(inputs["rows"][table], [[1, 0], [0, 0]])
        places = tf.scatter_nd(
            tf.where(left),
            positions()[feature.place] + 1,
            tf.shape(left, tf.int64),
        )
        return tf.gather(rows, places)

    collection_ops.put_weight_gradients(
        op,
        result,
        4 * tables + features + len(inputs["row_splits"]),
        attrs,
        inputs,
        gradients,
        rows_of,
    )
    return result


def _positions_of_features(
    attrs: dict[str, Any], inputs: dict[str, Any]
) -> list[tf.Tensor]:
    """Returns the slice of its table's positions for each feature."""
    begins: dict[int, tf.Tensor] = {}
    result = []
    for feature in collection_ops.features_of(attrs, inputs):
        table = feature.attrs["tables"]
        count = tf.size(feature.ids, tf.int64)
        if feature.attrs["combiners"]:
            *_, left = feature.bags()
            count = tf.reduce_sum(tf.cast(left, tf.int64))
        begin = begins.get(table, 0)
        begins[table] = begin + count
        result.append(inputs["positions"][table][begin : begins[table]])
    return result
