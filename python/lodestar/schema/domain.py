"""The values that a column can hold exactly."""

import numpy as np

from lodestar.schema.column import Column

# Floats of each width hold every integer below this limit; the limit itself is
# also the nearest float of another integer.
EXACT_BELOW = {16: 2**11, 32: 2**24, 64: 2**53}
# Spellings of an integer, of which Arrow and Python write only the usual one.
USUAL_INTEGER = r"^(0|-?[1-9][0-9]*)$"
ANY_INTEGER = r"^[+-]?[0-9]+(\.0*)?$"
_ROUNDED = "; declare it `rounded=True` to round it, or `dtype='uint64'`"


def to_float32(
    column: Column, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns numbers as float32, and a mask of numbers that the column refuses.

    It refuses finite numbers that become infinite and, unless it is `rounded`, large
    numbers that become others. Numbers below 2^24 are rounded if they have a fraction.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = numbers.astype(np.float32)
        limit = EXACT_BELOW[32]
        is_large = (numbers >= limit) | (numbers <= -limit)
        if numbers.dtype == narrow.dtype or not is_large.any():
            return narrow, np.zeros(len(numbers), bool)
        if numbers.dtype.kind in "iub":
            # A float beyond the integers becomes another integer.
            is_other = narrow.astype(numbers.dtype) != numbers
            return narrow, is_other & (not column.rounded)
        bad = is_large & (narrow != numbers)
        return narrow, bad & np.isinf(narrow) if column.rounded else bad


def found_float(column: Column, number: float | np.number) -> str:
    """Describes a number that float32 does not hold, and what is allowed."""
    narrow = np.float32(number)
    text = f"found {number}, expected {expected(column)}"
    if np.isinf(narrow):
        return text
    rounded = int(narrow) if abs(narrow) < 2.0**64 else narrow
    return f"{text}, which rounds it to {rounded}{_ROUNDED}"


def expected(column: Column) -> str:
    """Describes the values that a column can hold."""
    if column.kind == "label":
        if column.positive:
            return " or ".join(map(repr, column.positive + column.negative))
        if column.binary:
            return "0 or 1"
        is_float = column.dtype == "float"
        return "a number" if is_float else "an integer that float32 holds"
    if column.kind == "one_hot":
        return f"an integer in [0, {column.size - 1}]"
    if column.dtype == "float":
        return "a float32"
    if column.unit is not None:
        return "a date or a timestamp"
    if column.strings_only:
        return "a string"
    if column.encoding == "hash":
        return "a string or an integer"
    if column.encoding == "hex":
        return "a hexadecimal number of 64 bits"
    return "an integer of 64 bits"
