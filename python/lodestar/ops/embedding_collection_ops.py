"""The lookup of bags, and of many features at once, and its gradient.

The gradient with respect to a table's hook is one `tf.IndexedSlices` over the
ids of all its features, made as `lodestar.ops.embedding_ops` says.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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

    def table_id(self, value: int | None) -> int | None:
        """The id under which the table knows `value`."""
        if value is None or self.salt is None:
            return value
        return id_hash.mix64(value ^ self.salt)


class FeatureInputs(NamedTuple):
    """A batch of a feature.

    Attributes:
        ids: int64 `[N]` with row_splits, else any shape.
        row_splits: int64 `[B + 1]`, or None: with a combiner the last axis of
            ids is pooled, without one each id gets its row.
        weights: float32, shaped as ids, or None.
    """

    ids: tf.Tensor
    row_splits: tf.Tensor | None = None
    weights: tf.Tensor | None = None


def batch_arguments(
    features: Sequence[FeatureAttrs], inputs: Sequence[FeatureInputs]
) -> dict[str, Any]:
    """What each op of a collection takes of its features."""
    return {
        "ids": [x.ids for x in inputs],
        "row_splits": [
            x.row_splits for x in inputs if x.row_splits is not None
        ],
        "weights": [x.weights for x in inputs if x.weights is not None],
        "names": [f.name for f in features],
        "tables": [f.table for f in features],
        "combiners": [f.combiner or "" for f in features],
        "ragged": [x.row_splits is not None for x in inputs],
        "weighted": [x.weights is not None for x in inputs],
        "salted": [f.salt is not None for f in features],
        "salts": [f.salt or 0 for f in features],
        "use_padding": [f.padding_id is not None for f in features],
        "padding_ids": [f.padding_id or 0 for f in features],
        "use_default": [f.default_id is not None for f in features],
        "default_ids": [f.default_id or 0 for f in features],
        "max_lengths": [f.max_length or 0 for f in features],
    }


def num_max(features: Sequence[FeatureAttrs]) -> int:
    """How many features have winners."""
    return sum(f.combiner == "max" for f in features)


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
        counters=[] if counters is None else [counters],
        **batch_arguments(features, inputs),
        M=num_max(features),
        feature_dtypes=[hooks[f.table].dtype for f in features],
        missing=missing,
        insert=insert,
        count=count,
        admit=embedding_ops.ADMIT[admit],
    ).rows


def feature_attrs(op: tf.Operation) -> dict[str, Any]:
    """The attributes of an op of a collection that say what its features are."""
    return {name: op.get_attr(name) for name in _FEATURE_ATTRS}


def split(
    tensors: Sequence[tf.Tensor], lengths: dict[str, int]
) -> dict[str, Any]:
    """Inputs or outputs of an op, list by list."""
    left = iter(tensors)
    return {
        name: list(itertools.islice(left, length))
        for name, length in lengths.items()
    }


def batch_lengths(attrs: dict[str, Any]) -> dict[str, int]:
    """How many inputs the features of an op with such attributes have."""
    return {
        "ids": len(attrs["names"]),
        "row_splits": sum(attrs["ragged"]),
        "weights": sum(attrs["weighted"]),
    }


def hook_gradients(
    attrs: dict[str, Any],
    gradients: Sequence[tf.Tensor],
    inputs: dict[str, Any],
    uniques: dict[str, Any],
    *,
    deduplicated: bool = True,
) -> list[tf.IndexedSlices]:
    """The gradients of all hooks.

    Args:
        attrs: `feature_attrs` of the op.
        gradients: Those of the features' rows.
        inputs: The op's hooks, ids, row_splits and weights.
        uniques: Its unique_ids, positions and winners.
        deduplicated: False: it made no ids distinct.
    """
    dims = [hook.shape[1] for hook in inputs["hooks"]]
    with embedding_ops.beside(uniques["unique_ids"][0]):
        sums = gen_ops.lodestar_embedding_collection_gradient(
            gradients=gradients,
            **{name: inputs[name] for name in ("ids", "row_splits", "weights")},
            **{
                name: uniques[name]
                for name in ("unique_ids", "positions", "winners")
            },
            dims=dims,
            table_dtypes=[hook.dtype for hook in inputs["hooks"]],
            deduplicated=deduplicated,
            **attrs,
        )
    return [
        embedding_ops.table_gradient(values, ids, dim)
        for values, ids, dim in zip(
            sums.sums, sums.summed_ids, dims, strict=True
        )
    ]


def wants_weights(op: tf.Operation, first: int, count: int) -> bool:
    """Whether a backward pass wants gradients of inputs [first, first + count)."""
    unwanted = set(getattr(op, "skip_input_indices", None) or ())
    return not unwanted.issuperset(range(first, first + count))


@tf.RegisterGradient("Lodestar>EmbeddingCollectionLookup")
def _lookup_gradient(
    op: tf.Operation, *grads: tf.Tensor
) -> list[tf.Tensor | tf.IndexedSlices | None]:
    attrs = feature_attrs(op)
    tables, features = len(op.get_attr("missing")), len(attrs["names"])
    inputs = split(
        op.inputs,
        {
            "handles": tables,
            "hooks": tables,
            "missing_rows": tables,
            **batch_lengths(attrs),
        },
    )
    outputs = split(
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
    result = [None] * len(op.inputs)
    result[tables : 2 * tables] = hook_gradients(
        attrs,
        gradients,
        inputs,
        outputs,
        deduplicated=op.get_attr("insert") or op.get_attr("count"),
    )
    weighted = len(inputs["weights"])
    first = 3 * tables + features + len(inputs["row_splits"])
    if wants_weights(op, first, weighted):
        with embedding_ops.beside(op.outputs[0]):
            result[first : first + weighted] = (
                gen_ops.lodestar_embedding_collection_weights_gradient(
                    **inputs,
                    gradients=gradients,
                    missing=op.get_attr("missing"),
                    **attrs,
                )
            )
    return result


@tf.RegisterGradient("Lodestar>EmbeddingCollectionWeightsGradient")
def _weights_gradient_gradient(
    op: tf.Operation, *grads: tf.Tensor
) -> list[tf.Tensor | tf.IndexedSlices | None]:
    attrs = feature_attrs(op)
    missing = op.get_attr("missing")
    tables = len(missing)
    inputs = split(
        op.inputs,
        {
            "handles": tables,
            "hooks": tables,
            "missing_rows": tables,
            "gradients": len(attrs["names"]),
            **batch_lengths(attrs),
        },
    )

    def find(f: int, ids: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
        table = attrs["tables"][f]
        rows, _ = embedding_ops.find(
            inputs["handles"][table],
            inputs["hooks"][table],
            ids,
            inputs["missing_rows"][table],
            missing=missing[table].decode(),
        )
        return rows

    return weights_gradient_gradient(op, attrs, inputs, grads, find)


def weights_gradient_gradient(
    op: tf.Operation,
    attrs: dict[str, Any],
    inputs: dict[str, Any],
    grads: Sequence[tf.Tensor],
    find: Callable[[int, tf.Tensor, tf.Tensor], tf.Tensor],
) -> list[tf.Tensor | tf.IndexedSlices | None]:
    """Of the gradient of weights by plain TensorFlow ops, as of a lookup in one table.

    Args:
        op: The op that makes it.
        attrs: `feature_attrs` of the op.
        inputs: Its gradients, ids, row_splits and weights.
        grads: Those of the gradients of the weights.
        find: A feature, its ids `[N]` as the table knows them and which of
            them max_length leaves, bool `[N]` -> rows `[N, D]`.

    Returns:
        One for each input of the op.
    """
    with tf.GradientTape() as tape:
        tape.watch([x for x in op.inputs if x.dtype.is_floating])
        results, splits = [], iter(inputs["row_splits"])
        weights = iter(inputs["weights"])
        for f, is_ragged in enumerate(attrs["ragged"]):
            row_splits = next(splits) if is_ragged else None
            if attrs["weighted"][f]:
                results.append(
                    _feature_weights_gradient(
                        {name: values[f] for name, values in attrs.items()},
                        functools.partial(find, f),
                        grad=inputs["gradients"][f],
                        ids=inputs["ids"][f],
                        row_splits=row_splits,
                        weights=next(weights),
                    )
                )
    return tape.gradient(results, list(op.inputs), output_gradients=grads)


def bags_of(
    ids: tf.Tensor, row_splits: tf.Tensor | None, max_length: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Of ids `[N]`, pooled: how many bags, the bag of each, and which are left.

    Args:
        ids: Of any shape, if without row_splits.
        row_splits: As in `FeatureInputs`.
        max_length: Ids of a bag after these are left out; 0: none.
    """
    shape = tf.shape(ids, tf.int64)
    if row_splits is None:
        row_splits = tf.range(tf.reduce_prod(shape[:-1]) + 1) * shape[-1]
    lengths = row_splits[1:] - row_splits[:-1]
    bags = tf.repeat(tf.range(tf.size(lengths)), lengths)
    left = tf.ones_like(bags, tf.bool)
    if max_length > 0:
        places = tf.range(tf.size(ids, tf.int64))
        places -= tf.gather(row_splits[:-1], bags)
        left = places < max_length
    return tf.size(lengths), bags, left


def _feature_weights_gradient(
    attrs: dict[str, Any],
    find: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    *,
    grad: tf.Tensor,
    ids: tf.Tensor,
    row_splits: tf.Tensor | None,
    weights: tf.Tensor,
) -> tf.Tensor:
    num_bags, bags, left = bags_of(ids, row_splits, attrs["max_lengths"])
    table_ids = tf.reshape(ids, [-1])
    if attrs["salted"]:
        table_ids = id_hash.mixed(
            tf.bitwise.bitwise_xor(table_ids, attrs["salts"])
        )
    rows = find(table_ids, left)
    dtype = tf.float64 if rows.dtype == tf.float64 else tf.float32
    grad = tf.reshape(tf.cast(grad, dtype), [-1, tf.shape(rows)[1]])
    along = tf.reduce_sum(tf.gather(grad, bags) * tf.cast(rows, dtype), axis=1)
    return weights_gradient(
        attrs, along, ids=ids, weights=weights, bags=(num_bags, bags, left)
    )


def weights_gradient(
    attrs: dict[str, Any],
    along: tf.Tensor,
    *,
    ids: tf.Tensor,
    weights: tf.Tensor,
    bags: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
) -> tf.Tensor:
    """The gradient of a feature's weights by plain TensorFlow ops.

    Args:
        attrs: The feature's.
        along: float32 or float64 `[N]`, the gradient of each id's bag times its
            row.
        ids: Before salting.
        weights: Shaped as `ids`.
        bags: `bags_of` the feature.
    """
    num_bags, bag_of_id, counted = bags
    if attrs["use_padding"]:
        counted &= tf.not_equal(tf.reshape(ids, [-1]), attrs["padding_ids"])
    counted = tf.cast(counted, along.dtype)
    factors = tf.cast(tf.reshape(weights, [-1]), along.dtype)
    used = factors * counted

    def summed(x: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(x, bag_of_id, num_bags)

    combiner = attrs["combiners"].decode()
    if combiner == "sum":
        result = along
    else:
        mean = combiner == "mean"
        total = summed(used if mean else used**2)
        by = total if mean else tf.sqrt(total)
        along_pooled = tf.math.divide_no_nan(summed(used * along), by)
        along_pooled = tf.gather(along_pooled, bag_of_id)
        total = tf.gather(total, bag_of_id)
        if mean:  # y = sum(w x) / W: dy/dw = (x - y) / W
            result = tf.math.divide_no_nan(along - along_pooled, total)
        else:  # y = sum(w x) / S, S^2 = sum(w^2): dy/dw = x / S - y w / S^2
            result = tf.math.divide_no_nan(
                along, tf.sqrt(total)
            ) - tf.math.divide_no_nan(along_pooled * factors, total)
    result = tf.cast(result * counted, weights.dtype)
    return tf.reshape(result, tf.shape(weights))
