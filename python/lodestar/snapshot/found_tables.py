"""The tables that a call is given, by name."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.layers.id_lookup import IdLookup
from lodestar.lookup import IdTable
from lodestar.ops.compile_line import compiled_optimizer

IdKeys = IdTable | IdLookup


@dataclasses.dataclass(frozen=True)
class FoundTables:
    """Tables by name; a name stands for one table of either kind.

    Attributes:
        embeddings: Written row by row.
        id_tables: Written whole.
    """

    embeddings: dict[str, EmbeddingVariable]
    id_tables: dict[str, IdKeys]


def find_tables(tables: Any) -> FoundTables:
    """Finds the tables in what a user gives.

    Args:
        tables: EmbeddingVariable, IdTable, IdLookup; a layer, a Keras model or
            a tf.Module that holds some; a list of these; or a dict of a name of
            your own to something with one table. Of a model those of the
            optimizer do not count.

    Raises:
        ValueError: There are none, or two of one name, or one under two names
            (names them).
    """
    named: list[tuple[str, Any]] = []
    if isinstance(tables, Mapping):
        for name, value in tables.items():
            inside = list(tables_in(value))
            if not isinstance(name, str) or not name:
                raise ValueError(
                    f"`model` has the key {name!r}, wanted a table's name."
                )
            if len(inside) != 1:
                raise ValueError(
                    f"`tables[{name!r}]` holds {len(inside)} tables"
                    f"{_names(inside)}; wanted one."
                )
            named.append((name, inside[0]))
    else:
        named = [(table.name, table) for table in tables_in(tables)]
    if not named:
        raise ValueError(f"`model` holds no table: {tables!r}.")
    return _by_name(named)


def tables_of_optimizer(model: Any) -> dict[str, EmbeddingVariable]:
    """The tables that the optimizer of `model` keeps for itself, by name."""
    found = _tables_of_optimizer(model)
    return _by_name((table.name, table) for table in found).embeddings


def _by_name(named: Iterable[tuple[str, Any]]) -> FoundTables:
    found = FoundTables({}, {})
    names: dict[int, str] = {}
    tables: dict[str, Any] = {}
    for name, table in named:
        if names.get(id(table), name) != name:
            raise ValueError(
                f"`model` has one table as {names[id(table)]!r} and as "
                f"{name!r}; wanted one name."
            )
        if tables.get(name, table) is not table:
            raise ValueError(
                f"`model` has two of the name {name!r}: {tables[name]!r} and "
                f"{table!r}; give a dict with names that differ, or the tables "
                "names of their own."
            )
        names[id(table)] = name
        tables[name] = table
        if isinstance(table, EmbeddingVariable):
            found.embeddings[name] = table
        else:
            found.id_tables[name] = table
    return found


def tables_in(value: Any) -> Iterator[Any]:
    """Each table in what `find_tables` takes once, in the order of tracking."""
    if isinstance(value, (EmbeddingVariable, IdTable, IdLookup)):
        yield value
        return
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from tables_in(part)
        return
    # What a layer or module tracks; its own tables are attributes.
    if not isinstance(
        value, (keras.layers.Layer, keras.optimizers.Optimizer, tf.Module)
    ):
        raise ValueError(
            f"`model` holds {value!r}; wanted an EmbeddingVariable, an "
            "IdTable, an IdLookup, a layer, a model or a tf.Module, a list of "
            "these, or a dict by name."
        )
    members = list(tf.train.TrackableView(value).descendants())
    if isinstance(value, keras.layers.Layer):
        # TensorFlow does not look into lists and dicts of a Keras layer.
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


def _names(tables: Iterable[Any]) -> str:
    names = [repr(table.name) for table in tables]
    return f" ({', '.join(names)})" if names else ""
