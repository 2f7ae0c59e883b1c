"""One feature of an EmbeddingCollection."""

import dataclasses
import functools
import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import tensorflow as tf

from lodestar import _private
from lodestar._arguments import explained
from lodestar._checks import check_count, check_text, is_integer, is_number
from lodestar._reprs import short_repr
from lodestar._typing import AnyTensor, Combiner, OptimizerLike
from lodestar.embedding import ids as ids_lib
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.embedding.initializers import Initializer
from lodestar.embedding.lookup_arguments import (
    check_bags,
    check_dim,
    check_padding_counts,
)
from lodestar.ops import id_hash


@dataclasses.dataclass(frozen=True, eq=False, init=False, repr=False)
class Feature:
    """How an EmbeddingCollection reads one feature, and from which table.

    >>> lodestar.Feature(lodestar.EmbeddingVariable(16, name="item"), "mean")
    >>> lodestar.Feature(16, "mean")

    Attributes:
        table: EmbeddingVariable, which several features may share. Or
            `output_dim`, with which the collection creates a table named after
            the feature and sets it in `collection.features`.
        combiner: `"sum"`, `"mean"`, `"sqrtn"`, `"max"`, `"first"` or `"last"`
            over the innermost axis of the ids. None returns a row per id.
        salt: String that separates this feature's ids from those of other
            features on the same table, which stores mix64(id xor hash(salt)).
        padding_id: An id, before salting, to ignore; a string, such as `""`,
            if the ids are strings.
        default_id: With a combiner: the id, before salting, whose row an empty
            bag reads; a string if the ids are strings. None reads zeros.
        padding_counts: With `"mean"`: whether padding counts as rows of zeros,
            as in Paddle.
        max_length: Truncates each bag to its first `max_length` ids. Without a
            combiner it truncates the innermost axis, unless that is the batch.
        column: Column name in the hash of strings, as in `lodestar.hash_ids`.
        ids: The valid ids, before salting, as a pair (low, high), which means
            `range(low, high)`. Other ids, except `padding_id`, are an error of
            each lookup. Not for strings.
        output_dim: Embedding dimension of a table for this feature alone.
        embeddings_initializer: With `output_dim`: initializer of its table.
        optimizer: With `output_dim`: optimizer of its table.
        devices: With `output_dim`: devices of its table.
        expected_rows: Expected number of rows of the table. Like
            `expected_ids`, it only guides `devices` of EmbeddingCollection.
        expected_ids: Expected number of ids per example.

    Raises:
        ValueError: If an argument is invalid.
    """

    table: EmbeddingVariable | None
    combiner: Combiner | None
    salt: str | None
    padding_id: int | str | None
    default_id: int | str | None
    max_length: int | None
    column: str | None
    ids: tuple[int, int] | None
    padding_counts: bool
    output_dim: int | None
    embeddings_initializer: Initializer
    optimizer: OptimizerLike | None
    devices: Sequence[str] | None
    expected_rows: float | None
    expected_ids: float | None

    @explained()
    def __init__(
        self,
        table: EmbeddingVariable | int | None = None,
        combiner: Combiner | None = None,
        salt: str | None = None,
        padding_id: int | str | None = None,
        default_id: int | str | None = None,
        max_length: int | None = None,
        *,
        column: str | None = None,
        ids: tuple[int, int] | None = None,
        padding_counts: bool = False,
        output_dim: int | None = None,
        embeddings_initializer: Initializer = "uniform",
        optimizer: OptimizerLike | None = None,
        devices: Sequence[str] | None = None,
        expected_rows: float | None = None,
        expected_ids: float | None = None,
    ):
        fields = {name: x for name, x in locals().items() if name != "self"}
        if is_integer(table) and output_dim is None:
            fields |= {"table": None, "output_dim": table}
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        self._check()

    def __repr__(self) -> str:
        return short_repr(self)

    def _check(self) -> None:
        if (self.table is None) == (self.output_dim is None):
            raise ValueError(
                "A Feature needs an EmbeddingVariable or an `output_dim`, such as "
                f"Feature(16), got table={self.table!r} and "
                f"output_dim={self.output_dim!r}."
            )
        if self.output_dim is not None:
            check_dim(self.output_dim)
        elif not isinstance(self.table, EmbeddingVariable):
            raise ValueError(
                "`table` must be a lodestar.EmbeddingVariable, got a "
                f"{type(self.table).__name__}. Pass an integer, the embedding "
                "dimension, to create one."
            )
        elif (
            self.embeddings_initializer != "uniform"
            or self.optimizer is not None
            or self.devices is not None
        ):
            raise ValueError(
                "`embeddings_initializer`, `optimizer` and `devices` cannot be "
                "combined with `table`. Pass them to the table: "
                "lodestar.EmbeddingVariable(output_dim, optimizer=...)."
            )
        check_text("salt", self.salt)
        check_text("column", self.column)
        check_bags(self.combiner, self.default_id)
        check_padding_counts(
            self.padding_counts, self.combiner, self.padding_id, self.default_id
        )
        for name in ("expected_rows", "expected_ids"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and value > 0):
                raise ValueError(
                    f"`{name}` must be a positive number, got {value!r}."
                )
        if self.max_length is not None:
            check_count("max_length", self.max_length)
        if self.ids is not None:
            object.__setattr__(self, "ids", _id_range(self.ids))
        self._check_special_ids()

    def _check_special_ids(self) -> None:
        """Raises ValueError unless the ids in arguments are of one kind."""
        for option, value in self._special_ids.items():
            if isinstance(value, str):
                continue
            if not (is_integer(value) and -(2**63) <= value < 2**63):
                raise ValueError(
                    f"`{option}` must be a 64-bit integer, or a string if the "
                    f"ids are strings, got {value!r}."
                )
        kinds = {isinstance(value, str) for value in self._special_ids.values()}
        if len(kinds) == 2:
            raise ValueError(
                "`padding_id` and `default_id` must both be integers or both be "
                f"strings, got {self.padding_id!r} and {self.default_id!r}."
            )
        if True in kinds and self.ids is not None:
            raise ValueError(
                f"`ids`={self.ids} is a range of integers, so `padding_id` and "
                "`default_id` must be integers, got "
                f"{list(self._special_ids.values())}."
            )

    def _config(self) -> dict[str, Any]:
        """Returns the arguments other than those of the table."""
        names = (
            *("combiner", "salt", "padding_id", "default_id", "max_length"),
            *("column", "ids", "padding_counts"),
            *("expected_rows", "expected_ids"),
        )
        return {name: getattr(self, name) for name in names}

    @property
    def _special_ids(self) -> dict[str, int | str]:
        given = {"padding_id": self.padding_id, "default_id": self.default_id}
        return {k: value for k, value in given.items() if value is not None}

    def _check_kind(self, ids: Any, name: str) -> None:
        """Refuses strings with an integer `padding_id`, and the other way around.

        Args:
            ids: Ids in a form that layers accept, symbolic or not.
            name: Name of `ids` in messages.

        Raises:
            ValueError: `padding_id` or `default_id` is of another kind.
        """
        if not self._special_ids:
            return
        dtype = tf.as_dtype(ids.dtype)
        if not (dtype == tf.string or dtype.is_integer):
            return
        for option, value in self._special_ids.items():
            if isinstance(value, str) == (dtype == tf.string):
                continue
            wanted = "a string" if dtype == tf.string else "an integer"
            example = '""' if dtype == tf.string else "0"
            raise ValueError(
                f"`{option}`={value!r} must be {wanted}, such as {example}, "
                f"because `{name}` has dtype {dtype.name}."
            )

    def _with_table(self, name: str) -> "FeatureOfTable":
        """Returns the feature with its table, creating it as `name` if needed."""
        if self.table is not None:
            return cast("FeatureOfTable", self)
        assert self.output_dim is not None
        table = EmbeddingVariable(
            self.output_dim,
            embeddings_initializer=self.embeddings_initializer,
            optimizer=self.optimizer,
            devices=self.devices,
            name=name,
        )
        made = dataclasses.replace(
            self,
            table=table,
            output_dim=None,
            embeddings_initializer="uniform",
            optimizer=None,
            devices=None,
        )
        return cast("FeatureOfTable", made)

    def _own_id(self, value: int | str | None) -> int | None:
        """Returns `value` as an id before salting, hashing a string."""
        if isinstance(value, str):
            return _hashed(value, self.column)
        return value

    def _table_id(self, value: int | str | None) -> int | None:
        """Returns the id under which the table stores `value`."""
        own = self._own_id(value)
        if own is None or self.salt is None:
            return own
        return id_hash.salted_id(own, self.salt)

    def _to_ids(self, ids: Any, name: str = "ids") -> AnyTensor:
        """Converts `ids` to int64, hashing strings; errors call them `name`."""
        return ids_lib.to_int64(
            ids, strings=self.ids is None, column=self.column, name=name
        )

    def _in_range(self, ids: AnyTensor, owner: str) -> AnyTensor:
        """Returns `ids`, after checking their range; errors name `owner`."""
        if self.ids is None:
            return ids
        padding = self._own_id(self.padding_id)
        return ids_lib.check_range(ids, *self.ids, padding, owner)

    def table_ids(self, ids: Any, owner: str = "a feature") -> AnyTensor:
        """Returns the ids under which the table stores `ids`."""
        return id_hash.salted(
            self._in_range(self._to_ids(ids), owner), self.salt
        )

    @property
    def _salt_word(self) -> int | None:
        """The signed 64-bit hash of `salt`, which is xored with ids."""
        return None if self.salt is None else id_hash.stable_hash(self.salt)

    def _truncate(self, ids: tf.Tensor | tf.RaggedTensor) -> Any:
        """Truncates the innermost axis to `max_length`, but never the batch.

        Raises:
            ValueError: If the rank of `ids` is unknown.
        """
        if self.max_length is None:
            return ids
        rank = ids.shape.rank
        if rank is None:
            raise ValueError(
                f"`max_length`={self.max_length} without a combiner needs ids "
                f"of known rank, got shape {ids.shape}."
            )
        if rank < 2:
            return ids
        return ids[(*[slice(None)] * (rank - 1), slice(self.max_length))]


if TYPE_CHECKING:

    @dataclasses.dataclass(frozen=True, eq=False)
    class FeatureOfTable(Feature):
        """The result of `_with_table`."""

        table: EmbeddingVariable


@functools.lru_cache(maxsize=1024)
def _hashed(text: str, column: str | None) -> int:
    """Returns the id of a string, as `lodestar.hash_ids` does."""
    with _private.eager_mode(), tf.device("/CPU:0"):
        return int(id_hash.fingerprint(tf.constant(text), column))


def _id_range(ids: Any) -> tuple[int, int]:
    """Returns `ids` as (low, high); ValueError unless it is a range of int64."""
    pair = tuple(ids) if isinstance(ids, (list, tuple)) else ()
    if not (
        len(pair) == 2
        and all(map(is_integer, pair))
        and -(2**63) <= pair[0] < pair[1] <= 2**63
    ):
        raise ValueError(
            "`ids` must be a pair (low, high) of 64-bit integers with low < "
            f"high, got {ids!r}."
        )
    return int(pair[0]), int(pair[1])


def to_features(features: Any) -> dict[str, Feature]:
    """Returns a dict of Features; an integer is the `output_dim` of one."""
    if not isinstance(features, Mapping):
        raise ValueError(
            "`features` must be a dict of name -> lodestar.Feature or "
            f"output_dim, got a {type(features).__name__}."
        )
    result = {}
    for name, feature in features.items():
        if not isinstance(name, str):
            raise ValueError(
                "The names in `features` must be strings, got "
                f"{name!r}, a {type(name).__name__}."
            )
        if not isinstance(feature, (Feature, numbers.Real)):
            raise ValueError(
                f"`features[{name!r}]` must be a lodestar.Feature or an "
                f"output_dim, got a {type(feature).__name__}."
            )
        if not isinstance(feature, Feature):
            size = check_dim(feature, f"features[{name!r}]")
            feature = Feature(size)
        result[name] = feature
    return result
