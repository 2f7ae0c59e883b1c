"""Values of tf.Example features as the values of declared columns."""

from collections.abc import Callable, Collection
from typing import NamedTuple

import tensorflow as tf

from lodestar.data.schema import Column
from lodestar.data.schema.example_features import type_of
from lodestar.string_ids import (
    hash_ids,
    hexadecimal_ids,
    is_any_of,
    last_codes,
)

# The largest integer up to which a float32 holds every integer.
_EXACT = 2**24
_FLOAT = (
    r"[-+]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"
    r"|(?i:inf|infinity|nan))"
)


class Values(NamedTuple):
    """Values of a column.

    Attributes:
        values: int64 or float32, `[N]`; arbitrary where missing or bad.
        missing: bool `[N]`; None if no value is missing.
        bad: bool `[N]`, the values that contradict the column; None if all
            values are valid.
        shown: Returns the value at a position, for errors.
    """

    values: tf.Tensor
    missing: tf.Tensor | None = None
    bad: tf.Tensor | None = None
    shown: Callable[[tf.Tensor], tf.Tensor] = tf.as_string


def convert(
    column: Column, found: tf.Tensor, na_values: Collection[str]
) -> Values:
    """Returns the values of a column, by the same rules for every source.

    `found` is int64, float32 or string `[N]`; whitespace around strings is ignored.
    """

    def shown(place: tf.Tensor) -> tf.Tensor:
        text = found[place]
        if text.dtype != tf.string:
            return tf.as_string(text)
        # Python could not decode an error with other bytes.
        return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")

    if found.dtype == tf.string:
        text = tf.strings.strip(found)
        missing = is_any_of(text, na_values)
        values, valid = _of_strings(column, text)
        bad = None if valid is None else ~(valid | missing)
        return Values(values, missing, bad, shown)
    if found.dtype == type_of(column):
        # A list of floats holds NaN like any other number.
        is_list = column.kind == "sparse" or column.dtype != "float"
        missing = None if is_list else tf.math.is_nan(found)
        return Values(found, missing, None, shown)
    if column.dtype == "float" and column.positive is None:
        return Values(tf.cast(found, tf.float32), None, None, shown)
    missing = bad = None
    integers = found
    if found.dtype == tf.float32:
        missing = tf.math.is_nan(found)
        is_whole = (abs(found) <= _EXACT) & (tf.round(found) == found)
        bad = ~missing & ~is_whole
        # The cast of a float beyond int64 is undefined.
        integers = tf.where(is_whole, found, tf.zeros_like(found))
    integers = tf.cast(integers, tf.int64)
    if type_of(column) != tf.string or column.encoding == "hex":
        return Values(integers, missing, bad, shown)
    text = tf.as_string(integers)
    if column.positive is not None and bad is not None:
        text = tf.where(bad, tf.as_string(found, shortest=True), text)
        bad = None
    values, _ = _of_strings(column, text)
    return Values(values, missing, bad, shown)


def _of_strings(
    column: Column, found: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Returns the values of stripped strings, and which are valid; None for all."""
    if column.encoding == "hash":
        return _hashed(column, found), None
    if column.positive is not None:
        dtype = tf.float32 if column.dtype == "float" else tf.int64
        wanted = [column.positive, f"{column.positive}."]
        return tf.cast(is_any_of(found, wanted), dtype), None
    if column.encoding == "hex":
        return hexadecimal_ids(found)
    values, valid = (_float if column.dtype == "float" else _integer)(found)

    def rare_forms() -> tuple[tf.Tensor, tf.Tensor]:
        text = tf.strings.lower(found)
        is_true = text == "true"
        others = tf.cast(is_true, values.dtype)
        are_valid = valid | is_true | (text == "false")
        if column.dtype != "float":
            hexadecimal, is_hexadecimal = hexadecimal_ids(text)
            is_hexadecimal &= tf.strings.regex_full_match(text, "0x.*")
            others = tf.where(is_hexadecimal, hexadecimal, others)
            are_valid |= is_hexadecimal
        return tf.where(valid, values, others), are_valid

    return tf.cond(
        tf.reduce_all(valid), lambda: (values, tf.identity(valid)), rare_forms
    )


def _hashed(column: Column, strings: tf.Tensor) -> tf.Tensor:
    return hash_ids(strings, column=column.hash_as or column.name)


def _float(found: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    valid = tf.strings.regex_full_match(found, _FLOAT)
    text = tf.where(valid, found, "0")
    wide = tf.strings.to_number(text, tf.float64)
    values = tf.cast(wide, tf.float32)
    # A finite number must not become infinite.
    return values, valid & (tf.math.is_inf(wide) | ~tf.math.is_inf(values))


def _integer(found: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads decimal integers in [-2^63, 2^64), as int64 with these bits."""
    valid = tf.strings.regex_full_match(found, r"[-+]?[0-9]+(\.0*)?")
    is_negative = tf.strings.regex_full_match(found, r"-.*")
    text = tf.strings.regex_replace(found, r"^[-+]?0*|(\.0*)?$", "")
    digits = last_codes(text, 20) - ord("0")
    weights = tf.constant([10**i for i in reversed(range(10))], tf.int64)
    high = tf.reduce_sum(digits[:, :10] * weights, 1)
    low = tf.reduce_sum(digits[:, 10:] * weights, 1)
    values = high * 10**10 + low  # modulo 2^64
    fits = (tf.strings.length(text) <= 20) & tf.where(
        is_negative,
        _at_most(high, low, 2**63),
        _at_most(high, low, 2**64 - 1),
    )
    return tf.where(is_negative, -values, values), valid & fits


def _at_most(high: tf.Tensor, low: tf.Tensor, number: int) -> tf.Tensor:
    most_high, most_low = divmod(number, 10**10)
    return (high < most_high) | ((high == most_high) & (low <= most_low))
