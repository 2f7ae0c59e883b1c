"""Lookups in tables whose rows lie in several places.

Whoever pools makes the ids distinct (`unique_features`), shares them out to the
parts of the table (`partition`), fetches a row for each, puts the rows in the
order of the ids again (`assemble`) and pools them (`pool_features`): what
`embedding_collection_ops.collection_lookup` does with a table that is here.
`id_hash.part_of_id` says which part an id is of.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.ops import embedding_collection_ops as collection_ops
from lodestar.ops import embedding_ops

# The lists of inputs of a pooling op that have one item a table.
_TABLES_INPUTS = ("hooks", "rows", "unique_ids", "positions")


def unique_features(
    features: Sequence[collection_ops.FeatureAttrs],
    inputs: Sequence[collection_ops.FeatureInputs],
    num_tables: int,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """The distinct ids that features read of their tables.

    Args:
        features: F features.
        inputs: F batches; their weights are not read.
        num_tables: T.

    Returns:
        unique_ids, T int64 `[U]`: in order of first occurrence, features in
        order, salted, without padding. positions, T int64: the index there of
        each id of the table's features, without those that max_length leaves
        out, -1 for padding.

    Raises:
        tf.errors.InvalidArgumentError: As in a lookup, naming the feature.
    """
    unique = gen_ops.lodestar_embedding_collection_unique(
        T=num_tables,
        **collection_ops.batch_arguments(
            features, [x._replace(weights=None) for x in inputs]
        ),
    )
    return unique.unique_ids, unique.positions


def occurrences(unique_ids: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """How often each distinct id of a table is in the batch.

    Args:
        unique_ids: int64 `[U]`, of one table, as `unique_features` gave them.
        positions: int64, likewise.

    Returns:
        int64 `[U]`, for `embedding_ops.find_or_insert_unique`.
    """
    return tf.math.unsorted_segment_sum(  # which drops -1
        tf.ones_like(positions), positions, tf.size(unique_ids)
    )


def count_features(
    counters: tf.Tensor,
    positions: Sequence[tf.Tensor],
    resident: Sequence[tf.Tensor],
    features: Sequence[collection_ops.FeatureAttrs],
    inputs: Sequence[collection_ops.FeatureInputs],
) -> tf.Operation | None:
    """Counts what was looked up, as `collection_lookup` does with counters.

    Args:
        counters: Scalar resource, of F features.
        positions: T int64, as `unique_features` gave them.
        resident: T bool `[U]`, whether each distinct id had a row before: as
            `embedding_ops.find_or_insert_unique` gives it.
        features: F features, those of `unique_features`.
        inputs: F batches, likewise.

    Returns:
        The op; None when called eagerly.

    Raises:
        tf.errors.InvalidArgumentError: The counters are of another number of
            features; a position is not in [-1, U).
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
) -> list[tf.Tensor]:
    """Rows of features, of those of distinct ids; differentiable in hooks and weights.

    Args:
        hooks: T `[0, D]`, each of its table's dtype. Their gradients are
            `tf.IndexedSlices` over unique_ids, as those of a lookup.
        rows: T `[U, D]` of the tables' dtypes, one for each of unique_ids; no
            gradient goes to them.
        unique_ids: T int64 `[U]`, as `unique_features` gave them.
        positions: T int64, likewise.
        features: F features, those of `unique_features`.
        inputs: F batches, likewise.
        default_rows: For each feature with a default_id, in order, the row
            `[D]` that an empty bag reads; no gradient goes to them.

    Returns:
        F tensors, to the bit what a lookup of such rows gives.

    Raises:
        tf.errors.InvalidArgumentError: As in a lookup, naming the feature; a
            shape does not fit; a position is not in [-1, U).
    """
    return gen_ops.lodestar_embedding_collection_pool(
        hooks=hooks,
        rows=rows,
        unique_ids=unique_ids,
        positions=positions,
        default_rows=default_rows,
        **collection_ops.batch_arguments(features, inputs),
        M=collection_ops.num_max(features),
        feature_dtypes=[hooks[f.table].dtype for f in features],
    ).pooled


def partition_bags(
    features: Sequence[collection_ops.FeatureAttrs],
    inputs: Sequence[collection_ops.FeatureInputs],
    num_parts: int,
) -> list[list[collection_ops.FeatureInputs]]:
    """Shares bags out to the parts of tables; differentiable in weights.

    Args:
        features: F features with a combiner other than max, and no default_id.
        inputs: F batches.
        num_parts: P, of each table.

    Returns:
        For each feature P batches of ids as the table knows them. Their sums,
        weighted, add up to what the feature reads; padding is in the first.

    Raises:
        tf.errors.InvalidArgumentError: As in a lookup, naming the feature.
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
    inputs = collection_ops.split(
        op.inputs, collection_ops.batch_lengths(attrs)
    )
    places = op.outputs[3 * num_shares :]
    factor_grads = grads[2 * num_shares : 3 * num_shares]
    result: list[tf.Tensor | None] = [None] * len(op.inputs)
    splits, weights = iter(inputs["row_splits"]), iter(inputs["weights"])
    at = len(op.inputs) - len(inputs["weights"])
    for f, is_ragged in enumerate(attrs["ragged"]):
        row_splits = next(splits) if is_ragged else None
        if not attrs["weighted"][f]:
            continue
        # One more, which what has no place reads. A factor's gradient is that
        # of the bag times the row.
        along = tf.concat(
            [*factor_grads[f * num_parts : (f + 1) * num_parts], [0.0]], 0
        )
        last = tf.size(along, tf.int64) - 1
        ids = inputs["ids"][f]
        result[at] = collection_ops.weights_gradient(
            {name: values[f] for name, values in attrs.items()},
            tf.gather(along, tf.where(places[f] >= 0, places[f], last)),
            ids=ids,
            weights=next(weights),
            bags=collection_ops.bags_of(
                ids, row_splits, attrs["max_lengths"][f]
            ),
        )
        at += 1
    return result


def partition(
    ids: tf.Tensor, num_parts: int
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Shares ids out to the parts of a table.

    Args:
        ids: int64 `[N]`.
        num_parts: P, at least 1.

    Returns:
        The ids of each part, P int64 `[N_p]` in the order of `ids`, and places,
        int64 `[N]`: the index of each id among those of all parts, one part
        after another. `assemble` takes them.
    """
    parts, places = gen_ops.lodestar_embedding_partition(
        ids, num_parts=num_parts
    )
    return parts, places


def partition_rows(
    ids: tf.Tensor, rows: tf.Tensor, num_parts: int
) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Shares ids out as `partition` does, each with its row.

    Args:
        ids: int64 `[N]`.
        rows: `[N, ...]`, of a floating dtype, int32, int64 or bool.
        num_parts: P, at least 1.

    Returns:
        P pairs of ids `[N_p]` and rows `[N_p, ...]`; differentiable in rows.
    """
    shared = gen_ops.lodestar_embedding_partition_rows(
        ids, rows, num_parts=num_parts
    )
    return list(zip(shared.part_ids, shared.part_rows, strict=True))


def assemble(rows: Sequence[tf.Tensor], places: tf.Tensor) -> tf.Tensor:
    """Rows of all parts in the order of the ids that were shared out.

    Args:
        rows: P `[N_p, ...]`, of one dtype: floating, int32, int64 or bool.
        places: int64 `[N]`, as `partition` gave them.

    Returns:
        `[N, ...]`: as `tf.gather(tf.concat(rows, 0), places)`, with one copy;
        differentiable in rows.
    """
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
    tables, features = len(op.get_attr("table_dtypes")), len(attrs["names"])
    inputs = collection_ops.split(
        op.inputs,
        {
            **dict.fromkeys(_TABLES_INPUTS, tables),
            **collection_ops.batch_lengths(attrs),
        },
    )
    gradients = list(grads[:features])
    result = [None] * len(op.inputs)
    result[:tables] = collection_ops.hook_gradients(
        attrs,
        gradients,
        inputs,
        {**inputs, "winners": list(op.outputs[features:])},
    )
    weighted = len(inputs["weights"])
    first = 4 * tables + features + len(inputs["row_splits"])
    if collection_ops.wants_weights(op, first, weighted):
        result[first : first + weighted] = (
            gen_ops.lodestar_embedding_collection_pool_weights_gradient(
                **inputs, gradients=gradients, **attrs
            )
        )
    return result


@tf.RegisterGradient("Lodestar>EmbeddingCollectionPoolWeightsGradient")
def _weights_gradient_gradient(
    op: tf.Operation, *grads: tf.Tensor
) -> list[tf.Tensor | tf.IndexedSlices | None]:
    attrs = collection_ops.feature_attrs(op)
    tables = len(op.get_attr("table_dtypes"))
    inputs = collection_ops.split(
        op.inputs,
        {
            **dict.fromkeys(_TABLES_INPUTS, tables),
            "gradients": len(attrs["names"]),
            **collection_ops.batch_lengths(attrs),
        },
    )
    positions = _positions_of_features(attrs, inputs)

    def find(f: int, _: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
        # Zeros first, which padding reads and what max_length leaves out.
        rows = inputs["rows"][attrs["tables"][f]]
        rows = tf.pad(rows, [[1, 0], [0, 0]])
        places = tf.scatter_nd(
            tf.where(left), positions[f] + 1, tf.shape(left, tf.int64)
        )
        return tf.gather(rows, places)

    result = collection_ops.weights_gradient_gradient(
        op, attrs, inputs, grads, find
    )
    for t in range(tables):
        rows_gradient, result[tables + t] = result[tables + t], None
        if rows_gradient is not None:
            result[t] = embedding_ops.table_gradient(
                tf.convert_to_tensor(rows_gradient),
                inputs["unique_ids"][t],
                inputs["hooks"][t].shape[1],
            )
    return result


def _positions_of_features(
    attrs: dict[str, Any], inputs: dict[str, Any]
) -> list[tf.Tensor]:
    """The positions of each feature, of those of its table."""
    splits = iter(inputs["row_splits"])
    begins: dict[int, tf.Tensor] = {}
    result = []
    for f, table in enumerate(attrs["tables"]):
        row_splits = next(splits) if attrs["ragged"][f] else None
        ids = inputs["ids"][f]
        count = tf.size(ids, tf.int64)
        if attrs["combiners"][f]:
            *_, left = collection_ops.bags_of(
                ids, row_splits, attrs["max_lengths"][f]
            )
            count = tf.reduce_sum(tf.cast(left, tf.int64))
        begin = begins.get(table, 0)
        begins[table] = begin + count
        result.append(inputs["positions"][table][begin : begins[table]])
    return result
