"""Records of named fields, as JSON has them, read by tables.

A table has for each field what reads it, by its name and what was found; raises
ValueError where that is not as it must be.

    read_fields("a file", {"file": text(), "bytes": integer(0)}, found)
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

Reader = Callable[[str, Any], Any]


def read_fields(
    what: str, table: Mapping[str, Reader], found: Any
) -> dict[str, Any]:
    """The values of the table's fields of a record; others are passed over."""
    if not isinstance(found, dict):
        raise ValueError(f"{what} is {found!r:.60}, wanted an object")
    for name in table:
        if name not in found:
            raise ValueError(f"has no `{name}`")
    return {name: read(name, found[name]) for name, read in table.items()}


def value(accepts: Callable[[Any], Any], wanted: str) -> Reader:
    """Reads what is accepted, as it is."""

    def read(name: str, found: Any) -> Any:
        if not accepts(found):
            raise ValueError(f"`{name}` is {found!r:.60}, wanted {wanted}")
        return found

    return read


def integer(low: int, high: int = 2**63 - 1) -> Reader:
    """Reads integers of a range."""
    return value(
        lambda found: type(found) is int and low <= found <= high,
        f"an integer from {low} to {high}",
    )


def text(
    accepts: Callable[[str], Any] = lambda _: True, wanted: str = "text"
) -> Reader:
    """Reads strings, of which some may be refused."""
    return value(
        lambda found: isinstance(found, str) and accepts(found), wanted
    )


def or_none(read: Reader) -> Reader:
    """Reads None, too."""
    return lambda name, found: None if found is None else read(name, found)


def list_of(read: Reader) -> Reader:
    """Reads lists as tuples."""
    is_list = value(lambda found: isinstance(found, list), "a list")
    return lambda name, found: tuple(
        read(name, item) for item in is_list(name, found)
    )


def read_by(reader: Reader, **options: Any) -> Any:
    """A field of a dataclass that is read so; options as of any other."""
    return dataclasses.field(metadata={"reader": reader}, **options)


def table_of(cls: type) -> dict[str, Reader]:
    """The table of a dataclass, of whose fields each is `read_by` something."""
    return {f.name: f.metadata["reader"] for f in dataclasses.fields(cls)}


def records(what: str, cls: type) -> Reader:
    """Reads lists of records of such a dataclass."""
    return list_of(record(what, table_of(cls), cls))


def record(
    what: str, table: Mapping[str, Reader], make: Callable[..., Any]
) -> Reader:
    """Reads records, of whose fields `make` makes something."""
    return lambda _, found: make(**read_fields(what, table, found))
