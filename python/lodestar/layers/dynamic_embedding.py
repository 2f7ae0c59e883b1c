"""Keras layer over one embedding table."""

import copy
import functools
import warnings
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import check_flag
from lodestar._typing import Combiner, DTypePolicy, OptimizerLike
from lodestar.embedding import ids as ids_lib
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.embedding.eviction import OnEvict
from lodestar.embedding.initializers import (
    Initializer,
    first_value_words,
)
from lodestar.embedding.lookup_arguments import (
    DefaultRow,
    check_bag_axis,
    check_dim,
    check_training,
    refuse_sizes,
)
from lodestar.embedding.policies import Admission, Evictions
from lodestar.layers import dense_from_ragged  # noqa: F401  # for its errors
from lodestar.layers.cloning import deserialize_table, serialize_table
from lodestar.layers.feature import Feature
from lodestar.layers.lookup_observer import Lookup, observed
from lodestar.layers.table_layer import TableLayer
from lodestar.ops.sequence_op import ragged_rows

_REFUSED = {
    "embeddings_regularizer": (
        "a penalty over an unbounded table has no gradient per step. "
        "Decay the rows that a step reads instead: model.compile("
        "lodestar.optimizers.Adam(1e-3, weight_decay=1e-5))."
    ),
    "embeddings_constraint": (
        "only the rows that a step reads can be changed. Normalize the results "
        "instead: keras.layers.UnitNormalization()(rows)."
    ),
    "input_dim": (
        "the table grows with the ids that it sees. Remove it, or limit the "
        "size with eviction=lodestar.MaxRows(n)."
    ),
    "mask_zero": "0 is an id like any other. Pass padding_id=0.",
    "weights": (
        "the rows of a matrix have no ids. Set them by id: "
        "layer.table.insert_or_assign(ids, matrix)."
    ),
    "input_length": "inputs may have any length. Remove it.",
}
# Config entries that come from the layer's own table.
_OF_OWN_TABLE = (
    "output_dim",
    "embeddings_initializer",
    "default_row",
    "seed",
    "admission",
    "eviction",
    "devices",
)
# A larger `output_dim` is probably meant as a number of ids.
_WIDE = 2048


def check_symbolic_ids(ids: Any, name: str, combiner: Combiner | None) -> None:
    """Raises ValueError for symbolic floats, or a 1-D batch with a combiner."""
    if keras.backend.is_float_dtype(ids.dtype):
        raise ValueError(ids_lib.float_input_message(ids, name))
    check_bag_axis(name, ids, combiner)


def symbolic_rows(
    layer: keras.layers.Layer, ids: Any, feature: Feature
) -> keras.KerasTensor:
    """Returns the symbolic result of looking up `ids`."""
    ragged = bool(getattr(ids, "ragged", False))
    shape = tuple(ids.shape)
    if feature.combiner is not None:
        shape = shape[:-1]
        ragged = ragged and len(shape) > 1
    elif feature.max_length is not None and len(shape) > 1:
        if shape[-1] is not None:
            shape = (*shape[:-1], min(shape[-1], feature.max_length))
    assert feature.table is not None
    shape = (*shape, feature.table.output_dim)
    if ragged:
        return ragged_rows(layer, shape, layer.compute_dtype)
    return keras.KerasTensor(shape, dtype=layer.compute_dtype)


def padding_mask(ids: Any, feature: Feature) -> Any:
    """Returns True where `ids` are not padding, or None for ragged ids."""
    if feature.padding_id is None:
        return None
    feature._check_kind(ids, "ids")
    if isinstance(ids, keras.KerasTensor):
        if ids.ragged or ids.sparse:
            return None
        if feature.max_length is not None and len(ids.shape) > 1:
            ids = ids[..., : feature.max_length]
        return keras.ops.not_equal(ids, feature.padding_id)
    ids = feature._to_ids(ids)
    if isinstance(ids, (tf.RaggedTensor, tf.SparseTensor)):
        return None
    padding = tf.constant(feature._own_id(feature.padding_id), tf.int64)
    return tf.not_equal(feature._truncate(ids), padding)


@keras.saving.register_keras_serializable(package="lodestar")
class DynamicEmbedding(TableLayer):
    """Embedding layer that creates rows as training sees new ids.

    It needs no vocabulary and no size. Train it with one of
    `lodestar.optimizers`, or pass `optimizer` to train its table with that while
    the model uses any Keras optimizer.

    >>> ids = keras.Input((None,), dtype="int64", ragged=True)
    >>> rows = lodestar.layers.DynamicEmbedding(16, combiner="mean")(ids)

    Ids are integers, or strings, which are hashed as by `lodestar.hash_ids`.
    They may be dense, ragged or, with a combiner, sparse. Pass an integer dtype
    to `keras.Input`: its default, float32, is an error.

    Args:
        output_dim: Embedding dimension D; required unless `table` is given.
        embeddings_initializer: Initializer, as in EmbeddingVariable.
        combiner: `"sum"`, `"mean"`, `"sqrtn"`, `"max"`, `"first"` or `"last"`
            over the innermost axis of the ids. None returns a row per id.
        padding_id: An id to ignore: it has no row, reads as zeros, is not part
            of any bag and is False in the Keras mask. A string, such as `""`,
            if the ids are strings.
        default_id: With a combiner: the id whose row an empty bag reads; a
            string if the ids are strings.
        padding_counts: With `"mean"`: whether padding counts as rows of zeros,
            as in Paddle.
        default_row: Row of missing ids, as in EmbeddingVariable.
        admission: Admission policy, as in EmbeddingVariable.
        eviction: Eviction policy, as in EmbeddingVariable.
        on_evict: Function of evicted ids and rows, as in EmbeddingVariable.
            Not saved: set `layer.table.on_evict` of a loaded layer.
        salt: String that separates this layer's ids from those of other layers
            on the same table.
        column: Column name in the hash of strings, as in `lodestar.hash_ids`.
        ids: The valid ids as a pair (low, high), as in Feature.
        optimizer: Optimizer of the table, as in EmbeddingVariable.
        table: An EmbeddingVariable to share. Excludes `output_dim`,
            `embeddings_initializer`, `default_row`, `admission`, `eviction`,
            `on_evict`, `optimizer`, `seed` and `devices`.
        grow: Whether training adds new ids.
        seed: Seed of the initial values, as in EmbeddingVariable; an explicit
            `name` also determines them.
        devices: Devices of the table, as in EmbeddingVariable.
        trainable: If False, the table is frozen for all its layers, which then
            add no ids.
        dtype: Keras dtype policy of the result. Rows are stored in float32, or
            in the dtype of `table`.
        name: Name of the layer and of its table.

    Call arguments:
        ids: Integers or strings.
        weights: Optional weights with the shape of `ids`, for sum, mean and
            sqrtn.
        training: Whether to add new ids. Defaults to whether a gradient tape
            records.

    Output: `ids.shape + [D]`, without the innermost axis if there is a combiner.

    Raises:
        ValueError: If an argument is invalid, ids are floats, ids have shape
            `[B]` with a combiner, or `padding_id` or `default_id` is a string and
            the ids are integers, or the other way around. In graphs, as of `fit`,
            `evaluate` and `predict`: also if a functional model converts data to
            other ids for a `keras.Input`: floats or wider integers to its dtype,
            or a SparseTensor to a dense tensor whose filler is not `padding_id`.
            With `run_eagerly=True`, and in direct calls of a model, Keras converts
            such data unnoticed.
        TypeError: If there is a second positional argument.
    """

    @explained(
        refused=_REFUSED,
        surplus=functools.partial(refuse_sizes, "layers.DynamicEmbedding"),
    )
    def __init__(
        self,
        output_dim: int | None = None,
        *,
        embeddings_initializer: Initializer = "uniform",
        combiner: Combiner | None = None,
        padding_id: int | str | None = None,
        default_id: int | str | None = None,
        padding_counts: bool = False,
        default_row: DefaultRow = "zeros",
        salt: str | None = None,
        column: str | None = None,
        ids: tuple[int, int] | None = None,
        admission: Admission | None = None,
        eviction: Evictions = None,
        on_evict: OnEvict | None = None,
        optimizer: OptimizerLike | None = None,
        table: EmbeddingVariable | None = None,
        grow: bool = True,
        seed: int | Sequence[int] | None = None,
        devices: Sequence[str] | None = None,
        trainable: bool = True,
        dtype: DTypePolicy | None = None,
        name: str | None = None,
    ):
        super().__init__(trainable=trainable, dtype=dtype, name=name)
        if (output_dim is None) == (table is None):
            raise ValueError(
                "Pass exactly one of `output_dim` and `table`, got "
                f"output_dim={output_dim} and table={table!r}."
            )
        of_table: dict[str, Any] = {
            "embeddings_initializer": embeddings_initializer,
            "default_row": default_row,
            "admission": admission,
            "eviction": eviction,
            "on_evict": on_evict,
            "optimizer": optimizer,
            "seed": seed,
            "devices": devices,
        }
        self._owns_table = table is None
        if table is None:
            output_dim = check_dim(output_dim)
            if output_dim > _WIDE:
                warnings.warn(_wide_rows(output_dim), stacklevel=3)
            # Only an explicit name counts, not one that Keras generates.
            of_table["seed"] = first_value_words(seed, name)
            table = EmbeddingVariable(output_dim, name=self.name, **of_table)
        else:
            _refuse_beside_table(of_table)
        self._feature = Feature(
            table,
            combiner=combiner,
            salt=salt,
            padding_id=padding_id,
            default_id=default_id,
            column=column,
            ids=ids,
            padding_counts=padding_counts,
        )
        assert self._feature.table is not None
        self.table: EmbeddingVariable = self._feature.table
        self._hold_tables()
        self.grow = check_flag("grow", grow)
        self.optimizer = self.table.optimizer
        self.built = True  # The table depends on no input.

    @property
    def output_dim(self) -> int:
        """The embedding dimension D."""
        return self.table.output_dim

    @property
    def combiner(self) -> Combiner | None:
        """The combiner of the rows of a bag, or None."""
        return self._feature.combiner

    def call(
        self, ids: Any, weights: Any = None, training: bool | None = None
    ) -> Any:
        feature = self._feature
        self._see_ids("ids", ids, self._feature)
        self._see_weights("weights", weights)
        check_training(training)
        rows = self.table.lookup(
            feature.table_ids(ids, f"layer `{self.name}`"),
            training=training if self.trainable else False,
            weights=weights,
            combiner=feature.combiner,
            grow=self.grow,
            padding_id=feature._table_id(feature.padding_id),
            default_id=feature._table_id(feature.default_id),
            padding_counts=feature.padding_counts,
        )
        rows = observed(Lookup(self, None, feature, ids, rows))
        return tf.cast(rows, self.compute_dtype)

    def compute_output_spec(
        self, ids: Any, weights: Any = None, training: bool | None = None
    ) -> keras.KerasTensor:
        check_symbolic_ids(ids, "ids", self.combiner)
        self._see_ids("ids", ids, self._feature)
        self._see_weights("weights", weights)
        return symbolic_rows(self, ids, self._feature)

    def compute_output_shape(
        self, ids_shape: Sequence[int | None]
    ) -> tuple[int | None, ...]:
        """Returns the shape of the output."""
        shape = tuple(ids_shape)
        if self.combiner is not None:
            shape = shape[:-1]
        return (*shape, self.output_dim)

    def compute_mask(self, ids: Any, previous_mask: Any = None) -> Any:
        """Returns True where ids are not padding; None for bags, ragged ids."""
        if self.combiner is not None:
            return None
        return padding_mask(ids, self._feature)

    def _tables_by_prefix(self) -> dict[str, EmbeddingVariable]:
        """See TableLayer."""
        return {"": self.table}

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config.update(self._feature._config(), grow=self.grow)
        for name in ("max_length", "expected_rows", "expected_ids"):
            del config[name]
        if self.table.trainable != self.trainable:
            config["table_trainable"] = self.table.trainable
        if not self._owns_table:
            config["table"] = serialize_table(self.table)
            return config
        own = self.table.get_config()
        for name in _OF_OWN_TABLE:
            config[name] = own[name]
        if own["optimizer"] is not None:
            config["optimizer"] = own["optimizer"]
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "DynamicEmbedding":
        config = dict(config)
        dim = config.get("output_dim")
        if (
            isinstance(dim, float) and dim.is_integer()
        ):  # JSON may lose the type
            config["output_dim"] = int(dim)
        if isinstance(config.get("table"), dict):
            config["table"] = deserialize_table(config["table"])
        if isinstance(config.get("optimizer"), dict):
            config["optimizer"] = keras.saving.deserialize_keras_object(
                config["optimizer"]
            )
        table_trainable = config.pop("table_trainable", None)
        layer = cls(**config)
        if table_trainable is not None:
            layer.table.trainable = table_trainable
        return layer

    def __deepcopy__(self, memo: dict[int, Any]) -> "DynamicEmbedding":
        if type(self) is not DynamicEmbedding:
            return self._copy_through_file(memo)
        # Keras copies a layer through a file, which would give other objects
        # copied along with the layer another copy of its table.
        config = self.get_config()
        if self._owns_table:
            for name in _OF_OWN_TABLE:
                del config[name]
            config.pop("optimizer", None)
        config["table"] = copy.deepcopy(self.table, memo)
        copied = DynamicEmbedding.from_config(config)
        copied._owns_table = self._owns_table
        memo[id(self)] = copied
        return copied


def _wide_rows(output_dim: int) -> str:
    return (
        f"DynamicEmbedding(output_dim={output_dim}) stores {output_dim} numbers "
        "per id. If you meant a number of ids, remove it: rows are created as "
        "ids are seen, and `output_dim` is the embedding dimension, as in "
        "DynamicEmbedding(output_dim=16)."
    )


def _refuse_beside_table(options: dict[str, Any]) -> None:
    """Raises ValueError for options of a new table."""
    defaults = {"embeddings_initializer": "uniform", "default_row": "zeros"}
    given = []
    for name, value in options.items():
        default = defaults.get(name)
        # An array must not be compared with ==.
        if value is default or (isinstance(value, str) and value == default):
            continue
        given.append(f"`{name}`")
    if given:
        raise ValueError(
            f"{', '.join(given)} cannot be combined with `table`. Pass them to "
            "the table instead."
        )
