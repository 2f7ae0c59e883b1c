"""Lookups in tables on GPUs, which pool bags where the rows are.

Each GPU runs one op for all features and receives its ids in one block. A table
on one GPU pools bags there. With several GPUs, each pools its share of a bag and
the shares are added. Features that read one row per id, such as one-hot slots,
get each row from the one GPU that holds it. Other features of tables over several
GPUs are pooled by `partitioned_lookup`, on one of them.
"""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from lodestar.embedding.devices import on_gpu
from lodestar.embedding.table_parts import TablePart
from lodestar.ops import (
    embedding_collection_ops,
    embedding_partition_ops,
    id_hash,
)
from lodestar.ops.embedding_collection_ops import FeatureAttrs, FeatureInputs

# An EmbeddingVariable.
Table = Any


def taken(
    tables: Sequence[Table], features: Sequence[FeatureAttrs]
) -> list[int]:
    """Returns the indices of the features that are pooled where the rows are.

    All features of a table take the same path, so that its ids are deduplicated once.
    """
    others = {
        feature.table
        for feature in features
        if not _takes(tables[feature.table], feature)
    }
    return [f for f, x in enumerate(features) if x.table not in others]


def _takes(table: Table, feature: FeatureAttrs) -> bool:
    """Whether `feature` is pooled by the GPUs that store its rows.

    With several GPUs, the shares of a bag must add up. That excludes max, the row
    of an empty bag, and single rows of a bag, because another row may be infinite.
    """
    if table._workers is not None:
        return False
    if not all(on_gpu(part.device) for part in table._parts):
        return False
    if len(table._parts) == 1:
        return True
    if feature.default_id is not None:
        return False
    return feature.combiner in (None, "sum", "mean", "sqrtn")


def features_by_device(
    tables: Sequence[Table], features: Sequence[FeatureAttrs]
) -> dict[str, list[int]]:
    """Returns the indices of the features that each GPU looks up, in order."""
    places: dict[str, list[int]] = {}
    for f in taken(tables, features):
        for part in tables[features[f].table]._parts:
            places.setdefault(part.device, []).append(f)
    return places


def lookup(
    tables: Sequence[Table],
    features: Sequence[FeatureAttrs],
    inputs: Sequence[FeatureInputs],
    *,
    insert: bool,
    count: bool,
    admit: bool | None = None,
    counters: Mapping[str, tf.Tensor] | None = None,
) -> list[tf.Tensor]:
    """As `embedding_collection_ops.collection_lookup`, for features that are `taken`.

    `counters` maps each device to a scalar resource on it, which counts the features of
    `features_by_device`.
    """
    divided = _divide(tables, features, inputs)
    calls: dict[str, _Call] = {}
    for f, feature in enumerate(features):
        table = tables[feature.table]
        for part, share in zip(table._parts, divided[f], strict=True):
            call = calls.setdefault(part.device, _Call())
            call.add(table, part, *share)
    of_tables = {id(table): table._collection_inputs() for table in tables}
    results: dict[str, list[tf.Tensor]] = {}
    for device, call in calls.items():
        options: dict[str, Any] = {
            "insert": insert,
            "count": count,
            "admit": admit,
            "counters": None if counters is None else counters[device],
        }
        with tf.device(device):
            results[device] = call.run(of_tables, options)
    found = []
    for f, feature in enumerate(features):
        shares = [
            results[part.device].pop(0) for part in tables[feature.table]._parts
        ]
        found.append(_joined(feature, inputs[f], shares, divided[f].places))
    return found


class _Shares(list[tuple[FeatureAttrs, FeatureInputs]]):
    """The lookups in each part of a feature's table.

    Attributes:
        places: int64 `[N]`, the index of each id's row in the concatenated rows
            of all parts; None if the rows of the parts are added up.
    """

    places: tf.Tensor | None = None


class _Call:
    """A lookup on one GPU."""

    def __init__(self) -> None:
        self._parts: dict[int, tuple[Table, TablePart]] = {}
        self.features: list[FeatureAttrs] = []
        self.inputs: list[FeatureInputs] = []

    def add(
        self,
        table: Table,
        part: TablePart,
        feature: FeatureAttrs,
        inputs: FeatureInputs,
    ) -> None:
        self._parts.setdefault(id(part), (table, part))
        place = list(self._parts).index(id(part))
        self.features.append(feature._replace(table=place))
        self.inputs.append(inputs)

    def run(
        self, of_tables: Mapping[int, Any], options: dict[str, Any]
    ) -> list[tf.Tensor]:
        tables = list(self._parts.values())
        found = [of_tables[id(table)] for table, _ in tables]
        return embedding_collection_ops.collection_lookup(
            [part.resource_handle for _, part in tables],
            [hook for hook, _, _ in found],
            [part.lookup_inputs()[1] for _, part in tables],
            [missing for _, _, missing in found],
            self.features,
            self.inputs,
            **options,
        )


def _divide(
    tables: Sequence[Table],
    features: Sequence[FeatureAttrs],
    inputs: Sequence[FeatureInputs],
) -> list[_Shares]:
    """Returns the shares of each feature."""
    divided = []
    bags = collections.defaultdict(list)  # by the number of parts
    for f, (feature, batch) in enumerate(zip(features, inputs, strict=True)):
        num_parts = len(tables[feature.table]._parts)
        shares = _Shares()
        if num_parts == 1:
            shares.append((feature, batch))
        elif feature.combiner is None or _is_one_hot(batch):
            shares = _rows_of_parts(feature, batch, num_parts)
        else:
            bags[num_parts].append(f)
        divided.append(shares)
    for num_parts, places in bags.items():
        of_features = embedding_partition_ops.partition_bags(
            [features[f] for f in places],
            [inputs[f] for f in places],
            num_parts,
        )
        for f, of_parts in zip(places, of_features, strict=True):
            share = FeatureAttrs(
                name=features[f].name,
                combiner="sum",
                padding_id=features[f].table_id(features[f].padding_id),
            )
            divided[f].extend((share, own) for own in of_parts)
    return divided


def _is_one_hot(batch: FeatureInputs) -> bool:
    """Whether every bag is known to have exactly one id."""
    return (
        batch.row_splits is None
        and batch.weights is None
        and batch.ids.shape.rank is not None
        and batch.ids.shape.rank > 0
        and batch.ids.shape[-1] == 1
    )


def _rows_of_parts(
    feature: FeatureAttrs, batch: FeatureInputs, num_parts: int
) -> _Shares:
    ids = tf.reshape(batch.ids, [-1])
    if feature.salt is not None:
        ids = id_hash.mixed(tf.bitwise.bitwise_xor(ids, feature.salt))
    of_parts, places = embedding_partition_ops.partition(ids, num_parts)
    share = FeatureAttrs(
        name=feature.name, padding_id=feature.table_id(feature.padding_id)
    )
    shares = _Shares((share, FeatureInputs(own)) for own in of_parts)
    shares.places = places
    return shares


def _joined(
    feature: FeatureAttrs,
    batch: FeatureInputs,
    shares: Sequence[tf.Tensor],
    places: tf.Tensor | None,
) -> tf.Tensor:
    """Combines the rows of a feature from the rows of each part."""
    if len(shares) == 1:
        return shares[0]
    rows = (
        tf.add_n(shares)
        if places is None
        else _permuted(tf.concat(shares, 0), places)
    )
    if batch.row_splits is not None:
        return rows
    static = (
        batch.ids.shape if feature.combiner is None else batch.ids.shape[:-1]
    )
    lead = tf.shape(batch.ids)
    if feature.combiner is not None:
        lead = lead[:-1]
    rows = tf.reshape(rows, tf.concat([lead, [rows.shape[-1]]], 0))
    return tf.ensure_shape(rows, static.concatenate(rows.shape[-1:]))


@tf.custom_gradient
def _permuted(rows: tf.Tensor, places: tf.Tensor) -> Any:
    """Returns rows[places], where `places` is a permutation."""

    def gradient(grad: tf.Tensor) -> tuple[tf.Tensor, None]:
        shape = tf.shape(grad, tf.int64)
        return tf.scatter_nd(places[:, None], grad, shape), None

    return tf.gather(rows, places), gradient
