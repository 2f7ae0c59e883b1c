"""Which column of a source fills which column of a schema."""

import dataclasses
from collections.abc import Iterable, Sequence

from lodestar.schema import Column, Schema


@dataclasses.dataclass(frozen=True)
class Binding:
    """How a column of a source fills a column of a schema.

    Attributes:
        column: The declared column.
        source: Name of the source's column, or the dotted path of a field.
        part: For a source column of several labels: which one this is.
        width: With `part`: the number of labels.
        offset: Number added to each id.
        limit: Ids must be below it; 0 means no limit.
    """

    column: Column
    source: str
    part: int | None = None
    width: int = 0
    offset: int = 0
    limit: int = 0


def bind(columns: Iterable[Column]) -> list[Binding]:
    """Binds each column to the source's column of its name."""
    return [Binding(column, column.name) for column in columns]


def schema_of(bindings: Sequence[Binding], na_values: Iterable[str]) -> Schema:
    """Returns the schema of the bound columns."""
    return Schema(
        [binding.column for binding in bindings], na_values=tuple(na_values)
    )
