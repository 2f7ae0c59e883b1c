"""One feature of an EmbeddingCollection."""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from lodestar.embedding import bags as bags_lib
from lodestar.embedding import ids as ids_lib
from lodestar.embedding.embedding_variable import (
    EmbeddingVariable,
    check_combiner,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Feature:
    """How an EmbeddingCollection reads one feature.

    Attributes:
        table: The EmbeddingVariable; may serve several features.
        combiner: `"sum"`, `"mean"`, `"sqrtn"`, `"max"`, `"first"`, `"last"`
            over the innermost axis of the ids; None gives each id's row.
        salt: Text that keeps this feature's ids apart from those of others on
            the same table: id' = mix64(id xor hash(salt)) is what it holds.
        padding_id: An id, before salting, that stands for no id.
        default_id: With a combiner: the id, before salting, whose row an empty
            bag reads; None: zeros.
        max_length: Ids after the first `max_length` of a bag are left out.

    Raises:
        ValueError: An argument is not one of the above.
    """

    table: EmbeddingVariable
    combiner: str | None = "mean"
    salt: str | None = None
    padding_id: int | None = None
    default_id: int | None = None
    max_length: int | None = None

    def __post_init__(self):
        if not isinstance(self.table, EmbeddingVariable):
            raise ValueError(
                f"`table` is a {type(self.table).__name__}, wanted a "
                "lodestar.EmbeddingVariable."
            )
        check_combiner(self.combiner)
        if self.default_id is not None and self.combiner is None:
            raise ValueError(
                f"`default_id`={self.default_id} needs a combiner: it is what "
                "an empty bag reads."
            )
        if self.max_length is not None and self.max_length < 1:
            raise ValueError(f"`max_length`={self.max_length} is not positive.")

    def table_id(self, value: int | None) -> int | None:
        """The id under which the table knows `value`."""
        if value is None or self.salt is None:
            return value
        return ids_lib.salted_id(value, self.salt)

    def table_ids(self, ids: ids_lib.IdTensor) -> ids_lib.IdTensor:
        """The ids under which the table knows `ids`; strings are hashed."""
        ids = ids_lib.to_int64(ids, strings=True)
        if self.salt is None:
            return ids
        return ids_lib.map_flat(
            lambda flat: ids_lib.salted(flat, self.salt), ids
        )

    def truncate(self, ids: ids_lib.IdTensor) -> ids_lib.IdTensor:
        """Cuts the innermost axis at `max_length`, but for sparse ids."""
        if self.max_length is None or isinstance(ids, tf.SparseTensor):
            return ids
        axes = [slice(None)] * (ids.shape.rank - 1)
        return ids[(*axes, slice(self.max_length))]

    def truncate_bags(self, bags: bags_lib.Bags) -> bags_lib.Bags:
        """Cuts each bag at `max_length`."""
        if self.max_length is None:
            return bags
        splits = bags.row_splits
        lengths = splits[1:] - splits[:-1]
        position = tf.range(tf.size(bags.ids, tf.int64)) - tf.repeat(
            splits[:-1], lengths
        )
        kept = position < self.max_length
        lengths = tf.minimum(lengths, self.max_length)
        weights = bags.weights
        return bags._replace(
            ids=tf.boolean_mask(bags.ids, kept),
            row_splits=tf.concat([[0], tf.cumsum(lengths)], 0),
            weights=None if weights is None else weights[kept],
        )


def serialize_table(table: EmbeddingVariable) -> dict[str, Any]:
    """The Keras config of `table`, the same table in every layer of a file.

    Keras marks an object that it serializes twice, but only in the dicts it
    still holds, and a layer's config is copied on the way into the file. So
    every config of a table carries the mark from the start.
    """
    config = keras.saving.serialize_keras_object(table)
    return {**config, "shared_object_id": id(table)}
