"""What tables have in common whose rows lie in several places."""

from typing import Any

import tensorflow as tf

from lodestar.embedding import ids as ids_lib
from lodestar.embedding import partitioned_lookup
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.ops import embedding_collection_ops as collection_ops
from lodestar.ops.flat_values import flat_values, map_flat


class SpreadEmbeddingVariable(EmbeddingVariable):
    """An EmbeddingVariable whose look-ups fetch rows from where they lie."""

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> EmbeddingVariable:
        return EmbeddingVariable(**config)

    def _look_up(
        self,
        feature: collection_ops.FeatureAttrs,
        inputs: collection_ops.FeatureInputs,
        **options: Any,
    ) -> tf.Tensor:
        (rows,) = partitioned_lookup.look_up(
            [self], [feature], [inputs], **options
        )
        return rows

    def find(self, ids: Any) -> tuple[Any, Any]:
        """As that of EmbeddingVariable; among workers, of all together."""
        ids = ids_lib.to_int64(ids)
        if isinstance(ids, tf.SparseTensor):
            raise ValueError("`ids` is sparse; `find` takes dense or ragged.")
        rows, found = partitioned_lookup.find(self, flat_values(ids))
        return map_flat(lambda _: rows, ids), map_flat(lambda _: found, ids)
