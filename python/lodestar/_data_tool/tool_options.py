"""Assigns options of the command line to formats."""

import re
from collections.abc import Mapping
from typing import Any

from lodestar._commands.data import (
    OUT_WRITING,
    READING,
    WRITING,
    given_options,
)
from lodestar._errors import DataError
from lodestar.data.files.formats import FORMATS, Format

_OUT = "out_"
# The flag of each option.
_FLAGS = {
    **{o.name: o.opts[0] for o in (*READING, *WRITING, *OUT_WRITING)},
    "on_error": "--on-error",
}
_QUOTED = re.compile(r"`(\w+(?:=[^`]*)?)`")
_NEXT_OPTION = re.compile(r", (?=\w+=)")


def read_options(
    options: Mapping[str, Any], source: Format, target: Format | None
) -> dict[str, Any]:
    """Returns the options of the reader of `source`.

    Absent options are None or empty. Raises DataError if an option belongs to
    neither `source` nor `target`.
    """
    found = {}
    for name, value in given_options(options).items():
        if name in source.reads:
            found[name] = value
        elif name in ("format", "schema"):
            continue
        elif target is None or name not in target.writes:
            formats = [f.name for f in FORMATS.values() if name in f.reads]
            raise _misplaced(name, formats, source)
    return found


def write_options(
    options: Mapping[str, Any], target: Format, source: Format | None = None
) -> dict[str, Any]:
    """Returns the options of the writer of `target`.

    An option of both sides also applies to the output, unless `--out-...`
    overrides it. Raises DataError if an option belongs to another format.
    """
    found = {}
    for name in dict.fromkeys(n for f in FORMATS.values() for n in f.writes):
        own = options.get(_OUT + name)
        value = options.get(name) if own is None else own
        if value is None:
            continue
        if name in target.writes:
            found[name] = value
        elif own is not None or source is None or name not in source.reads:
            formats = [f.name for f in FORMATS.values() if name in f.writes]
            raise _misplaced(_OUT + name if own else name, formats, target)
    return found


def with_flags(message: str) -> str:
    """Returns a message of `open_dataset` with flags instead of its options.

    >>> with_flags("pass `skip_lines=1, header=False` and `columns=[...]`")
    'pass --skip-lines=1 --no-header and --columns=A,B'
    """

    def flags(match: re.Match[str]) -> str:
        found = []
        for option in _NEXT_OPTION.split(match[1]):
            name, equals, value = option.partition("=")
            if name not in _FLAGS:
                return match[0]
            flag = _FLAGS[name]
            if name == "header":
                equals = value = ""
                if option == "header=False":
                    flag = "--no-header"
            found.append(flag + equals + value.replace("[...]", "A,B"))
        return " ".join(found)

    return _QUOTED.sub(flags, message)


def _misplaced(name: str, formats: list[str], found: Format) -> DataError:
    return DataError(
        f"{_FLAGS[name]} is for {', '.join(formats)}, but the format is "
        f"{found.name}."
    )
