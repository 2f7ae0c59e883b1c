"""Exact values of JSON."""

import json
import re
from collections.abc import Callable
from typing import Any

from lodestar.schema.column import Column
from lodestar.schema.domain import expected

_MOST_DIGITS = len(str(-(2**63)))
_MOST_SHOWN = 60
_HALF_PAIR = re.compile("[\ud800-\udfff]")


class JsonNumber(str):
    """The text of a number with a fraction, an exponent or more than 64 bits."""


class _Refused(str):
    """The error of a value, raised only if the value is read."""


def parse_json(text: str) -> Any:
    """Parses JSON; raises ValueError, with the reason, for other text.

    Integers of 64 bits are ints, and other numbers are JsonNumbers. NaN, Infinity and
    a key that occurs twice are errors in `map_leaves`.
    """
    try:
        return _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"is not JSON: {error.msg} at character {error.pos + 1}"
        ) from error
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error


def map_leaves(value: Any, depth: int, convert: Callable[[Any], Any]) -> Any:
    """Converts the values in lists of `depth` levels; null stays None.

    Raises ValueError if there is no list at some level.
    """
    if value is None:
        return None
    if not depth:
        return convert(value)
    if not isinstance(value, list):
        raise fault(value, "a list")
    return [map_leaves(x, depth - 1, convert) for x in value]


def check_leaf(value: Any, column: Column) -> Any:
    """Returns a value without lists; raises ValueError if it cannot fit a column."""
    if isinstance(value, (dict, list, _Refused)):
        raise fault(value, expected(column))
    if type(value) is str:
        if not value.isascii() and _HALF_PAIR.search(value):
            raise fault(value, "Unicode, not half of a surrogate pair")
    elif column.strings_only or column.encoding == "hex":
        raise fault(value, "a string")
    elif column.encoding == "hash" and isinstance(value, JsonNumber):
        # 7.0, 7.00 and 7e0 are equal, but would have different ids.
        if not value.removeprefix("-").isdigit():
            raise fault(value, expected(column))
    return value


def json_texts(value: Any, column: Column) -> Any:
    """Returns JSON lists of a column's depth, with their values as strings.

    Raises ValueError if a value cannot fit the column.
    """
    return map_leaves(
        value, column.depth, lambda x: leaf_text(check_leaf(x, column))
    )


def leaf_text(value: Any) -> str:
    """Returns a string itself, and the JSON text of another value."""
    return str(value) if isinstance(value, str) else json.dumps(value)


def fault(value: Any, allowed: str) -> ValueError:
    """Returns the error of another value than the allowed ones."""
    if isinstance(value, _Refused):
        return ValueError(value)
    return ValueError(f"found {_shown(value)}, expected {allowed}")


def _shown(value: Any) -> str:
    if isinstance(value, list):
        text = f"[{', '.join(map(_shown, value))}]"
    elif isinstance(value, dict):
        text = "{...}" if value else "{}"
    else:
        text = json.dumps(value) if type(value) is str else leaf_text(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _integer(text: str) -> Any:
    number = int(text) if len(text) <= _MOST_DIGITS else 2**64
    return number if -(2**63) <= number < 2**64 else JsonNumber(text)


def _constant(name: str) -> Any:
    return _Refused(f"found {name}, which is not JSON; write null")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                found[key] = _Refused("the key occurs twice")
            seen.add(key)
    return found


_decoder = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_float=JsonNumber,
    parse_int=_integer,
    parse_constant=_constant,
)
