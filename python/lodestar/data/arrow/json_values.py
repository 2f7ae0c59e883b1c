"""Exact values of JSON lines, and their Arrow arrays."""

import decimal
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lodestar.data.arrow.decode import is_readable, missing_type
from lodestar.data.schema import Column
from lodestar.data.schema.domain import EXACT_BELOW

ABSENT: Any = object()
_TWICE: Any = object()
_EXACT_BELOW = EXACT_BELOW[64]
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
    True: ((pa.large_string(), {"long integer", "large fraction"}),),
    False: (
        (pa.decimal256(_MOST_DIGITS, 0), {"long integer"}),
        (pa.float64(), {"large fraction"}),
    ),
}
# Converts numbers to what Arrow accepts for a type.
_PYTHON = {
    pa.float64(): float,
    pa.large_string(): str,
    pa.decimal256(_MOST_DIGITS, 0): decimal.Decimal,
}
_Kind = tuple[int, frozenset[str]]
_Parts = list[tuple[Any, Sequence[int]]]
_MISSING: _Kind = (0, _NONE)


class _Number(str):
    """The digits of a number that is not an integer, or a very long one."""


class _Constant(str):
    """NaN or Infinity, which Python writes although they are not JSON."""


def parse_object(line: bytes) -> dict[str, Any]:
    """Parses a line; raises ValueError, with the reason, if it is no object.

    A key that occurs twice, and NaN, are errors when they are looked up.
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
    value = row.get(name, ABSENT)
    parts = name.split(".") if value is ABSENT else []
    for end in range(len(parts) - 1, 0, -1):
        value = row.get(".".join(parts[:end]), ABSENT)
        if value is not ABSENT:
            value = _inside(value, name, parts[end:])
            break
    if isinstance(value, _Constant):
        raise ValueError(
            f"column {name!r}: found {value}, which is not JSON; write null"
        )
    if value is _TWICE:
        raise ValueError(f"column {name!r}: the key occurs twice")
    return value


def _inside(value: Any, name: str, keys: Sequence[str]) -> Any:
    for key in keys:
        if value is None or value is ABSENT:
            return ABSENT
        if isinstance(value, dict):
            value = value.get(key, ABSENT)
        elif value is not _TWICE:
            raise ValueError(
                f"column {name!r}: found {_shown(value)}, expected an object "
                f"with the key {key!r}"
            )
    return value


def as_array(column: Column, values: list[Any]) -> tuple[Any, dict[int, str]]:
    """Returns values as an Arrow array, and errors of rows that it cannot hold.

    The array is a dense union if no type holds all values exactly, or if the column
    cannot have values of the type.
    """
    parts, bad = _typed(column, values)
    (array, _), *others = parts
    least = leaf_of(missing_type(column))[1]
    if (
        others
        or leaf_of(array.type)[1] < least
        or not is_readable(column, array.type)
    ):
        array = _union(parts, len(values))
    return array, bad


def as_sample(name: str, values: list[Any]) -> Any:
    """Returns values as an Arrow array from which to infer a column.

    Numbers among strings, and very long ones, become strings. If a column cannot
    hold the values, the type is a union or a list of structs.
    """
    column = Column.sparse(name, encoding="hash")
    parts, bad = _typed(column, values)
    if len(parts) > 1 or pa.types.is_decimal(leaf_of(parts[0][0].type)[0]):
        parts, bad = _typed(column, [_as_text(value) for value in values])
    if bad:
        return pa.nulls(len(values), pa.list_(pa.struct([])))
    return parts[0][0] if len(parts) == 1 else _union(parts, len(values))


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


_decoder = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_float=_Number,
    parse_int=_integer,
    parse_constant=_Constant,
)


def _kind(value: Any) -> _Kind:
    """Returns the levels of lists, and the kinds of values in them."""
    if value is None:
        return _MISSING
    if type(value) is not list:
        return _scalar(_leaf_kind(value))
    inner = [_kind(x) for x in value if x is not None]
    kinds = _NONE.union(*(kind for _, kind in inner))
    depth = max((depth for depth, _ in inner), default=0)
    if any(level < depth and kind for level, kind in inner):
        kinds |= {"other"}
    return depth + 1, kinds


@functools.cache
def _scalar(kind: str) -> _Kind:
    return 0, frozenset((kind,))


def _leaf_kind(value: Any) -> str:
    python_type = type(value)
    if python_type is str:
        # JSON may escape half of a surrogate pair.
        return "string" if value.isascii() or _is_unicode(value) else "other"
    if python_type is _Number:
        is_large = abs(float(value)) >= _EXACT_BELOW
        return "large fraction" if is_large else "fraction"
    if python_type is bool:
        return "boolean"
    if python_type is not int:
        return "other"
    if abs(value) < _EXACT_BELOW:
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


def _typed(column: Column, values: list[Any]) -> tuple[_Parts, dict[int, str]]:
    """Returns an array and its rows for each type, and errors of bad rows."""
    bad = {}
    kinds = list(map(_kind, values))
    wrong = {kind for kind in set(kinds) if _type_of(kind, column) is None}
    if wrong:
        values = list(values)
        for row, kind in enumerate(kinds):
            if kind in wrong:
                bad[row] = (
                    f"found {_shown(values[row])}, expected a value, or a list "
                    "of values of one type"
                )
                values[row], kinds[row] = None, _MISSING
    types = _types_of(set(kinds), column)
    rows: dict[Any, Any] = {t: [] for t in types.values()}
    if len(rows) < 2:
        only = next(iter(rows), missing_type(column))
        return [(_array(values, only), range(len(values)))], bad
    first = next(iter(rows))
    for row, kind in enumerate(kinds):
        rows[types.get(kind, first)].append(row)
    return [
        (_array([values[i] for i in r], t), r) for t, r in rows.items()
    ], bad


def _array(values: list[Any], arrow_type: Any) -> Any:
    convert = _PYTHON.get(leaf_of(arrow_type)[0])
    if convert is not None:
        values = [_converted(value, convert) for value in values]
    return pa.array(values, arrow_type)


def _union(parts: _Parts, size: int) -> Any:
    codes, places = np.zeros(size, np.int8), np.zeros(size, np.int32)
    for code, (_, rows) in enumerate(parts):
        codes[rows] = code
        places[rows] = np.arange(len(rows))
    return pa.UnionArray.from_dense(
        pa.array(codes), pa.array(places), [array for array, _ in parts]
    )


def _types_of(kinds: set[_Kind], column: Column) -> dict[_Kind, Any]:
    """Returns the types of kinds of values: one per level of lists, if possible."""
    types = {}
    levels: dict[int, list[_Kind]] = {}
    for depth, leaves in kinds - {_MISSING}:
        # An empty list fits among lists of lists.
        level = depth if leaves else max(depth, column.depth)
        levels.setdefault(level, []).append((depth, leaves))
    for level, inside in levels.items():
        joint = _NONE.union(*(leaves for _, leaves in inside))
        for kind in inside:
            types[kind] = _type_of((level, joint), column) or (
                _type_of((level, kind[1]), column)
            )
    return types


def _converted(value: Any, convert: Any) -> Any:
    if isinstance(value, list):
        return [_converted(x, convert) for x in value]
    return None if value is None else convert(value)


def _as_text(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_text(x) for x in value]
    if value is None or isinstance(value, dict):
        return value
    return str(value) if isinstance(value, str) else json.dumps(value)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        text = f"[{', '.join(map(_shown, value))}]"
    elif isinstance(value, dict):
        text = "{...}" if value else "{}"
    else:
        is_digits = isinstance(value, (_Number, _Constant))
        text = value if is_digits else json.dumps(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
