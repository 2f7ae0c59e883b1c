"""Readers of JSON objects with named fields.

A table maps each field to its reader, which takes the field's name and value
and raises ValueError if the value is invalid.

    read_fields("a file", {"file": text(), "bytes": integer(0)}, found)

A manifest may list many files, so each reader is a single function.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

Reader = Callable[[str, Any], Any]


def read_fields(
    what: str, table: Mapping[str, Reader], found: Any
) -> dict[str, Any]:
    """Returns the values of the table's fields; ignores other fields."""
    if not isinstance(found, dict):
        raise ValueError(f"{what} must be an object, got {found!r:.60}")
    try:
        return {name: read(name, found[name]) for name, read in table.items()}
    except KeyError as error:
        raise ValueError(f"has no `{error.args[0]}`") from None


def value(accepts: Callable[[Any], Any], wanted: str) -> Reader:
    """Reads accepted values unchanged."""

    def read(name: str, found: Any) -> Any:
        if not accepts(found):
            raise _wrong(name, wanted, found)
        return found

    return read


def _wrong(name: str, wanted: str, found: Any) -> ValueError:
    return ValueError(f"`{name}` must be {wanted}, got {found!r:.60}")


def integer(low: int, high: int = 2**63 - 1) -> Reader:
    """Reads integers in [low, high]."""

    def read(name: str, found: Any) -> int:
        if type(found) is int and low <= found <= high:
            return found
        raise _wrong(name, f"an integer in [{low}, {high}]", found)

    return read


def flag(name: str, found: Any) -> bool:
    """Reads booleans."""
    if isinstance(found, bool):
        return found
    raise _wrong(name, "true or false", found)


def text(
    accepts: Callable[[str], Any] = lambda _: True, wanted: str = "a string"
) -> Reader:
    """Reads accepted strings."""

    def read(name: str, found: Any) -> str:
        if isinstance(found, str) and accepts(found):
            return found
        raise _wrong(name, wanted, found)

    return read


def or_none(read: Reader) -> Reader:
    """Also reads None."""
    return lambda name, found: None if found is None else read(name, found)


def list_of(read: Reader) -> Reader:
    """Reads lists as tuples."""

    def read_all(name: str, found: Any) -> tuple[Any, ...]:
        if not isinstance(found, list):
            raise _wrong(name, "a list", found)
        return tuple([read(name, item) for item in found])

    return read_all


def read_by(reader: Reader, **options: Any) -> Any:
    """Returns a dataclass field with a reader; takes the options of `field`."""
    return dataclasses.field(metadata={"reader": reader}, **options)


def table_of(cls: type) -> dict[str, Reader]:
    """Returns the table of a dataclass whose fields are all `read_by`."""
    return {f.name: f.metadata["reader"] for f in dataclasses.fields(cls)}


def records(what: str, cls: type) -> Reader:
    """Reads lists of objects of such a dataclass."""
    return list_of(record(what, table_of(cls), cls))


def record(
    what: str, table: Mapping[str, Reader], make: Callable[..., Any]
) -> Reader:
    """Reads objects and passes their fields to `make`."""
    return lambda _, found: make(**read_fields(what, table, found))
