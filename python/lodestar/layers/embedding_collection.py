"""Keras layer that looks up many features in few tables."""

import collections
import copy
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import did_you_mean
from lodestar._typing import DTypePolicy
from lodestar.embedding import bags as bags_lib
from lodestar.embedding import (
    gpu_lookup,
    partitioned_lookup,
    strategies,
    table_store,
)
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.embedding.lookup_arguments import check_bag_axis, check_training
from lodestar.layers import device_plan
from lodestar.layers.cloning import deserialize_table, serialize_table
from lodestar.layers.dynamic_embedding import (
    check_symbolic_ids,
    padding_mask,
    symbolic_rows,
)
from lodestar.layers.feature import (
    Feature,
    to_features,
)
from lodestar.layers.lookup_counters import LookupCounters
from lodestar.layers.lookup_observer import Lookup, observed
from lodestar.layers.table_layer import TableLayer
from lodestar.ops import embedding_collection_ops as collection_ops
from lodestar.ops import embedding_ops

if TYPE_CHECKING:
    from lodestar.layers.feature import FeatureOfTable


@keras.saving.register_keras_serializable(package="lodestar")
class EmbeddingCollection(TableLayer):
    """Looks up all features of a model in one op, forward and backward.

    This gives each feature a table of its name and returns a row per id:

    >>> embed = lodestar.layers.EmbeddingCollection({"user": 8, "item": 16})

    Pass a Feature to share a table or to pool bags:

    >>> user = lodestar.EmbeddingVariable(8, name="user")
    >>> embed = lodestar.layers.EmbeddingCollection({
    ...     "viewer": lodestar.Feature(user),
    ...     "friends": lodestar.Feature(user, combiner="mean"),
    ...     "items": lodestar.Feature(16, combiner="sum"),
    ... })

    Tables may differ in dimension and dtype, and features of one table in their
    options. The ids of a table are deduplicated over all its features, so an id
    counts once per step and gets one gradient row. A step trains the ids of all
    features, with zero gradients for features that the loss does not use.

    Args:
        features: Name -> Feature, or the `output_dim` of a new table. New tables
            are named `<name>`, or `<layer>_<name>` if the layer has a `name`.
        devices: GPUs or CPUs to place the new tables on, as `plan_devices`
            does; see docs/gpus.md. Bags are pooled on the device of their rows.
            Default: `devices` of EmbeddingVariable.
        plan: With `devices`: feature name -> the device of its table, or
            several devices to partition it over.
        trainable: If False, the tables are frozen and add no ids.
        dtype: Keras dtype policy of the results.
        name: Name of the layer.

    Call arguments:
        inputs: Name -> ids, as in DynamicEmbedding. Other names are ignored.
        weights: Optional name -> weights, with the shape of the ids.
        training: Whether to add new ids. Defaults to whether a gradient tape
            records.

    Output: name -> rows, as in DynamicEmbedding.

    Raises:
        ValueError: If an argument is invalid, a feature has no ids, or
            DynamicEmbedding would reject its ids.
    """

    @explained()
    def __init__(
        self,
        features: Mapping[str, Feature | int],
        *,
        devices: Sequence[str] | None = None,
        plan: Mapping[str, str | Sequence[str]] | None = None,
        trainable: bool = True,
        dtype: DTypePolicy | None = None,
        name: str | None = None,
    ):
        super().__init__(trainable=trainable, dtype=dtype, name=name)
        read = to_features(features)
        if not read:
            raise ValueError("`features` must not be empty.")
        if plan is not None and devices is None:
            raise ValueError("`plan` needs `devices`.")
        if devices is not None:
            for key, chosen in self.plan_devices(read, devices, plan).items():
                if read[key].table is None:
                    read[key] = dataclasses.replace(read[key], devices=chosen)
        # Keras does not track tuples.
        self._features = tuple(
            (
                key,
                feature._with_table(key if name is None else f"{name}_{key}"),
            )
            for key, feature in read.items()
        )
        tables: list[EmbeddingVariable] = []
        for _, feature in self._features:
            if not any(feature.table is table for table in tables):
                tables.append(feature.table)
        self._tables = tuple(tables)
        self._attrs = tuple(
            collection_ops.FeatureAttrs(
                name=key,
                table=[feature.table is t for t in tables].index(True),
                combiner="sum" if feature.padding_counts else feature.combiner,
                salt=feature._salt_word,
                padding_id=feature._own_id(feature.padding_id),
                default_id=feature._own_id(feature.default_id),
                max_length=None
                if feature.combiner is None
                else feature.max_length,
            )
            for key, feature in self._features
        )
        # The counters of the features that were looked up together in training.
        # Checkpoints reject a dict with such keys.
        self._counters: tuple[tuple[list[int], tuple[_Counters, ...]], ...] = ()
        for lookup in _lookups(self._tables, self._attrs):
            self._counters_of(lookup)
        # Keras and checkpoints track attributes.
        for index, table in enumerate(tables):
            setattr(self, f"_table_{index}", table)
            setattr(self, f"_optimizer_{index}", table.optimizer)
        self._hold_tables()
        self.built = True

    @classmethod
    def plan_devices(
        cls,
        features: Mapping[str, Feature | int],
        devices: Sequence[str],
        plan: Mapping[str, str | Sequence[str]] | None = None,
    ) -> dict[str, tuple[str, ...]]:
        """Assigns features to devices as the layer does, without creating it.

        >>> plan = lodestar.layers.EmbeddingCollection.plan_devices(
        ...     {"user": lodestar.Feature(64, expected_rows=10**9),
        ...      "item": lodestar.Feature(64, expected_rows=10**6),
        ...      "word": lodestar.Feature(16, expected_rows=10**6)},
        ...     ["/CPU:0", "/CPU:1"])
        >>> plan["user"]
        ('/device:CPU:0', '/device:CPU:1')
        >>> plan["item"], plan["word"]
        (('/device:CPU:0',), ('/device:CPU:1',))

        The load of a table is its share of the bytes of all rows
        (`expected_rows` x `output_dim` x bytes per number) plus its share of the
        numbers looked up (`expected_ids` x `output_dim`). A table with more bytes
        than a device's even share is partitioned over all devices by a hash of
        its ids. The other tables are assigned, largest first, to the device with
        the least load (longest processing time first: Graham, 1969).

        Args:
            features: Name -> Feature, or `output_dim`. A Feature with a `table`
                keeps the devices of that table.
            devices: The devices to assign tables to.
            plan: Name -> device or devices: assignments that are already made.

        Returns:
            Name -> devices, for each feature whose table has devices.

        Raises:
            ValueError: If `plan` has an unknown feature or device.
        """
        return device_plan.plan_devices(features, devices, plan)

    @property
    def features(self) -> "dict[str, FeatureOfTable]":
        """The features by name, each with its table."""
        return dict(self._features)

    @property
    def tables(self) -> list[EmbeddingVariable]:
        """The tables, in order of first use."""
        return list(self._tables)

    @property
    def plan(self) -> dict[str, tuple[str, ...]]:
        """Feature name -> the devices of its table, if it has any."""
        return {
            name: feature.table.devices
            for name, feature in self._features
            if feature.table.devices is not None
        }

    def call(
        self,
        inputs: Mapping[str, Any],
        weights: Mapping[str, Any] | None = None,
        training: bool | None = None,
    ) -> dict[str, Any]:
        weights = {} if weights is None else weights
        self._check_names(inputs, weights)
        self._see(inputs, weights)
        check_training(training)
        if not self.trainable:
            training = False
        trained = [table._trains(training) for table in self._tables]
        batches = [
            _batch(name, feature, inputs[name], weights.get(name))
            for name, feature in self._features
        ]
        rows: dict[int, tf.Tensor] = {}
        for lookup in _lookups(self._tables, self._attrs, trained):
            found = self._lookup(
                lookup, [batches[f].inputs for f in lookup.features]
            )
            rows.update(zip(lookup.features, found, strict=True))
        results = {}
        for f, (name, feature) in enumerate(self._features):
            batch, part = batches[f], rows[f]
            restored = observed(
                Lookup(self, name, feature, inputs[name], batch.restore(part))
            )
            results[name] = tf.cast(restored, self.compute_dtype)
        return results

    def _counters_of(self, lookup: "_Lookup") -> tuple["_Counters", ...]:
        """Returns the counters of a lookup, and creates them if needed."""
        for features, counters in self._counters:
            if features == lookup.features:
                return counters
        index = sum(len(counters) for _, counters in self._counters)
        made = _counters(lookup, self._tables)
        self._counters += ((lookup.features, made),)
        for i, counted in enumerate(made, index):  # so that exports find them
            setattr(self, f"_counters_{i}", counted.counters)
        return made

    def _lookup(
        self,
        lookup: "_Lookup",
        inputs: list[collection_ops.FeatureInputs],
    ) -> list[tf.Tensor]:
        tables = [self._tables[t] for t in lookup.tables]
        training = lookup.trains
        options: dict[str, Any] = {"insert": training, "count": training}
        handles = {}
        if training:
            handles = {
                of_some.counters.device: of_some.counters.resource_handle
                for of_some in self._counters_of(lookup)
            }
        options["counters"] = handles.pop(None, None)
        if lookup.on_devices:
            options["gpu_counters"] = handles or None
            return partitioned_lookup.lookup(
                tables, lookup.attrs, inputs, **options
            )
        hooks, missing_rows, missing = zip(
            *(table._collection_inputs() for table in tables), strict=True
        )
        with embedding_ops.on_cpu_in_graphs():
            return collection_ops.collection_lookup(
                [table.resource_handle for table in tables],
                hooks,
                missing_rows,
                missing,
                lookup.attrs,
                inputs,
                **options,
            )

    def stats(self, reset: bool = False) -> dict[str, dict[str, float]]:
        """Returns statistics of the training lookups by feature. Runs eagerly.

        Features whose table is on parameter servers are omitted.

        Args:
            reset: Whether to reset the counters.

        Returns:
            Name -> `ids` (after `max_length`, including padding), `padding`,
            `unique` (unique ids per lookup, summed), `hits` and `misses` (ids
            with and without a row before the lookup), `unique_ratio` = unique /
            (ids - padding) and `padding_share` = padding / ids, or 0 without
            lookups.
        """
        counted: dict[int, collections.Counter[str]] = {}
        for of_some in itertools.chain(*(made for _, made in self._counters)):
            for f, counts in zip(
                of_some.features, of_some.counters.read(reset), strict=True
            ):
                # Each GPU counts its part of a partitioned table.
                counted.setdefault(f, collections.Counter()).update(counts)
        stats = {}
        for f, counts in sorted(counted.items()):
            name, _ = self._features[f]
            real = counts["ids"] - counts["padding"]
            stats[name] = {
                **counts,
                "misses": real - counts["hits"],
                "unique_ratio": counts["unique"] / max(real, 1),
                "padding_share": counts["padding"] / max(counts["ids"], 1),
            }
        return stats

    def _check_names(
        self, inputs: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> None:
        features = self.features
        for name, given in (("inputs", inputs), ("weights", weights)):
            if not isinstance(given, Mapping):
                raise ValueError(
                    f"`{name}` must be a dict with names among {list(features)}, "
                    f"got a {type(given).__name__}."
                )
        absent = [name for name in features if name not in inputs]
        if absent:
            unused = [name for name in inputs if name not in features]
            asked = (did_you_mean(str(name), absent) for name in unused)
            raise ValueError(
                f"`inputs` has no ids for the features {absent}; it has "
                f"{sorted(inputs)}.{next(filter(None, asked), '')}"
            )
        for name in weights:
            if name not in features:
                raise ValueError(
                    f"`weights` has the unknown feature {name!r}; the features "
                    f"are {sorted(features)}.{did_you_mean(name, features)}"
                )
            combiner = features[name].combiner
            if combiner not in embedding_ops.WEIGHTED_COMBINERS:
                raise ValueError(
                    f"The combiner of feature {name!r} must be one of "
                    f"{embedding_ops.WEIGHTED_COMBINERS} to use `weights`, got "
                    f"{combiner!r}."
                )

    def compute_output_spec(
        self,
        inputs: Mapping[str, Any],
        weights: Mapping[str, Any] | None = None,
        training: bool | None = None,
    ) -> dict[str, keras.KerasTensor]:
        weights = {} if weights is None else weights
        self._check_names(inputs, weights)
        specs = {}
        for name, feature in self._features:
            ids = inputs[name]
            check_symbolic_ids(ids, f"inputs[{name!r}]", feature.combiner)
            specs[name] = symbolic_rows(self, ids, feature)
        self._see(inputs, weights)
        return specs

    def _see(
        self, inputs: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> None:
        for name, feature in self._features:
            self._see_ids(f"inputs[{name!r}]", inputs[name], feature)
        for name, given in weights.items():
            self._see_weights(f"weights[{name!r}]", given)

    def compute_mask(
        self, inputs: Mapping[str, Any], previous_mask: Any = None
    ) -> dict[str, Any]:
        """Returns True where ids are not padding; None for bags, ragged ids."""
        return {
            name: None
            if feature.combiner is not None
            else padding_mask(inputs[name], feature)
            for name, feature in self._features
        }

    def _tables_by_prefix(self) -> dict[str, EmbeddingVariable]:
        """See TableLayer."""
        return {f"table_{i}_": table for i, table in enumerate(self._tables)}

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        places = {id(table): i for i, table in enumerate(self._tables)}
        config["tables"] = [serialize_table(t) for t in self._tables]
        config["features"] = {
            name: {"table": places[id(feature.table)], **feature._config()}
            for name, feature in self._features
        }
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "EmbeddingCollection":
        config = dict(config)
        saved = config.pop("tables")
        tables = [deserialize_table(table) for table in saved]
        features = {
            name: Feature(**{**feature, "table": tables[feature["table"]]})
            for name, feature in config.pop("features").items()
        }
        layer = cls(features, **config)
        # A frozen layer has frozen all of them.
        for table, of_table in zip(tables, saved, strict=True):
            table.trainable = of_table["config"].get("trainable", True)
        return layer

    def __deepcopy__(self, memo: dict[int, Any]) -> "EmbeddingCollection":
        # See DynamicEmbedding.__deepcopy__.
        if type(self) is not EmbeddingCollection:
            return self._copy_through_file(memo)
        config = self.get_config()
        del config["tables"]
        config["features"] = copy.deepcopy(self.features, memo)
        memo[id(self)] = copied = EmbeddingCollection(**config)
        for table, original in zip(copied.tables, self._tables, strict=True):
            table.trainable = original.trainable
        return copied

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Loads the tables; ValueError if the file has more of them."""
        count = len(self._tables)
        if table_store.holds_table(store, f"table_{count}_"):
            raise ValueError(
                f"The layer `{self.name}` must have as many tables as the file, "
                f"which has more than {count}."
            )
        super().load_own_variables(store)


class _Lookup(NamedTuple):
    """Features that are looked up together, and their tables, as indices.

    The `table` of each entry in `attrs` is an index into `tables`.
    """

    on_devices: bool
    trains: bool
    features: list[int]
    tables: list[int]
    attrs: list[collection_ops.FeatureAttrs]


def _lookups(
    tables: tuple[EmbeddingVariable, ...],
    attrs: tuple[collection_ops.FeatureAttrs, ...],
    trained: Sequence[bool] | None = None,
) -> list[_Lookup]:
    """Groups features by whether their tables have `devices` and are `trained`."""
    trained = [True] * len(tables) if trained is None else trained
    lookups = []
    for on_devices, trains in itertools.product((False, True), repeat=2):
        of_kind = [
            t
            for t, table in enumerate(tables)
            if table._is_sharded == on_devices and trained[t] == trains
        ]
        features = [f for f, x in enumerate(attrs) if x.table in of_kind]
        if features:
            own = [
                attrs[f]._replace(table=of_kind.index(attrs[f].table))
                for f in features
            ]
            lookups.append(_Lookup(on_devices, trains, features, of_kind, own))
    return lookups


class _Counters(NamedTuple):
    """The counters of some features, given as indices."""

    features: list[int]
    counters: LookupCounters


def _counters(
    lookup: _Lookup, tables: tuple[EmbeddingVariable, ...]
) -> tuple[_Counters, ...]:
    """Creates counters for a lookup: one on each GPU and one on the CPU."""
    own = [tables[t] for t in lookup.tables]
    places: dict[str | None, list[int]] = {}
    others = [*range(len(lookup.features))]
    if lookup.on_devices:
        places.update(gpu_lookup.features_by_device(own, lookup.attrs))
        on_gpus = {*gpu_lookup.taken(own, lookup.attrs)}
        others = [f for f in others if f not in on_gpus]
    # Workers, which do the lookups of parameter servers, cannot reach any.
    if others and not (lookup.on_devices and strategies.servers()):
        places[None] = others
    return tuple(
        _Counters(
            [lookup.features[f] for f in of_some],
            LookupCounters(len(of_some), device),
        )
        for device, of_some in places.items()
    )


class _Batch(NamedTuple):
    """Inputs of the op for one feature, and how to restore the shape of rows."""

    inputs: collection_ops.FeatureInputs
    restore: Callable[[tf.Tensor], Any]


def _batch(name: str, feature: Feature, ids: Any, weights: Any) -> _Batch:
    restore: Callable[[tf.Tensor], Any]
    ids = feature._to_ids(ids, f"inputs[{name!r}]")
    ids = feature._in_range(ids, f"feature `{name}`")
    check_bag_axis(f"inputs[{name!r}]", ids, feature.combiner)
    if feature.combiner is None and isinstance(ids, tf.SparseTensor):
        raise ValueError(
            f"The ids of feature {name!r} are sparse, which needs a combiner: one "
            f"of {embedding_ops.COMBINERS}."
        )
    row_splits, restore = None, lambda rows: rows
    try:
        if feature.combiner is None:
            ids = feature._truncate(ids)
            if isinstance(ids, tf.RaggedTensor):
                ids, restore = ids.flat_values, ids.with_flat_values
        elif isinstance(ids, (tf.RaggedTensor, tf.SparseTensor)):
            ids, row_splits, weights, restore = bags_lib.to_bags(ids, weights)
        else:
            # The op pools the last axis, so no row_splits are needed.
            weights = bags_lib.dense_weights(ids, weights)
    except ValueError as error:
        raise ValueError(f"Feature {name!r}: {error}") from None
    inputs = collection_ops.FeatureInputs(ids, row_splits, weights)
    if not feature.padding_counts:
        return _Batch(inputs, restore)
    return _Batch(
        inputs,
        lambda sums: restore(
            bags_lib.mean_with_padding(sums, *inputs, feature.max_length)
        ),
    )
