"""Replaces lookups of a model's tables while it is traced."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lodestar.embedding import bags as bags_lib
from lodestar.embedding import partitioned_lookup
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.export.plain import pooling
from lodestar.export.plain.embedding_table import EmbeddingTable
from lodestar.ops import embedding_collection_ops as collection_ops
from lodestar.ops import embedding_ops, id_hash
from lodestar.ops.embedding_collection_ops import FeatureAttrs, FeatureInputs


class PlainTables:
    """Copies of all tables that the model reads; see `EmbeddingTable`."""

    def __init__(
        self,
        tables: Mapping[str, EmbeddingVariable],
        index: str,
        dtype: str | None,
    ):
        self._tables = dict(tables)
        self.modules = {
            name: EmbeddingTable(table, index, dtype)
            for name, table in tables.items()
        }

    def functions(self) -> dict[Callable[..., Any], Callable[..., Any]]:
        """Returns op -> replacement for `ops.stand_ins.stand_ins`."""
        return {
            embedding_ops.find: self._find,
            collection_ops.collection_lookup: self._collection_lookup,
            partitioned_lookup.find: self._partitioned_find,
            partitioned_lookup.lookup: self._partitioned_lookup,
        }

    def _of(self, handle: tf.Tensor) -> EmbeddingTable:
        for name, table in self._tables.items():
            if any(part.resource_handle is handle for part in table._parts):
                return self.modules[name]
        raise ValueError(
            "The model reads a table that is not an attribute of a layer. Make "
            "it one, so that it is saved with the model."
        )

    def _find(
        self,
        handle: tf.Tensor,
        hook: tf.Tensor,
        ids: tf.Tensor,
        missing_row: tf.Tensor,
        *,
        missing: str = "zeros",
        padding_id: int | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return self._of(handle).find(ids, missing_row, missing, padding_id)

    def _partitioned_find(
        self, table: EmbeddingVariable, ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        (handle, hook, missing_row, _) = _inputs_of(table)
        return self._find(handle, hook, ids, missing_row)

    def _partitioned_lookup(
        self,
        tables: Sequence[EmbeddingVariable],
        features: Sequence[FeatureAttrs],
        inputs: Sequence[FeatureInputs],
        **training: Any,
    ) -> list[tf.Tensor]:
        handles, hooks, missing_rows, missing = zip(*map(_inputs_of, tables))
        return self._collection_lookup(
            handles, hooks, missing_rows, missing, features, inputs
        )

    def _collection_lookup(
        self,
        handles: Sequence[tf.Tensor],
        hooks: Sequence[tf.Tensor],
        missing_rows: Sequence[tf.Tensor],
        missing: Sequence[str],
        features: Sequence[FeatureAttrs],
        inputs: Sequence[FeatureInputs],
        **training: Any,
    ) -> list[tf.Tensor]:
        rows = []
        for feature, batch in zip(features, inputs, strict=True):
            find = functools.partial(
                self._of(handles[feature.table]).find,
                missing_row=missing_rows[feature.table],
                missing=missing[feature.table],
            )
            feature, batch = _without_salt(feature, _cut(feature, batch))
            if feature.combiner is None:
                found, _ = find(batch.ids, padding_id=feature.padding_id)
                rows.append(found)
                continue
            bags = _bags(batch)
            pooled = pooling.pool(
                lambda ids, find=find: find(ids, padding_id=None)[0],  # type: ignore[misc]
                *bags[:3],
                feature.combiner,
                feature.padding_id,
                feature.default_id,
            )
            rows.append(bags.restore(pooled))
        return rows


def _inputs_of(
    table: EmbeddingVariable,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, str]:
    """Returns the inputs of a lookup in a table without `devices`."""
    hook, missing_row, missing = table._collection_inputs()
    return table._parts[0].resource_handle, hook, missing_row, missing


def _cut(feature: FeatureAttrs, batch: FeatureInputs) -> FeatureInputs:
    """Returns `batch` with bags cut to max_length."""
    limit = feature.max_length
    if limit is None:
        return batch
    ids, row_splits, weights = batch
    if row_splits is None:
        if weights is not None:
            weights = weights[..., :limit]
        return FeatureInputs(ids[..., :limit], None, weights)

    def cut(values: tf.Tensor) -> tf.RaggedTensor:
        ragged = tf.RaggedTensor.from_row_splits(values, row_splits)
        return ragged[:, :limit]

    if weights is not None:
        weights = cut(weights).values
    ragged = cut(ids)
    return FeatureInputs(ragged.values, ragged.row_splits, weights)


def _without_salt(
    feature: FeatureAttrs, batch: FeatureInputs
) -> tuple[FeatureAttrs, FeatureInputs]:
    """Replaces ids by the salted ids of the table."""
    salt = feature.salt
    if salt is None:
        return feature, batch

    def table_id(value: int | None) -> int | None:
        return None if value is None else id_hash.mix64(value ^ salt)

    feature = feature._replace(
        salt=None,
        padding_id=table_id(feature.padding_id),
        default_id=table_id(feature.default_id),
    )
    ids = id_hash.mixed(tf.bitwise.bitwise_xor(batch.ids, salt))
    return feature, batch._replace(ids=ids)


def _bags(batch: FeatureInputs) -> bags_lib.Bags:
    ids, row_splits, weights = batch
    if row_splits is None:
        return bags_lib.to_bags(ids, weights)
    return bags_lib.Bags(ids, row_splits, weights, lambda pooled: pooled)
