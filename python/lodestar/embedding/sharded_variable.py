"""Base class of tables with rows on several devices or workers."""

import warnings
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from lodestar.embedding import partitioned_lookup, policies, table_parts
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.ops.embedding_collection_ops import FeatureAttrs, FeatureInputs


class ShardedEmbeddingVariable(EmbeddingVariable):
    """An EmbeddingVariable whose lookups fetch rows from other places."""

    @property
    def _counts_occurrences(self) -> bool:
        """Whether repeated ids in a lookup count repeatedly."""
        return bool(self._attributes().get("count_occurrences"))

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> EmbeddingVariable:
        return EmbeddingVariable.from_config(config)

    def _lookup(
        self, feature: FeatureAttrs, inputs: FeatureInputs, **options: Any
    ) -> tf.Tensor:
        (rows,) = partitioned_lookup.lookup(
            [self], [feature], [inputs], **options
        )
        return rows

    def _find(self, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return partitioned_lookup.find(self, ids)

    def _divided(
        self, saved: Mapping[str, Any], count: int, mode: str
    ) -> list[dict[str, tf.Tensor]]:
        """Returns the saved content of each of `count` parts."""
        of_parts = table_parts.divided(saved, count)
        for policy in self._eviction if mode == "replace" else ():
            if isinstance(policy, policies.MaxRows):
                of_parts = self._within(policy, of_parts)
        return of_parts

    def _within(
        self, cap: policies.MaxRows, saved: list[dict[str, tf.Tensor]]
    ) -> list[dict[str, tf.Tensor]]:
        sizes = [tf.size(part["ids"]) for part in saved]
        # The op refuses more rows than the cap, as without `devices`.
        fits = tf.add_n(sizes) <= cap.n
        kept = [
            table_parts.within(
                tf.where(fits, own.n, size), cap.policy == "lfu", part
            )
            for (own,), size, part in zip(
                table_parts.shares([cap], len(saved)), sizes, saved
            )
        ]
        left_out = tf.add_n(sizes) - tf.add_n([tf.size(k["ids"]) for k in kept])
        if tf.executing_eagerly() and int(left_out):
            warnings.warn(
                f"{self!r} leaves out {int(left_out)} of {int(sum(sizes))} rows: "
                f"each part has room for its share of {cap!r}.",
                stacklevel=2,
            )
        return kept
