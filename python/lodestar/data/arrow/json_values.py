"""Exact values of JSON lines, and their Arrow arrays."""

import decimal
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from lodestar.data.arrow.decode import is_readable, missing_type
from lodestar.data.schema import Column

ABSENT: Any = object()
_TWICE: Any = object()
# float64 holds every integer below it.
EXACT_BELOW = 2**53
_MOST_DIGITS = 76  # of an Arrow decimal
_MOST_SHOWN = 60
_NONE: frozenset[str] = frozenset()
# Arrow types, each with the kinds of values that it holds exactly.
_TYPES = (
    (pa.null(), _NONE),
    (pa.bool_(), {"boolean"}),
    (pa.int64(), {"natural", "negative", "large natural", "large negative"}),
    (pa.uint64(), {"natural", "large natural", "unsigned"}),
    (pa.float64(), {"natural", "negative", "fraction"}),
    (pa.string(), {"string"}),
)
# The decoder reads the digits of a float; others must be integers.
_BEYOND_64_BITS = {
    True: ((pa.string(), {"long integer", "large fraction"}),),
    False: (
        (pa.decimal256(_MOST_DIGITS, 0), {"long integer"}),
        (pa.float64(), {"large fraction"}),
    ),
}
# What a type needs for Arrow to convert the digits of a number.
_PYTHON = {
    pa.float64(): float,
    pa.string(): str,
    pa.decimal256(_MOST_DIGITS, 0): decimal.Decimal,
}
_Kind = tuple[int, frozenset[str]]
_MISSING: _Kind = (0, _NONE)


class _Number(str):
    """The digits of a number that is not an integer, or a very long one."""


def parse_object(line: bytes) -> dict[str, Any]:
    """Parses a line; raises ValueError, with the reason, if it is no object.

    A key that occurs twice is an error when it is looked up.
    """
    try:
        found = _decoder.decode(line.decode())
    except UnicodeDecodeError as error:
        raise ValueError(
            f"found the byte 0x{line[error.start]:02x}, which is not utf-8"
        ) from error
    except json.JSONDecodeError as error:
        raise ValueError(
            f"is not JSON: {error.msg} at character {error.pos + 1}"
        ) from error
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError(f"found {_shown(found)}, expected a JSON object")
    return found


def lookup(row: Mapping[str, Any], name: str) -> Any:
    """Returns the value of a key or, if there is none, of a dotted path.

    Returns ABSENT if the row has neither; raises ValueError if a key occurs twice,
    or the path leads through another value than an object.
    """
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        value: Any = row.get(".".join(parts[:end]), ABSENT)
        if value is ABSENT:
            continue
        for part in parts[end:]:
            if value is None or value is ABSENT:
                return ABSENT
            if isinstance(value, dict):
                value = value.get(part, ABSENT)
            elif value is not _TWICE:
                raise ValueError(
                    f"column {name!r}: found {_shown(value)}, expected an "
                    f"object with the key {part!r}"
                )
        if value is _TWICE:
            raise ValueError(f"column {name!r}: the key occurs twice")
        return value
    return ABSENT


def as_array(column: Column, values: list[Any]) -> tuple[Any, dict[int, str]]:
    """Returns values as an Arrow array, and errors of rows that it cannot hold.

    The array is a dense union if the column can refuse some of the values by their
    type, or if no type holds all of them exactly.
    """
    arrays, codes, places, bad = _typed(column, values)
    least = leaf_of(missing_type(column))[1]
    arrow_type = arrays[0].type
    if (
        len(arrays) == 1
        and leaf_of(arrow_type)[1] >= least
        and is_readable(column, arrow_type)
    ):
        return arrays[0], bad
    return pa.UnionArray.from_dense(codes, places, arrays), bad


def as_sample(name: str, values: list[Any]) -> Any:
    """Returns values as an Arrow array from which to infer a column.

    Numbers among strings, and very long ones, become strings. If a column cannot
    hold the values, the type is a union or a list of structs.
    """
    column = Column.sparse(name, encoding="hash")
    arrays, codes, places, bad = _typed(column, values)
    if not bad and (len(arrays) > 1 or pa.types.is_decimal(arrays[0].type)):
        texts = [_converted(value, str) for value in values]
        arrays, codes, places, bad = _typed(column, texts)
    if bad:
        return pa.nulls(len(values), pa.list_(pa.struct([])))
    if len(arrays) == 1:
        return arrays[0]
    return pa.UnionArray.from_dense(codes, places, arrays)


def leaf_of(arrow_type: Any) -> tuple[Any, int]:
    """Returns the type of the values in nested lists, and the number of levels."""
    depth = 0
    while pa.types.is_list(arrow_type):
        arrow_type, depth = arrow_type.value_type, depth + 1
    return arrow_type, depth


def lists_of(leaf: Any, depth: int) -> Any:
    """Returns the type of nested lists."""
    for _ in range(depth):
        leaf = pa.list_(leaf)
    return leaf


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                found[key] = _TWICE
            seen.add(key)
    return found


def _integer(text: str) -> Any:
    return int(text) if len(text) <= _MOST_DIGITS else _Number(text)


def _constant(text: str) -> Any:
    raise ValueError(f"found {text}, which is not JSON; write null")


_decoder = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_float=_Number,
    parse_int=_integer,
    parse_constant=_constant,
)


def _kind(value: Any) -> _Kind:
    """Returns the levels of lists, and the kinds of values in them."""
    if value is None:
        return _MISSING
    if not isinstance(value, list):
        return 0, frozenset((_leaf_kind(value),))
    inner = [_kind(x) for x in value if x is not None]
    kinds = _NONE.union(*(kind for _, kind in inner))
    depth = max((depth for depth, _ in inner), default=0)
    if any(level < depth and (kind or not level) for level, kind in inner):
        kinds |= {"other"}
    return depth + 1, kinds


def _leaf_kind(value: Any) -> str:
    if isinstance(value, _Number):
        is_large = abs(float(value)) >= EXACT_BELOW
        return "large fraction" if is_large else "fraction"
    if isinstance(value, str):
        # JSON may escape half of a surrogate pair.
        return "string" if value.isascii() or _is_unicode(value) else "other"
    if isinstance(value, bool):
        return "boolean"
    if not isinstance(value, int):
        return "other"
    if abs(value) < EXACT_BELOW:
        return "natural" if value >= 0 else "negative"
    if -(2**63) <= value < 2**63:
        return "large natural" if value > 0 else "large negative"
    return "unsigned" if 0 < value < 2**64 else "long integer"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _type_of(kind: _Kind, column: Column) -> Any:
    """Returns the type that holds values of a kind exactly, or None."""
    depth, leaves = kind
    for leaf, held in (*_TYPES, *_BEYOND_64_BITS[column.dtype == "float"]):
        if leaves <= held:
            return lists_of(leaf, depth)
    return None


def _typed(column: Column, values: list[Any]) -> tuple[Any, Any, Any, dict]:
    """Returns the arrays, type codes and offsets of a dense union, and bad rows."""
    bad = {}
    kinds = list(map(_kind, values))
    for row, kind in enumerate(kinds):
        if _type_of(kind, column) is None:
            bad[row] = (
                f"found {_shown(values[row])}, expected a value, or a list of "
                "values of one type"
            )
            kinds[row] = _MISSING
    types = _types_of(set(kinds), column)
    found = list(dict.fromkeys(types.values())) or [missing_type(column)]
    children: list[list[Any]] = [[] for _ in found]
    codes = np.zeros(len(values), np.int8)
    places = np.zeros(len(values), np.int32)
    for row, kind in enumerate(kinds):
        code = found.index(types[kind]) if kind in types else 0
        codes[row], places[row] = code, len(children[code])
        children[code].append(None if row in bad else values[row])
    arrays = [
        pa.array([_converted(x, _PYTHON.get(leaf_of(t)[0])) for x in child], t)
        for child, t in zip(children, found)
    ]
    return arrays, pa.array(codes), pa.array(places), bad


def _types_of(kinds: set[_Kind], column: Column) -> dict[_Kind, Any]:
    """Returns the types of kinds of values: one per level of lists, if possible."""
    types = {}
    for depth, leaves in kinds - {_MISSING}:
        joint = _NONE.union(*(k for d, k in kinds if d == depth))
        if not joint:  # only empty lists
            types[depth, leaves] = lists_of(pa.null(), max(depth, column.depth))
        else:
            types[depth, leaves] = _type_of((depth, joint), column) or (
                _type_of((depth, leaves), column)
            )
    return types


def _converted(value: Any, convert: Any) -> Any:
    if value is None or convert is None:
        return value
    if isinstance(value, list):
        return [_converted(x, convert) for x in value]
    if convert is str and not isinstance(value, str):
        return json.dumps(value)
    return convert(value)


def _shown(value: Any) -> str:
    text = value
    if not isinstance(value, _Number):
        text = json.dumps(value, default=lambda _: "...")
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
