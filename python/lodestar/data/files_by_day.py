"""files_by_day: finds the files for each day of a log."""

import datetime
from typing import get_args

import tensorflow as tf

from lodestar._errors import DataError
from lodestar._formats import OnError

Day = datetime.date | str


def files_by_day(
    pattern: str, start: Day, end: Day, *, on_missing: OnError = "raise"
) -> dict[datetime.date, list[str]]:
    """Returns the files for each day from `start` to `end`, inclusive.

    >>> days = files_by_day("log/%Y-%m-%d/*.txt", "2026-01-30", "2026-02-02")

    Args:
        pattern: A path with `strftime` codes for the day, e.g. `%Y%m%d`, and with
            the wildcards of `tf.io.gfile.glob`: `*`, `?` and `[...]`.
        start: The first day: a `datetime.date`, or a string like "2026-01-30" or
            "20260130".
        end: The last day.
        on_missing: `"raise"` or `"skip"`: how to handle a day without files.

    Returns:
        Maps each day, in order, to its sorted paths.

    Raises:
        ValueError: `end` is before `start`, a day is invalid, `pattern` gives
            consecutive days the same path, or `on_missing` is invalid.
        DataError: A day has no file; with "skip", no day has one.
    """
    if on_missing not in get_args(OnError):
        raise ValueError(
            f"`on_missing`={on_missing!r} is not in {get_args(OnError)}."
        )
    first, last = _day("start", start), _day("end", end)
    if last < first:
        raise ValueError(f"`end`={last} is before `start`={first}.")
    next_day = first + datetime.timedelta(1)
    if first.strftime(pattern) == next_day.strftime(pattern):
        raise ValueError(
            f"`pattern`={pattern!r} is the same for {first} and the day after. "
            "Use codes of a day, such as %Y%m%d."
        )
    found = {}
    for ordinal in range(first.toordinal(), last.toordinal() + 1):
        day = datetime.date.fromordinal(ordinal)
        glob = day.strftime(pattern)
        files = sorted(tf.io.gfile.glob(glob))
        if files:
            found[day] = files
        elif on_missing == "raise":
            raise DataError(f"{glob}: no file matches, of {day}")
    if not found:
        raise DataError(
            f"{pattern}: no file matches on any day from {first} to {last}"
        )
    return found


def _day(name: str, value: Day) -> datetime.date:
    if isinstance(value, datetime.datetime):
        return value.date()
    if isinstance(value, datetime.date):
        return value
    try:
        return datetime.date.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{name}` must be a datetime.date or a string like '2026-01-30', "
            f"got {value!r}."
        ) from error
