"""Which options were given, and for which formats they are."""

import argparse
from typing import Any

from lodestar._errors import DataError
from lodestar.data.tool.formats import FORMATS, Format

_OUT = "out_"


def read_options(
    options: argparse.Namespace, source: Format, target: Format | None
) -> dict[str, Any]:
    """The options of reading that were given.

    Raises:
        DataError: One is for another format.
    """
    found = {}
    for name in dict.fromkeys(n for f in FORMATS.values() for n in f.reads):
        value = getattr(options, name)
        if value is None:
            continue
        if name in source.reads:
            found[name] = value
        elif target is None or name not in target.writes:
            formats = [f.name for f in FORMATS.values() if name in f.reads]
            raise _misplaced(name, formats, source)
    return found


def write_options(
    options: argparse.Namespace, target: Format, source: Format | None
) -> dict[str, Any]:
    """The options of writing that were given.

    One that is for both sides is the output's too, unless `--out-...` says
    otherwise.

    Raises:
        DataError: One is for another format.
    """
    found = {}
    for name in dict.fromkeys(n for f in FORMATS.values() for n in f.writes):
        own = getattr(options, _OUT + name, None)
        value = getattr(options, name, None) if own is None else own
        if value is None:
            continue
        if name in target.writes:
            found[name] = value
        elif own is not None or source is None or name not in source.reads:
            formats = [f.name for f in FORMATS.values() if name in f.writes]
            raise _misplaced(_OUT + name if own else name, formats, target)
    return found


def option_name(name: str) -> str:
    """What an option is called on the command line."""
    plain = name.removeprefix(_OUT)
    spelled = {"nnz_per_slot": "nnz"}.get(plain, plain)
    prefix = "out-" if name != plain else ""
    return f"--{prefix}{spelled.replace('_', '-')}"


def _misplaced(name: str, formats: list[str], found: Format) -> DataError:
    return DataError(
        f"{option_name(name)} is for {', '.join(formats)}, and not for "
        f"{found.name}"
    )
