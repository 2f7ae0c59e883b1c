"""The tables, vocabularies and weights that a model reads."""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import keras
import tensorflow as tf

from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.layers.id_lookup import IdLookup
from lodestar.layers.lookup_counters import LookupCounters
from lodestar.lookup import IdTable

_Resource: TypeAlias = tf.saved_model.experimental.TrackableResource


class ModelContents(NamedTuple):
    """The variables and resources that a model reads when it serves.

    Attributes:
        tables: Name -> embedding variable. Repeated names get a suffix `_1`,
            `_2`, ...
        id_tables: Name -> id table, with the same suffixes.
        lookups: Name of an id table -> the layer whose vocabulary it holds.
        resources: Other resources, such as the lookup tables of Keras layers.
        weights: Dense weights.
        state: Variables of random numbers and metrics.
    """

    tables: dict[str, EmbeddingVariable]
    id_tables: dict[str, IdTable]
    lookups: dict[str, IdLookup]
    resources: list[_Resource]
    weights: list[keras.Variable]
    state: list[keras.Variable]


def model_contents(model: keras.Model) -> ModelContents:
    """Returns the contents of `model`, without training state."""
    tables: dict[str, EmbeddingVariable] = {}
    id_tables: dict[str, IdTable] = {}
    resources: list[_Resource] = []
    for child in _resources(model):
        if isinstance(child, EmbeddingVariable):
            tables[_numbered(child.name, tables)] = child
        elif isinstance(child, IdTable):
            id_tables[_numbered(child.name, id_tables)] = child
        elif not isinstance(child, LookupCounters):
            resources.append(child)
    owners = {
        id(part): layer
        for layer in tf.train.TrackableView(model).descendants()
        if isinstance(layer, IdLookup)
        for part in tf.train.TrackableView(layer).descendants()
    }
    lookups = {
        key: owners[id(table)]
        for key, table in id_tables.items()
        if id(table) in owners
    }
    variables = [
        v for v in model.variables if not isinstance(v, EmbeddingVariable)
    ]
    weights = {id(v) for v in model.weights}
    return ModelContents(
        tables,
        id_tables,
        lookups,
        resources,
        [v for v in variables if id(v) in weights],
        [v for v in variables if id(v) not in weights],
    )


def _resources(root: Any) -> Iterator[_Resource | EmbeddingVariable]:
    """Yields the resources and tables in `root`, except optimizers' own."""
    waiting, seen = [root], {id(root)}
    for parent in waiting:
        if isinstance(parent, _Resource | EmbeddingVariable):
            yield parent
        for child in tf.train.TrackableView.children(parent).values():
            optimizer = isinstance(child, keras.optimizers.Optimizer)
            if id(child) not in seen and not optimizer:
                seen.add(id(child))
                waiting.append(child)
    # TensorFlow does not track lists and dicts of a Keras layer.
    for variable in root.variables:
        table = isinstance(variable, EmbeddingVariable)
        if table and id(variable) not in seen:
            seen.add(id(variable))
            yield variable


def _numbered(name: str, taken: dict[str, Any]) -> str:
    number, key = 0, name
    while key in taken:
        number += 1
        key = f"{name}_{number}"
    return key
