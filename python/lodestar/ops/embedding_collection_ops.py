"""The look-up of bags, and of many features at once, and its gradient.

The gradient with respect to a table's hook is one `tf.IndexedSlices` over the
ids of all its features, made as `lodestar.ops.embedding_ops` says.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.ops import embedding_ops, id_hash, lost_gradients
from lodestar.ops.stand_ins import replaceable

# What each feature is, in all ops of a collection.
_FEATURE_ATTRS = (
    "names",
    "tables",
    "combiners",
    "ragged",
    "weighted",
    "salted",
    "salts",
    "use_padding",
    "padding_ids",
    "use_default",
    "default_ids",
    "max_lengths",
)


class FeatureAttrs(NamedTuple):
    """What the op knows of a feature; ids are before salting.

    Attributes:
        name: For errors, if not empty.
        table: Place of its table.
        combiner: One of `embedding_ops.COMBINERS`, or None. mean = sum(w x) /
            sum(w) and sqrtn = sum(w x) / sqrt(sum w^2).
        salt: A word: the table knows id as mix64(id xor salt); None: as id.
        padding_id: An id that stands for no id, or None.
        default_id: The id whose row an empty bag reads, or None.
        max_length: Ids of a bag after these are left out; None: none.
    """

    name: str = ""
    table: int = 0
    combiner: str | None = None
    salt: int | None = None
    padding_id: int | None = None
    default_id: int | None = None
    max_length: int | None = None


class FeatureInputs(NamedTuple):
    """A batch of a feature.

    Attributes:
        ids: int64 `[N]` with row_splits, else any shape.
        row_splits: int64 `[B + 1]`, or None: with a combiner the last axis of
            ids is pooled, without one each id gets its row.
        weights: float32, shaped as ids, or None.
    """

    ids: tf.Tensor
    row_splits: tf.Tensor | None
    weights: tf.Tensor | None


@replaceable
def collection_lookup(
    handles: Sequence[tf.Tensor],
    hooks: Sequence[tf.Tensor],
    missing_rows: Sequence[tf.Tensor],
    missing: Sequence[str],
    features: Sequence[FeatureAttrs],
    inputs: Sequence[FeatureInputs],
    *,
    insert: bool,
    count: bool,
    admit: bool | None = None,
    counters: tf.Tensor | None = None,
) -> list[tf.Tensor]:
    """Looks up all features; differentiable in hooks and weights.

    Args:
        handles: T scalar resources, embedding variables.
        hooks: T `[0, D]`, each of its table's dtype.
        missing_rows: T `[D]`, as the hooks, where missing is `"vector"`, else
            `[0]`.
        missing: T of `embedding_ops.MISSING`.
        features: F features.
        inputs: F batches.
        insert: Whether an unseen id gets a row.
        count: Whether frequencies and last-seen steps are written.
        admit: As in `embedding_ops.find_or_insert`.
        counters: Scalar resource that counts what was looked up, or None.

    Returns:
        F tensors of the tables' dtypes: the shape of the ids + `[D]`, with a combiner
        without their last axis; `[B, D]` with row_splits.
    """
    return gen_ops.lodestar_embedding_collection_lookup(
        handles=handles,
        hooks=hooks,
        missing_rows=missing_rows,
        ids=[x.ids for x in inputs],
        row_splits=[x.row_splits for x in inputs if x.row_splits is not None],
        weights=[x.weights for x in inputs if x.weights is not None],
        counters=[] if counters is None else [counters],
        names=[f.name for f in features],
        tables=[f.table for f in features],
        combiners=[f.combiner or "" for f in features],
        ragged=[x.row_splits is not None for x in inputs],
        weighted=[x.weights is not None for x in inputs],
        salted=[f.salt is not None for f in features],
        salts=[f.salt or 0 for f in features],
        use_padding=[f.padding_id is not None for f in features],
        padding_ids=[f.padding_id or 0 for f in features],
        use_default=[f.default_id is not None for f in features],
        default_ids=[f.default_id or 0 for f in features],
        max_lengths=[f.max_length or 0 for f in features],
        M=sum(f.combiner == "max" for f in features),
        feature_dtypes=[hooks[f.table].dtype for f in features],
        missing=missing,
        insert=insert,
        count=count,
        admit=embedding_ops.ADMIT[admit],
    ).rows


def _split(
    tensors: Sequence[tf.Tensor], lengths: dict[str, int]
) -> dict[str, list[tf.Tensor]]:
    """Inputs or outputs of an op, list by list."""
    left = iter(tensors)
    return {
        name: list(itertools.islice(left, length))
        for name, length in lengths.items()
    }


@tf.RegisterGradient("Lodestar>EmbeddingCollectionLookup")
def _lookup_gradient(
    op: tf.Operation, *grads: tf.Tensor
) -> list[tf.Tensor | tf.IndexedSlices | None]:
    attrs = {name: op.get_attr(name) for name in _FEATURE_ATTRS}
    tables, features = len(op.get_attr("missing")), len(attrs["names"])
    ragged, weighted = sum(attrs["ragged"]), sum(attrs["weighted"])
    inputs = _split(
        op.inputs,
        {
            "handles": tables,
            "hooks": tables,
            "missing_rows": tables,
            "ids": features,
            "row_splits": ragged,
            "weights": weighted,
        },
    )
    outputs = _split(
        op.outputs,
        {
            "rows": features,
            "unique_ids": tables,
            "positions": tables,
            "winners": len(op.outputs),  # what is left
        },
    )
    lost_gradients.reach(op, inputs["handles"])
    gradients = list(grads[:features])
    batch = {name: inputs[name] for name in ("ids", "row_splits", "weights")}
    dims = [hook.shape[1] for hook in inputs["hooks"]]
    dtypes = [hook.dtype for hook in inputs["hooks"]]
    sums = gen_ops.lodestar_embedding_collection_gradient(
        gradients=gradients,
        **batch,
        unique_ids=outputs["unique_ids"],
        positions=outputs["positions"],
        winners=outputs["winners"],
        dims=dims,
        table_dtypes=dtypes,
        deduplicated=op.get_attr("insert") or op.get_attr("count"),
        **attrs,
    )
    slices = [
        embedding_ops.table_gradient(values, ids, dim)
        for values, ids, dim in zip(
            sums.sums, sums.summed_ids, dims, strict=True
        )
    ]
    weight_gradients = [None] * weighted
    first = 3 * tables + features + ragged
    unwanted = set(getattr(op, "skip_input_indices", None) or ())
    if not unwanted.issuperset(range(first, first + weighted)):
        weight_gradients = (
            gen_ops.lodestar_embedding_collection_weights_gradient(
                handles=inputs["handles"],
                hooks=inputs["hooks"],
                missing_rows=inputs["missing_rows"],
                gradients=gradients,
                **batch,
                missing=op.get_attr("missing"),
                **attrs,
            )
        )
    result = [None] * len(op.inputs)
    result[len(slices) : 2 * len(slices)] = slices
    result[first : first + weighted] = weight_gradients
    return result


@tf.RegisterGradient("Lodestar>EmbeddingCollectionWeightsGradient")
def _weights_gradient_gradient(
    op: tf.Operation, *grads: tf.Tensor
) -> list[tf.Tensor | tf.IndexedSlices | None]:
    """Of the same by stock ops, as that of a look-up in one table."""
    tables, features = len(op.get_attr("missing")), len(op.get_attr("names"))
    ragged = op.get_attr("ragged")
    inputs = _split(
        op.inputs,
        {
            "handles": tables,
            "hooks": tables,
            "missing_rows": tables,
            "gradients": features,
            "ids": features,
            "row_splits": sum(ragged),
            "weights": len(grads),
        },
    )
    with tf.GradientTape() as tape:
        tape.watch([x for x in op.inputs if x.dtype.is_floating])
        results, splits = [], iter(inputs["row_splits"])
        weights = iter(inputs["weights"])
        for f, is_ragged in enumerate(ragged):
            row_splits = next(splits) if is_ragged else None
            if op.get_attr("weighted")[f]:
                table = op.get_attr("tables")[f]
                results.append(
                    _feature_weights_gradient(
                        op,
                        f,
                        inputs["handles"][table],
                        inputs["hooks"][table],
                        inputs["missing_rows"][table],
                        grad=inputs["gradients"][f],
                        ids=inputs["ids"][f],
                        row_splits=row_splits,
                        weights=next(weights),
                    )
                )
    return tape.gradient(results, list(op.inputs), output_gradients=grads)


def _feature_weights_gradient(
    op: tf.Operation,
    f: int,
    handle: tf.Tensor,
    hook: tf.Tensor,
    missing_row: tf.Tensor,
    *,
    grad: tf.Tensor,
    ids: tf.Tensor,
    row_splits: tf.Tensor | None,
    weights: tf.Tensor,
) -> tf.Tensor:
    attrs = {name: op.get_attr(name)[f] for name in _FEATURE_ATTRS}
    shape = tf.shape(ids, tf.int64)
    if row_splits is None:
        row_splits = tf.range(tf.reduce_prod(shape[:-1]) + 1) * shape[-1]
    ids, factors = tf.reshape(ids, [-1]), tf.reshape(weights, [-1])
    lengths = row_splits[1:] - row_splits[:-1]
    bags = tf.repeat(tf.range(tf.size(lengths)), lengths)
    counted = tf.ones_like(ids, tf.bool)
    if attrs["max_lengths"] > 0:
        positions = tf.range(tf.size(ids, tf.int64))
        positions -= tf.gather(row_splits[:-1], bags)
        counted &= positions < attrs["max_lengths"]
    if attrs["use_padding"]:
        counted &= tf.not_equal(ids, attrs["padding_ids"])
    if attrs["salted"]:
        ids = id_hash.mixed(tf.bitwise.bitwise_xor(ids, attrs["salts"]))
    missing = op.get_attr("missing")[attrs["tables"]].decode()
    rows, _ = embedding_ops.find(
        handle, hook, ids, missing_row, missing=missing
    )
    dtype = tf.float64 if rows.dtype == tf.float64 else tf.float32
    rows, factors = tf.cast(rows, dtype), tf.cast(factors, dtype)
    counted = tf.cast(counted, dtype)
    used = factors * counted
    grad = tf.reshape(tf.cast(grad, dtype), [-1, tf.shape(rows)[1]])
    grad = tf.gather(grad, bags)

    def summed(x: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(x, bags, tf.size(lengths))

    along_row = tf.reduce_sum(grad * rows, axis=1)
    combiner = attrs["combiners"].decode()
    if combiner == "sum":
        result = along_row
    else:
        mean = combiner == "mean"
        total = summed(used if mean else used**2)
        by = total if mean else tf.sqrt(total)
        pooled = summed(used[:, None] * rows)
        pooled = tf.math.divide_no_nan(pooled, by[:, None])
        along_pooled = tf.reduce_sum(grad * tf.gather(pooled, bags), axis=1)
        total = tf.gather(total, bags)
        if mean:  # y = sum(w x) / W: dy/dw = (x - y) / W
            result = tf.math.divide_no_nan(along_row - along_pooled, total)
        else:  # y = sum(w x) / S, S^2 = sum(w^2): dy/dw = x / S - y w / S^2
            result = tf.math.divide_no_nan(
                along_row, tf.sqrt(total)
            ) - tf.math.divide_no_nan(along_pooled * factors, total)
    result = tf.cast(result * counted, weights.dtype)
    return tf.reshape(result, tf.shape(weights))
