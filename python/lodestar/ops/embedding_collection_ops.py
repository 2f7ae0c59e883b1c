"""Lookups of bags and of many features at once, and their gradients.

The gradient of a table's hook is one `tf.IndexedSlices` over the ids of all its
features, in the form that `lodestar.ops.embedding_ops` describes.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.ops import embedding_ops, id_hash, lost_gradients
from lodestar.ops.stand_ins import replaceable

# Inputs of a lookup with one item per table.
_TABLES_INPUTS = ("handles", "hooks", "missing_rows")


class FeatureAttrs(NamedTuple):
    """The attributes of a feature, with ids before salting.

    Attributes:
        name: Used in errors unless empty.
        table: Index of its table.
        combiner: One of `embedding_ops.COMBINERS`, or None. mean = sum(w x) /
            sum(w) and sqrtn = sum(w x) / sqrt(sum w^2).
        salt: If given, the table uses mix64(id xor salt) as the id.
        padding_id: An id that means no id, or None.
        default_id: The id whose row replaces an empty bag, or None.
        max_length: Maximum number of ids of a bag, or None for no limit.
    """

    name: str = ""
    table: int = 0
    combiner: str | None = None
    salt: int | None = None
    padding_id: int | None = None
    default_id: int | None = None
    max_length: int | None = None

    def table_id(self, value: int | None) -> int | None:
        """Returns the id that the table uses for `value`."""
        if value is None or self.salt is None:
            return value
        return id_hash.mix64(value ^ self.salt)


class FeatureInputs(NamedTuple):
    """A batch of a feature.

    Attributes:
        ids: int64 `[N]` with row_splits, else any shape.
        row_splits: int64 `[B + 1]`. If None, a combiner pools the last axis of
            ids; without one, each id gets its row.
        weights: float32, shaped as ids, or None.
    """

    ids: tf.Tensor
    row_splits: tf.Tensor | None = None
    weights: tf.Tensor | None = None


def _feature_lists(
    features: Sequence[FeatureAttrs], inputs: Sequence[FeatureInputs]
) -> dict[str, Any]:
    """Returns the attributes of all collection ops, with one item per feature."""
    return {
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


def batch_arguments(
    features: Sequence[FeatureAttrs], inputs: Sequence[FeatureInputs]
) -> dict[str, Any]:
    """Returns the arguments of a collection op for its features."""
    return {
        "ids": [x.ids for x in inputs],
        "row_splits": [
            x.row_splits for x in inputs if x.row_splits is not None
        ],
        "weights": [x.weights for x in inputs if x.weights is not None],
        **_feature_lists(features, inputs),
    }


def lookup_arguments(
    features: Sequence[FeatureAttrs],
    inputs: Sequence[FeatureInputs],
    hooks: Sequence[tf.Tensor],
) -> dict[str, Any]:
    """Returns the arguments of a collection op that outputs rows and winners."""
    return {
        "hooks": hooks,
        **batch_arguments(features, inputs),
        "M": sum(f.combiner == "max" for f in features),
        "feature_dtypes": [hooks[f.table].dtype for f in features],
    }


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
    """Looks up F features in T tables; differentiable in hooks and weights.

    Args:
        handles: T scalar resources, embedding variables.
        hooks: T `[0, D]`, each of its table's dtype.
        missing_rows: T tensors of the hooks' dtypes, `[D]` if missing is
            `"vector"`, else `[0]`.
        missing: T of `embedding_ops.MISSING`.
        features: F features.
        inputs: F batches.
        insert: Whether a new id gets a row.
        count: Whether frequencies and last-seen steps are updated.
        admit: As in `embedding_ops.lookup_rows`.
        counters: Scalar resource that counts the lookups, or None.

    Returns:
        F tensors of the tables' dtypes and shape `ids.shape + [D]`, without the
        last axis of ids if there is a combiner; `[B, D]` with row_splits.
    """
    return gen_ops.lodestar_embedding_collection_lookup(
        handles=handles,
        missing_rows=missing_rows,
        counters=[] if counters is None else [counters],
        **lookup_arguments(features, inputs, hooks),
        missing=missing,
        insert=insert,
        count=count,
        admit=embedding_ops.ADMIT[admit],
    ).rows


def feature_attrs(op: tf.Operation) -> dict[str, Any]:
    """Returns the feature attributes of a collection op."""
    return {name: op.get_attr(name) for name in _feature_lists((), ())}


def _split(
    tensors: Sequence[tf.Tensor], lengths: dict[str, int]
) -> dict[str, Any]:
    """Splits the inputs or outputs of an op into named lists."""
    left = iter(tensors)
    return {
        name: list(itertools.islice(left, length))
        for name, length in lengths.items()
    }


def named_inputs(
    op: tf.Operation,
    attrs: dict[str, Any],
    *of_tables: str,
) -> dict[str, Any]:
    """Splits the inputs of a collection op into named lists.

    Args:
        op: The op. Inputs after the weights are left out.
        attrs: `feature_attrs` of the op.
        *of_tables: Names of its first inputs, with one item per table.
    """
    lengths = dict.fromkeys(of_tables, op.get_attr("T"))
    lengths["ids"] = len(attrs["names"])
    lengths["row_splits"] = sum(attrs["ragged"])
    lengths["weights"] = sum(attrs["weighted"])
    return _split(op.inputs, lengths)


class FeatureOfOp(NamedTuple):
    """A feature of an op: its place, attributes by name, and batch."""

    place: int
    attrs: dict[str, Any]
    ids: tf.Tensor
    row_splits: tf.Tensor | None
    weights: tf.Tensor | None

    def bags(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns `bags_of` the feature."""
        return bags_of(self.ids, self.row_splits, self.attrs["max_lengths"])


def features_of(
    attrs: dict[str, Any], inputs: dict[str, Any]
) -> Iterator[FeatureOfOp]:
    """Yields the features of an op with such attributes and inputs."""
    splits, weights = iter(inputs["row_splits"]), iter(inputs["weights"])
    for f, ids in enumerate(inputs["ids"]):
        of_feature = {name: values[f] for name, values in attrs.items()}
        yield FeatureOfOp(
            f,
            of_feature,
            ids,
            next(splits) if of_feature["ragged"] else None,
            next(weights) if of_feature["weighted"] else None,
        )


def hook_gradients(
    op: tf.Operation,
    attrs: dict[str, Any],
    gradients: Sequence[tf.Tensor],
    inputs: dict[str, Any],
    uniques: dict[str, Any],
    *,
    deduplicated: bool = True,
) -> list[tf.IndexedSlices]:
    """Returns the gradients of all hooks.

    Args:
        op: The op.
        attrs: `feature_attrs` of the op.
        gradients: Gradients of the features' rows.
        inputs: The op's hooks, ids, row_splits and weights.
        uniques: The op's unique_ids, positions and winners.
        deduplicated: Whether the op deduplicated its ids.
    """
    dims = [hook.shape[1] for hook in inputs["hooks"]]
    with embedding_ops.beside(op.outputs[0]):
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
    """Whether a backward pass needs the gradients of `count` inputs from `first`."""
    unwanted = set(getattr(op, "skip_input_indices", None) or ())
    return not unwanted.issuperset(range(first, first + count))


@tf.RegisterGradient("Lodestar>EmbeddingCollectionLookup")
def _lookup_gradient(
    op: tf.Operation, *grads: tf.Tensor
) -> list[tf.Tensor | tf.IndexedSlices | None]:
    attrs = feature_attrs(op)
    tables, features = op.get_attr("T"), len(attrs["names"])
    inputs = named_inputs(op, attrs, *_TABLES_INPUTS)
    outputs = _split(
        op.outputs,
        {
            "rows": features,
            "unique_ids": tables,
            "positions": tables,
            "winners": len(op.outputs),  # the rest
        },
    )
    lost_gradients.reach(op, inputs["handles"])
    gradients = list(grads[:features])
    result = [None] * len(op.inputs)
    result[tables : 2 * tables] = hook_gradients(
        op,
        attrs,
        gradients,
        inputs,
        outputs,
        deduplicated=op.get_attr("insert") or op.get_attr("count"),
    )
    missing = op.get_attr("missing")

    def rows_of(feature: FeatureOfOp, gradient: tf.Tensor) -> tf.Tensor:
        table = feature.attrs["tables"]
        ids = tf.reshape(feature.ids, [-1])
        if feature.attrs["salted"]:
            ids = id_hash.mixed(
                tf.bitwise.bitwise_xor(ids, feature.attrs["salts"])
            )
        return gen_ops.lodestar_embedding_find_for_gradient(
            inputs["handles"][table],
            inputs["hooks"][table],
            ids,
            inputs["missing_rows"][table],
            gradient,
            missing=missing[table],
        )

    first = 3 * tables + features + len(inputs["row_splits"])
    put_weight_gradients(op, result, first, attrs, inputs, gradients, rows_of)
    return result


def put_weight_gradients(
    op: tf.Operation,
    result: list[Any],
    first: int,
    attrs: dict[str, Any],
    inputs: dict[str, Any],
    gradients: Sequence[tf.Tensor],
    rows_of: Callable[[FeatureOfOp, tf.Tensor], tf.Tensor],
) -> None:
    """Puts the gradients of the weights of all features into `result`.

    Does nothing if no backward pass needs them. All ops are stateless, so that
    a graph can prune them. The weights are the inputs of `op` from `first` on.

    `rows_of` returns the rows `[N, D]` of a feature's ids; those of padding and
    of ids beyond max_length do not matter.
    """
    if not wants_weights(op, first, len(inputs["weights"])):
        return
    with embedding_ops.beside(op.outputs[0]):
        for feature in features_of(attrs, inputs):
            if feature.weights is None:
                continue
            bags = feature.bags()
            gradient = tf.convert_to_tensor(gradients[feature.place])
            rows = rows_of(feature, gradient)
            gradient = tf.reshape(
                tf.cast(gradient, tf.float32), [-1, tf.shape(rows)[1]]
            )
            along = tf.reduce_sum(
                tf.gather(gradient, bags[1]) * tf.cast(rows, tf.float32), axis=1
            )
            result[first] = weights_gradient(feature, along, bags)
            first += 1


def bags_of(
    ids: tf.Tensor, row_splits: tf.Tensor | None, max_length: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the number of bags, the bag of each id `[N]`, and whether it is used.

    A `max_length` of 0 means no limit.
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


def weights_gradient(
    feature: FeatureOfOp,
    along: tf.Tensor,
    bags: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
) -> tf.Tensor:
    """Returns the gradient of a feature's weights, with plain TensorFlow ops.

    `along` is float32 `[N]`, the dot product of each id's row with
    the gradient of its bag.
    """
    num_bags, bag_of_id, counted = bags
    attrs, weights = feature.attrs, feature.weights
    assert weights is not None
    if attrs["use_padding"]:
        ids = tf.reshape(feature.ids, [-1])
        counted &= tf.not_equal(ids, attrs["padding_ids"])
    # Rows and weights that do not count may be infinite.
    zero = tf.zeros([], along.dtype)
    along = tf.where(counted, along, zero)
    used = tf.cast(tf.reshape(weights, [-1]), along.dtype)
    used = tf.where(counted, used, zero)

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
            ) - tf.math.divide_no_nan(along_pooled * used, total)
    result = tf.cast(tf.where(counted, result, zero), weights.dtype)
    # Part of its gradient is that of the rows, which have none here.
    return tf.raw_ops.PreventGradient(
        input=tf.reshape(result, tf.shape(weights)),
        message="the gradient of `weights` of bags is not differentiable.",
    )
