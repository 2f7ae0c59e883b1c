"""Finds the tables in the argument of a call."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from lodestar._typing import HasVariables
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.layers.id_lookup import IdLookup
from lodestar.lookup import IdTable
from lodestar.ops.compile_line import compiled_optimizer

IdKeys = IdTable | IdLookup
# What tables can be found in.
HasTables: TypeAlias = (
    EmbeddingVariable
    | IdKeys
    | HasVariables
    | list[Any]
    | tuple[Any, ...]
    | Mapping[str, Any]
)


@dataclasses.dataclass(frozen=True)
class FoundTables:
    """Tables by name; names are unique over both kinds.

    Attributes:
        embeddings: Embedding variables, whose rows are written one by one.
        id_tables: Id tables, which are written whole.
    """

    embeddings: dict[str, EmbeddingVariable]
    id_tables: dict[str, IdKeys]


def find_tables(tables: HasTables) -> FoundTables:
    """Finds the tables in the `model` argument of `save` and `restore`.

    Args:
        tables: An EmbeddingVariable, IdTable or IdLookup; a layer, Keras model
            or tf.Module that holds some; a list of these; or a dict of names to
            objects with one table each. Tables of optimizers are left out.

    Raises:
        ValueError: There is no table, two tables have one name, or one table
            has two names (names them).
    """
    named: list[tuple[str, Any]] = []
    if isinstance(tables, Mapping):
        for name, value in tables.items():
            inside = list(tables_in(value))
            if not isinstance(name, str) or not name:
                raise ValueError(
                    f"The keys of `model` must be table names, got {name!r}."
                )
            if len(inside) != 1:
                names = [table.name for table in inside]
                raise ValueError(
                    f"`model[{name!r}]` must hold one table, got {names}."
                )
            named.append((name, inside[0]))
    else:
        named = [(table.name, table) for table in tables_in(tables)]
    if not named:
        raise ValueError(f"`model` holds no table: {tables!r}.")
    return _by_name(named)


def tables_of_optimizer(model: Any) -> dict[str, EmbeddingVariable]:
    """Returns name -> table that the optimizer of `model` created."""
    found = _tables_of_optimizer(model)
    return _by_name((table.name, table) for table in found).embeddings


def _by_name(named: Iterable[tuple[str, Any]]) -> FoundTables:
    found = FoundTables({}, {})
    names: dict[int, str] = {}
    tables: dict[str, Any] = {}
    for name, table in named:
        if names.get(id(table), name) != name:
            raise ValueError(
                f"`model` has one table under two names, {names[id(table)]!r} "
                f"and {name!r}."
            )
        if tables.get(name, table) is not table:
            raise ValueError(
                f"`model` has two tables of the name {name!r}: "
                f"{tables[name]!r} and {table!r}. Pass a dict with unique names, "
                "or name the tables."
            )
        names[id(table)] = name
        tables[name] = table
        if isinstance(table, EmbeddingVariable):
            found.embeddings[name] = table
        else:
            found.id_tables[name] = table
    return found


def tables_in(value: Any) -> Iterator[Any]:
    """Yields each table in the argument of `find_tables` once, as tracked."""
    if isinstance(value, (EmbeddingVariable, IdTable, IdLookup)):
        yield value
        return
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from tables_in(part)
        return
    if not isinstance(
        value, (keras.layers.Layer, keras.optimizers.Optimizer, tf.Module)
    ):
        raise ValueError(
            "`model` must be an EmbeddingVariable, an IdTable, an IdLookup, a "
            "layer, a model, a tf.Module, a list of these or a dict of these "
            f"by name, got {value!r}."
        )
    members = list(tf.train.TrackableView(value).descendants())
    if isinstance(value, keras.layers.Layer):
        # TensorFlow does not track lists and dicts of a Keras layer.
        known = {id(member) for member in members}
        members += [v for v in value.variables if id(v) not in known]
    hidden = {id(table) for table in _tables_of_optimizer(value)}
    for member in members:
        if isinstance(member, IdLookup):
            hidden |= {
                id(part)
                for part in tf.train.TrackableView(member).descendants()
                if part is not member
            }
    for member in members:
        if id(member) not in hidden and isinstance(
            member, (EmbeddingVariable, IdTable, IdLookup)
        ):
            yield member


def _tables_of_optimizer(model: Any) -> list[Any]:
    optimizer = compiled_optimizer(model)
    if optimizer is None:
        return []
    trained = {id(variable) for variable in model.variables}
    return [t for t in tables_in(optimizer) if id(t) not in trained]
