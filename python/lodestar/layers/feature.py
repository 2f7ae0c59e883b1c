"""One feature of an EmbeddingCollection."""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from lodestar import _private
from lodestar._checks import check_count, check_text, is_number
from lodestar._typing import AnyTensor
from lodestar.embedding import ids as ids_lib
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.embedding.lookup_arguments import check_bags
from lodestar.ops import id_hash


@dataclasses.dataclass(frozen=True, eq=False)
class Feature:
    """How an EmbeddingCollection reads one feature, and from which table.

    >>> lodestar.Feature(lodestar.EmbeddingVariable(16, name="item"), "mean")
    >>> lodestar.Feature(output_dim=16, combiner="mean")

    Attributes:
        table: The EmbeddingVariable, which may serve several features; or None
            with `output_dim`: the collection makes one of the feature's name,
            which is that of the feature in `collection.features`.
        combiner: `"sum"`, `"mean"`, `"sqrtn"`, `"max"`, `"first"`, `"last"`
            over the innermost axis of the ids; None: a row for each id.
        salt: Text that keeps this feature's ids apart from those of others on
            the same table: id' = mix64(id xor hash(salt)) is what it holds.
        padding_id: An id, before salting, that stands for no id.
        default_id: With a combiner: the id, before salting, whose row an empty
            bag reads; None: zeros.
        max_length: Ids after the first `max_length` of a bag are left out;
            without a combiner of the innermost axis, unless it is the only one.
        column: Strings are hashed with this name, as `lodestar.hash_ids` does.
        output_dim: Numbers in a row of a table of the feature's own.
        embeddings_initializer: With `output_dim`: as that of EmbeddingVariable.
        optimizer: With `output_dim`: as `optimizer` of EmbeddingVariable.
        devices: With `output_dim`: as `devices` of EmbeddingVariable.
        expected_rows: How many rows the table may come to have; with
            `expected_ids`, ids an example on average, what `devices` of
            EmbeddingCollection shares tables out by. Never a limit.
        expected_ids: See `expected_rows`.

    Raises:
        ValueError: An argument is not one of the above.
    """

    table: EmbeddingVariable | None = None
    combiner: str | None = None
    salt: str | None = None
    padding_id: int | None = None
    default_id: int | None = None
    max_length: int | None = None
    _: dataclasses.KW_ONLY
    column: str | None = None
    output_dim: int | None = None
    embeddings_initializer: Any = "uniform"
    optimizer: Any = None
    devices: Any = None
    expected_rows: float | None = None
    expected_ids: float | None = None

    def __post_init__(self) -> None:
        if (self.table is None) == (self.output_dim is None):
            raise ValueError(
                f"`table`={self.table!r} and `output_dim`={self.output_dim!r}: "
                "give exactly one of them."
            )
        if self.output_dim is not None:
            check_count("output_dim", self.output_dim)
        elif not isinstance(self.table, EmbeddingVariable):
            raise ValueError(
                f"`table` is a {type(self.table).__name__}, wanted a "
                "lodestar.EmbeddingVariable; `output_dim=` makes one."
            )
        elif (
            self.embeddings_initializer != "uniform"
            or self.optimizer is not None
            or self.devices is not None
        ):
            raise ValueError(
                "`embeddings_initializer`, `optimizer` or `devices` given beside "
                "`table`; they belong to the table: "
                "lodestar.EmbeddingVariable(output_dim, optimizer=...)."
            )
        check_bags(self.combiner, self.padding_id, self.default_id)
        for name in ("expected_rows", "expected_ids"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and value > 0):
                raise ValueError(f"`{name}`={value!r} is no positive number.")
        check_text("salt", self.salt)
        check_text("column", self.column)
        if self.max_length is not None:
            check_count("max_length", self.max_length)

    def with_table(self, name: str) -> "Feature":
        """This feature; where it has no table, with a new one of `name`."""
        if self.table is not None:
            return self
        assert self.output_dim is not None
        table = EmbeddingVariable(
            self.output_dim,
            embeddings_initializer=self.embeddings_initializer,
            optimizer=self.optimizer,
            devices=self.devices,
            name=name,
        )
        return dataclasses.replace(
            self,
            table=table,
            output_dim=None,
            embeddings_initializer="uniform",
            optimizer=None,
            devices=None,
        )

    def table_id(self, value: int | None) -> int | None:
        """The id under which the table knows `value`."""
        if value is None or self.salt is None:
            return value
        return id_hash.salted_id(value, self.salt)

    def to_ids(self, ids: Any, name: str = "ids") -> AnyTensor:
        """`ids`, which errors call `name`, as int64; strings are hashed."""
        return ids_lib.to_int64(
            ids, strings=True, column=self.column, name=name
        )

    def table_ids(self, ids: Any) -> AnyTensor:
        """The ids under which the table knows `ids`; strings are hashed."""
        return id_hash.salted(self.to_ids(ids), self.salt)

    @property
    def salt_word(self) -> int | None:
        """hash(salt), the 64 bits that ids are xored with, signed."""
        return None if self.salt is None else id_hash.stable_hash(self.salt)

    def truncate(self, ids: tf.Tensor | tf.RaggedTensor) -> Any:
        """Cuts the innermost axis at `max_length`, but never the batch.

        Raises:
            ValueError: The rank of `ids` is unknown.
        """
        if self.max_length is None:
            return ids
        rank = ids.shape.rank
        if rank is None:
            raise ValueError(
                f"`max_length`={self.max_length} without a combiner needs ids "
                f"of a known rank, but their shape is {ids.shape}."
            )
        if rank < 2:
            return ids
        return ids[(*[slice(None)] * (rank - 1), slice(self.max_length))]


def serialize_table(table: EmbeddingVariable) -> dict[str, Any]:
    """The Keras config of `table`, the same table in every layer of a file.

    Keras marks an object that it serializes twice, but only in the dicts it
    still holds, and a layer's config is copied on the way into the file. So
    every config of a table carries the mark from the start.
    """
    # Keras's own function would serialize the values of a variable.
    return {
        "module": type(table).__module__,
        "class_name": type(table).__name__,
        "config": table.get_config(),
        "registered_name": keras.saving.get_registered_name(type(table)),
        "shared_object_id": id(table),
    }


def deserialize_table(config: dict[str, Any]) -> EmbeddingVariable:
    """Returns the table of a config, one for all layers of a model.

    Keras itself shares marked objects only while it loads a file.
    """
    mark = config.get("shared_object_id")
    if mark is not None:
        for layer in _private.layers_made_together():
            for variable in layer.variables:
                if getattr(variable, "shared_object_id", None) == mark:
                    return variable
    table = keras.saving.deserialize_keras_object(config)
    table.shared_object_id = mark
    return table
