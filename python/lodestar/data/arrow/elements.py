"""Converts the values of an Arrow array without lists to ids or numbers."""

import decimal
import functools
import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from lodestar._errors import DataError
from lodestar._library import gen_ops
from lodestar.schema import Column
from lodestar.schema.arrow_types import as_text, is_text, stripped
from lodestar.schema.domain import (
    ANY_INTEGER,
    EXACT_BELOW,
    USUAL_INTEGER,
    expected,
    found_float,
    to_float32,
)

types = pa.types
_INTEGER = re.compile(r"\s*([+-]?[0-9]{1,4000})(?:\.0*)?\s*", re.ASCII)
_HEX = re.compile(r"\s*(?:0[xX])?([0-9a-fA-F]{1,4000})\s*", re.ASCII)
_BOOLS = {"true": 1, "false": 0}
_MOST_SHOWN = 60
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "D": 86_400 * 10**9,
}


class Elements(NamedTuple):
    """Values of a column.

    Attributes:
        values: int64 or float32 `[N]`; arbitrary where missing or bad.
        missing: bool `[N]`, or None if no value is missing.
        bad: Ascending positions of values that contradict the column.
        describe: Maps such a position to the found and the allowed values.
    """

    values: np.ndarray
    missing: np.ndarray | None = None
    bad: np.ndarray = np.zeros(0, np.int64)
    describe: Callable[[int], str] = str


def read_elements(
    array: Any, column: Column, na_values: Collection[str]
) -> Elements:
    """Reads an Arrow array without lists as the values of a column.

    Raises DataError if values of the array's type can never fit the column.
    """
    arrow_type = array.type
    if types.is_dictionary(arrow_type):
        return _of_dictionary(array, column, na_values)
    if types.is_run_end_encoded(arrow_type):
        return read_elements(pc.run_end_decode(array), column, na_values)
    if types.is_null(arrow_type):
        dtype = np.float32 if _is_float(column) else np.int64
        return Elements(np.zeros(len(array), dtype), np.ones(len(array), bool))
    if isinstance(arrow_type, pa.ExtensionType):
        return read_elements(array.storage, column, na_values)
    if column.strings_only and not is_text(arrow_type):
        raise DataError(
            f"found the type {arrow_type}, expected strings, whose leading zeros "
            "count; read the values as strings, e.g. with dtype=str, or declare "
            "the column without `strings_only`"
        )
    if column.positive and not is_text(arrow_type):
        # Compare whole numbers as integers: 2.0 equals "2".
        array = array.cast(pa.large_string())
        if types.is_boolean(arrow_type):
            array = _spelled_booleans(array, column)
        return _of_text(array, column, na_values)
    if is_text(arrow_type):
        return _of_text(array, column, na_values)
    if types.is_date(arrow_type) or types.is_timestamp(arrow_type):
        return _of_time(array, column)
    missing = _nulls(array)
    if types.is_boolean(arrow_type):
        array = array.cast(pa.int8())
    elif types.is_decimal(arrow_type):
        return _of_decimal(array, column, missing)
    if types.is_integer(array.type):
        return _of_integers(array, column, missing)
    if types.is_floating(array.type):
        return _of_floats(array, column, missing)
    raise DataError(
        f"found the type {arrow_type}, which cannot be read as "
        f"{expected(column)}"
    )


def hash_text(array: Any, prefix: str) -> np.ndarray:
    """Hashes strings or bytes to int64 ids `[N]`; see `lodestar.hash_ids`.

    `prefix` is the column name and a zero byte, or "". Null hashes like "".
    """
    array = array.cast(pa.large_binary())
    _, offsets, data = array.buffers()
    if len(array) == 0:
        return np.zeros(0, np.int64)
    ends = np.frombuffer(offsets, np.int64)[
        array.offset : array.offset + len(array) + 1
    ]
    data = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
    first = int(ends[0])
    # On a GPU machine, TensorFlow would otherwise copy the strings to and from it.
    with tf.device("CPU:0"):
        ids: np.ndarray = gen_ops.lodestar_hash_text(
            data=data[first : int(ends[-1])],
            offsets=ends - first,
            prefix=prefix,
        ).numpy()
    return ids


def _is_float(column: Column) -> bool:
    return column.dtype == "float"


def _shown(value: Any) -> str:
    text = repr(value)
    if len(text) > _MOST_SHOWN:
        text = text[:_MOST_SHOWN] + "..."
    return text


def _nulls(array: Any) -> np.ndarray | None:
    if not array.null_count:
        return None
    return array.is_null().to_numpy(zero_copy_only=False)


def _either(a: np.ndarray | None, b: np.ndarray | None) -> np.ndarray | None:
    if a is None or b is None:
        return b if a is None else a
    return a | b


def _of_dictionary(
    array: Any, column: Column, na_values: Collection[str]
) -> Elements:
    """Reads each dictionary value once."""
    words = read_elements(array.dictionary, column, na_values)
    indices = array.indices
    missing = _nulls(indices)
    codes = indices.fill_null(0) if indices.null_count else indices
    codes = codes.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    if not len(words.values):
        return Elements(np.zeros(len(codes), words.values.dtype), missing)
    if words.missing is not None:
        missing = _either(missing, words.missing[codes])
    bad = np.zeros(0, np.int64)
    if len(words.bad):
        is_bad = np.isin(codes, words.bad)
        if missing is not None:
            is_bad &= ~missing
        bad = np.flatnonzero(is_bad)
    return Elements(
        words.values[codes],
        missing,
        bad,
        lambda place: words.describe(int(codes[place])),
    )


def _of_integers(
    array: Any, column: Column, missing: np.ndarray | None
) -> Elements:
    if column.encoding == "hash":
        return Elements(_hashed(array.cast(pa.large_string()), column), missing)
    if array.null_count:
        array = array.fill_null(0)
    numbers = array.to_numpy(zero_copy_only=False)
    if _is_float(column):
        return _narrowed(numbers, column, missing)
    integers = numbers.astype(np.int64, copy=False)
    if numbers.dtype != np.uint64 or column.is_feature:
        return Elements(integers, missing)
    # Only ids keep their bits: a label would become negative.
    bad = np.flatnonzero(integers < 0)
    return Elements(
        integers,
        missing,
        bad,
        lambda place: f"found {numbers[place]}, expected {expected(column)}",
    )


def _of_floats(
    array: Any, column: Column, missing: np.ndarray | None
) -> Elements:
    bits = array.type.bit_width
    if array.null_count:
        array = array.fill_null(0)
    numbers = array.to_numpy(zero_copy_only=False)
    if _is_float(column):
        return _narrowed(numbers, column, missing)
    missing = _either(missing, np.isnan(numbers) if len(numbers) else None)
    with np.errstate(invalid="ignore"):
        good = np.abs(numbers) < EXACT_BELOW[bits]
        if column.kind == "label":  # which is a float again
            good = (numbers >= -(2.0**63)) & (numbers < 2.0**63)
        integers = numbers.astype(np.int64)
        good &= integers == numbers
    if missing is not None:
        good |= missing
    bad = np.flatnonzero(~good)

    def describe(place: int) -> str:
        number = float(numbers[place])
        text = f"found {number}, expected {expected(column)}"
        if number.is_integer() and column.kind != "label":
            text += (
                f"; float{bits} holds every integer only below "
                f"{EXACT_BELOW[bits]}"
            )
        return text

    if column.encoding == "hash":
        integers = _hashed(pa.array(integers).cast(pa.large_string()), column)
    return Elements(integers, missing, bad, describe)


def _narrowed(
    numbers: np.ndarray, column: Column, missing: np.ndarray | None
) -> Elements:
    """Returns numbers as float32. NaN is missing, as in pandas."""
    is_nan = np.isnan(numbers)
    if is_nan.any():
        missing = _either(missing, is_nan)
    narrow, is_bad = to_float32(column, numbers)
    if missing is not None:
        is_bad &= ~missing
    return Elements(
        narrow,
        missing,
        np.flatnonzero(is_bad),
        lambda place: found_float(column, numbers[place]),
    )


def _of_decimal(
    array: Any, column: Column, missing: np.ndarray | None
) -> Elements:
    if _is_float(column):
        texts = array.cast(pa.large_string())
        return _of_text(texts, column, ())
    try:
        integers = array.cast(pa.int64())
    except pa.ArrowInvalid:
        # A value is fractional or does not fit in int64.
        texts = array.cast(pa.large_string())
        texts = pc.replace_substring_regex(texts, r"\.0+$", "")
        if column.encoding != "hash":
            return _of_text(texts, column, ())
        has_point = pc.match_substring(texts, ".").fill_null(False)
        bad = np.flatnonzero(has_point.to_numpy(zero_copy_only=False))
        return Elements(
            _hashed(texts, column),
            missing,
            bad,
            lambda place: (
                f"found {_shown(texts[place].as_py())}, expected "
                f"{expected(column)}"
            ),
        )
    return _of_integers(integers, column, missing)


def _of_time(array: Any, column: Column) -> Elements:
    if column.unit is None:
        raise DataError(
            f"found the type {array.type}; declare the column's `unit` ('s', "
            "'ms', 'us', 'ns' or 'D') to read it as an integer since 1970-01-01"
        )
    if types.is_timestamp(array.type) and array.type.tz is not None:
        array = array.cast(pa.timestamp(array.type.unit))  # in UTC
    missing = _nulls(array)
    moments = array.to_numpy(zero_copy_only=False)
    integers = moments.astype(f"datetime64[{column.unit}]").astype(np.int64)
    unit, _ = np.datetime_data(moments.dtype)
    factor = _NANOSECONDS[unit] // _NANOSECONDS[column.unit]
    good = np.abs(moments.astype(np.int64)) <= (2**63 - 1) // max(factor, 1)
    if missing is not None:
        integers = np.where(missing, 0, integers)
        good |= missing
    return _of_integers(pa.array(integers), column, missing)._replace(
        bad=np.flatnonzero(~good),
        describe=lambda place: (
            f"found {moments[place]}, whose {column.unit!r} since 1970-01-01 "
            "are beyond 64 bits"
        ),
    )


def _of_text(
    array: Any, column: Column, na_values: Collection[str]
) -> Elements:
    stored, array = array, as_text(array)
    missing = _nulls(array)
    if na_values:
        is_na = pc.is_in(array, value_set=_text_set(tuple(na_values)))
        if pc.any(is_na).as_py():
            missing = _either(missing, is_na.to_numpy(zero_copy_only=False))
    if column.encoding == "hash":
        hashed = _hashed(stripped(stored, array), column)
        if column.strings_only:
            return Elements(hashed, missing)
        bad = _unusual_integers(array, missing)
        return Elements(
            hashed,
            missing,
            bad,
            lambda place: (
                f"found {_shown(array[place].as_py())}, expected "
                f"{expected(column)}; declare it with `strings_only=True` if it "
                "is not another spelling of an integer"
            ),
        )
    if missing is not None:
        array = pc.if_else(pa.array(missing), None, array)
    if column.unit is not None:
        return _of_time_text(array, column, missing)
    if column.encoding == "hex":
        return _parsed(array, column, missing, _parse_hex, np.int64)
    if column.positive:
        words = {word: 0.0 for word in column.negative}
        words.update({word: 1.0 for word in column.positive})
        dtype = np.float64 if _is_float(column) else np.int64
        return _parsed(array, column, missing, words.get, dtype)
    if not _is_float(column):
        try:
            numbers = array.cast(pa.int64()).fill_null(0)
        except pa.ArrowInvalid:
            parse = _parse_integer if column.is_feature else _parse_signed
            return _parsed(array, column, missing, parse, np.int64)
        return Elements(numbers.to_numpy(zero_copy_only=False), missing)
    try:
        floats = array.cast(pa.float64()).fill_null(0)
    except pa.ArrowInvalid:
        floats = None
    if floats is not None:
        numbers = floats.to_numpy(zero_copy_only=False)
        if not may_be_rounded(numbers):
            return _narrowed(numbers, column, missing)
    found = _parsed(
        array,
        column,
        missing,
        lambda text: _parse_float(text, column.rounded),
        np.float64,
    )
    is_nan = np.isnan(found.values)
    return found._replace(missing=_either(missing, is_nan))


def may_be_rounded(numbers: np.ndarray) -> bool:
    """Returns whether float64 numbers may be rounded from integers."""
    with np.errstate(invalid="ignore"):
        return bool((np.abs(numbers) >= EXACT_BELOW[64]).any())


def _unusual_integers(array: Any, missing: np.ndarray | None) -> np.ndarray:
    """Returns the positions of unusual spellings of integers, such as "007"."""
    is_any = pc.match_substring_regex(array, ANY_INTEGER)
    if not pc.any(is_any).as_py():
        return np.zeros(0, np.int64)
    is_usual = pc.match_substring_regex(array, USUAL_INTEGER)
    is_bad = pc.and_not(is_any, is_usual).fill_null(False)
    is_bad = is_bad.to_numpy(zero_copy_only=False)
    return np.flatnonzero(is_bad if missing is None else is_bad & ~missing)


def _spelled_booleans(array: Any, column: Column) -> Any:
    """Returns "true" and "false" as the label spells them, e.g. "True"."""
    for word in column.positive + column.negative:
        if word.lower() in _BOOLS:
            array = pc.replace_substring_regex(array, f"^{word.lower()}$", word)
    return array


def _of_time_text(
    array: Any, column: Column, missing: np.ndarray | None
) -> Elements:
    """Reads ISO 8601 dates and timestamps."""
    try:
        return _of_time(array.cast(pa.timestamp("us")), column)
    except pa.ArrowInvalid:
        return _parsed(
            array,
            column,
            missing,
            lambda text: _parse_time(text, column.unit or "s"),
            np.int64,
        )


def _parse_time(text: str, unit: str) -> int | None:
    try:
        moment = pa.scalar(text).cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return None
    found = np.datetime64(moment.value, "us").astype(f"datetime64[{unit}]")
    return int(found.astype(np.int64))


def _hashed(array: Any, column: Column) -> np.ndarray:
    return hash_text(array, f"{column.hash_as or column.name}\0")


@functools.cache
def _text_set(texts: tuple[str, ...]) -> Any:
    return pa.array(texts, pa.large_string())


def _parsed(
    array: Any,
    column: Column,
    missing: np.ndarray | None,
    parse: Callable[[str], Any],
    dtype: Any,
) -> Elements:
    """Parses each distinct string once."""
    encoded = array.dictionary_encode()
    words: Sequence[str] = encoded.dictionary.to_pylist()
    parsed = np.zeros(len(words), dtype)
    wrong = np.zeros(len(words), bool)
    for i, word in enumerate(words):
        value = parse(word)
        if value is None:
            wrong[i] = True
        else:
            parsed[i] = value
    codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    if not len(words):
        return Elements(_as_read(np.zeros(len(array), dtype)), missing)
    is_bad = wrong[codes]
    if missing is not None:
        is_bad &= ~missing

    def describe(place: int) -> str:
        return (
            f"found {_shown(words[codes[place]])}, expected {expected(column)}"
        )

    return Elements(
        _as_read(parsed[codes]), missing, np.flatnonzero(is_bad), describe
    )


def _as_read(values: np.ndarray) -> np.ndarray:
    if values.dtype == np.float64:
        return values.astype(np.float32)
    return values


def _parse_integer(text: str) -> int | None:
    match = _INTEGER.fullmatch(text)
    if match is None:
        if text.strip()[:2] in ("0x", "0X"):  # Arrow's parser accepts hex
            return _parse_hex(text)
        return _BOOLS.get(text.strip().lower())
    return _as_int64(int(match[1]))


def _parse_signed(text: str) -> int | None:
    """Parses an integer that is not an id, so a large one keeps no bits."""
    match = _INTEGER.fullmatch(text)
    if match is not None and int(match[1]) >= 2**63:
        return None
    return _parse_integer(text)


def _parse_hex(text: str) -> int | None:
    match = _HEX.fullmatch(text)
    return None if match is None else _as_int64(int(match[1], 16))


def _as_int64(number: int) -> int | None:
    """Returns a signed or unsigned 64-bit integer as int64; None on overflow."""
    if not -(2**63) <= number < 2**64:
        return None
    return number if number < 2**63 else number - 2**64


def _parse_float(text: str, rounded: bool) -> float | None:
    """Parses a number; None if it is not one, or float32 does not hold it."""
    if "_" in text:  # float() accepts "1_000"
        return None
    try:
        value = float(text)
    except ValueError:
        return _BOOLS.get(text.strip().lower())
    narrow = float(np.float32(value)) if abs(value) < 1e39 else math.inf
    if math.isinf(narrow):
        return value if math.isinf(value) and "inf" in text.lower() else None
    if rounded or abs(value) < EXACT_BELOW[32]:
        return value
    # float64 may have rounded the digits; a text with an exponent is its own.
    has_exponent = "e" in text.lower()
    exact = decimal.Decimal(value if has_exponent else text)
    return value if exact == decimal.Decimal(narrow) else None
