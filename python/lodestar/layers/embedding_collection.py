"""Many features over few tables, looked up together."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from lodestar import _private
from lodestar.embedding import bags as bags_lib
from lodestar.embedding import table_store
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.layers.dynamic_embedding import (
    check_symbolic_ids,
    symbolic_rows,
)
from lodestar.layers.feature import Feature, serialize_table
from lodestar.ops import embedding_ops


@keras.saving.register_keras_serializable(package="lodestar")
class EmbeddingCollection(keras.layers.Layer):
    """Looks up all features of a model; those of one table in one op.

    >>> user = lodestar.EmbeddingVariable(8, name="user")
    >>> item = lodestar.EmbeddingVariable(16, name="item")
    >>> embed = lodestar.layers.EmbeddingCollection({
    ...     "viewer": lodestar.Feature(user),
    ...     "author": lodestar.Feature(user, combiner=None),
    ...     "items": lodestar.Feature(item, combiner="sum"),
    ... })

    Features that agree in table, combiner, padding and default id (after
    salting) are concatenated and looked up by one op, forward and back.

    Args:
        features: Name -> Feature.
        dtype: Keras dtype policy of the results; rows are float32.
        name: Name of the layer.
        **kwargs: `trainable`: False freezes the tables; they add no ids then.

    Call arguments:
        inputs: Name -> ids as DynamicEmbedding takes them; names that are no
            feature are passed over.
        weights: Name -> numbers laid out as the ids; may leave features out.
        training: True adds unseen ids. None: whether a gradient tape records.

    Output: name -> rows, as DynamicEmbedding gives them.

    Raises:
        ValueError: Bad arguments, or a feature without ids.
    """

    def __init__(
        self,
        features: Mapping[str, Feature],
        *,
        dtype: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ):
        kwargs.pop("autocast", None)
        super().__init__(dtype=dtype, name=name, autocast=False, **kwargs)
        if not features:
            raise ValueError("`features` is empty.")
        for key, feature in features.items():
            if not isinstance(feature, Feature):
                raise ValueError(
                    f"`features[{key!r}]` is a {type(feature).__name__}, "
                    "wanted a lodestar.Feature."
                )
        # A tuple, which Keras leaves as it is.
        self._features = tuple(features.items())
        tables = []
        for _, feature in self._features:
            if not any(feature.table is table for table in tables):
                tables.append(feature.table)
        self._tables = tuple(tables)
        # Attributes of their own, which Keras and checkpoints track.
        for index, table in enumerate(tables):
            setattr(self, f"table_{index}", table)
            setattr(self, f"hook_{index}", table.hook)
            if not self.trainable:
                table.hook.trainable = False
        self.supports_jit = False
        self.built = True

    @property
    def features(self) -> dict[str, Feature]:
        """Name -> Feature."""
        return dict(self._features)

    @property
    def tables(self) -> list[EmbeddingVariable]:
        """The tables, in order of first use."""
        return list(self._tables)

    def call(
        self,
        inputs: Mapping[str, Any],
        weights: Mapping[str, Any] | None = None,
        training: bool | None = None,
    ) -> dict[str, Any]:
        """See the class."""
        weights = weights or {}
        self._check_names(inputs, weights)
        if training is None:
            training = _private.tape_is_recording()
        training = bool(training and self.trainable)
        groups: dict[Any, list[str]] = {}
        for name, feature in self._features:
            groups.setdefault(_group_key(feature), []).append(name)
        rows: dict[str, Any] = {}
        for names in groups.values():
            look_up = (
                self._look_up_rows
                if self.features[names[0]].combiner is None
                else self._look_up_bags
            )
            rows.update(look_up(names, inputs, weights, training))
        return {
            name: tf.cast(rows[name], self.compute_dtype)
            for name, _ in self._features
        }

    def _check_names(
        self, inputs: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> None:
        features = self.features
        absent = [name for name in features if name not in inputs]
        if absent:
            raise ValueError(
                f"`inputs` has no ids for the features {absent}; it has "
                f"{sorted(inputs)}."
            )
        for name in weights:
            if name not in features:
                raise ValueError(
                    f"`weights` names {name!r}, which is no feature; features: "
                    f"{sorted(features)}."
                )
            combiner = features[name].combiner
            if combiner not in embedding_ops.WEIGHTED_COMBINERS:
                raise ValueError(
                    f"`weights` are given for {name!r} with combiner="
                    f"{combiner!r}; they need one of "
                    f"{embedding_ops.WEIGHTED_COMBINERS}."
                )

    def _look_up_rows(
        self,
        names: Sequence[str],
        inputs: Mapping[str, Any],
        weights: Mapping[str, Any],
        training: bool,
    ) -> dict[str, Any]:
        features = self.features
        all_ids = []
        for name in names:
            feature = features[name]
            ids = feature.truncate(feature.table_ids(inputs[name]))
            if isinstance(ids, tf.SparseTensor):
                raise ValueError(
                    f"the ids of {name!r} are sparse, which needs a combiner: "
                    f"one of {embedding_ops.COMBINERS}."
                )
            all_ids.append(ids)
        dense = [
            ids.flat_values if isinstance(ids, tf.RaggedTensor) else ids
            for ids in all_ids
        ]
        first = features[names[0]]
        options = dict(
            insert=training,
            count=training,
            padding_id=first.table_id(first.padding_id),
        )
        if len(names) == 1:
            parts = [first.table.lookup_flat(dense[0], **options)]
        else:
            flat = [tf.reshape(ids, [-1]) for ids in dense]
            rows = first.table.lookup_flat(tf.concat(flat, 0), **options)
            parts = [
                tf.reshape(part, tf.concat([tf.shape(ids), [-1]], 0))
                for part, ids in zip(
                    tf.split(rows, _sizes(flat)), dense, strict=True
                )
            ]
        result = {}
        for name, ids, part in zip(names, all_ids, parts, strict=True):
            if isinstance(ids, tf.RaggedTensor):
                part = tf.ensure_shape(
                    part, ids.flat_values.shape.concatenate(first.table.dim)
                )
                result[name] = ids.with_flat_values(part)
            else:
                result[name] = tf.ensure_shape(
                    part, ids.shape.concatenate(first.table.dim)
                )
        return result

    def _look_up_bags(
        self,
        names: Sequence[str],
        inputs: Mapping[str, Any],
        weights: Mapping[str, Any],
        training: bool,
    ) -> dict[str, Any]:
        features = self.features
        all_bags = []
        for name in names:
            feature = features[name]
            bags = bags_lib.to_bags(
                feature.table_ids(inputs[name]), weights.get(name)
            )
            all_bags.append(feature.truncate_bags(bags))
        first = features[names[0]]
        pooled = first.table.lookup_bags(
            _concat(all_bags),
            first.combiner,
            insert=training,
            count=training,
            padding_id=first.table_id(first.padding_id),
            default_id=first.table_id(first.default_id),
        )
        if len(names) == 1:
            parts = [pooled]
        else:
            parts = tf.split(
                pooled, _sizes([bags.row_splits[1:] for bags in all_bags])
            )
        return {
            name: bags.restore(part)
            for name, bags, part in zip(names, all_bags, parts, strict=True)
        }

    def compute_output_spec(
        self,
        inputs: Mapping[str, Any],
        weights: Mapping[str, Any] | None = None,
        training: bool | None = None,
    ) -> dict[str, keras.KerasTensor]:
        """The symbolic results; see the class."""
        self._check_names(inputs, weights or {})
        for name, _ in self._features:
            check_symbolic_ids(inputs[name], f"inputs[{name!r}]")
        return {
            name: symbolic_rows(
                inputs[name],
                feature.combiner,
                feature.table.dim,
                self.compute_dtype,
            )
            for name, feature in self._features
        }

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments; the inverse of `from_config`."""
        config = super().get_config()
        config.pop("autocast", None)
        places = {id(table): i for i, table in enumerate(self._tables)}
        config["tables"] = [serialize_table(t) for t in self._tables]
        config["features"] = {
            name: {
                "table": places[id(feature.table)],
                "combiner": feature.combiner,
                "salt": feature.salt,
                "padding_id": feature.padding_id,
                "default_id": feature.default_id,
                "max_length": feature.max_length,
            }
            for name, feature in self._features
        }
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "EmbeddingCollection":
        """Makes a layer of the same arguments, without rows."""
        config = dict(config)
        tables = [
            keras.saving.deserialize_keras_object(table)
            for table in config.pop("tables")
        ]
        features = {
            name: Feature(**{**feature, "table": tables[feature["table"]]})
            for name, feature in config.pop("features").items()
        }
        return cls(features, **config)

    def save_own_variables(self, store: Any) -> None:
        """Writes the tables, for `.keras` and `.weights.h5` files."""
        for index, table in enumerate(self._tables):
            table_store.save_table(table, store, f"table_{index}_")

    def load_own_variables(self, store: Any) -> None:
        """Reads what `save_own_variables` wrote."""
        for index, table in enumerate(self._tables):
            table_store.load_table(table, store, f"table_{index}_")


def _group_key(feature: Feature) -> tuple[Any, ...]:
    return (
        id(feature.table),
        feature.combiner,
        feature.table_id(feature.padding_id),
        feature.table_id(feature.default_id),
    )


def _sizes(tensors: Sequence[tf.Tensor]) -> list[int] | tf.Tensor:
    if all(t.shape.is_fully_defined() for t in tensors):
        return [t.shape[0] for t in tensors]
    return tf.stack([tf.size(t) for t in tensors])


def _concat(all_bags: Sequence[bags_lib.Bags]) -> bags_lib.Bags:
    """All bags after another, as one batch."""
    if len(all_bags) == 1:
        return all_bags[0]
    counts = tf.stack([tf.size(bags.ids, tf.int64) for bags in all_bags])
    offsets = tf.unstack(tf.cumsum(counts, exclusive=True), len(all_bags))
    splits = [all_bags[0].row_splits]
    splits += [
        bags.row_splits[1:] + offset
        for bags, offset in zip(all_bags[1:], offsets[1:], strict=True)
    ]
    weights = None
    if any(bags.weights is not None for bags in all_bags):
        weights = tf.concat(
            [
                tf.ones(tf.shape(bags.ids))
                if bags.weights is None
                else bags.weights
                for bags in all_bags
            ],
            0,
        )
    return bags_lib.Bags(
        tf.concat([bags.ids for bags in all_bags], 0),
        tf.concat(splits, 0),
        weights,
        lambda pooled: pooled,
    )
