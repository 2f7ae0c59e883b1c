"""The command lines of the package, which are parsed without TensorFlow."""

import sys
import types

from lodestar._startup import tool


def begin() -> None:
    """Parses the command line of a tool before TensorFlow is imported.

    --help, --version and invalid arguments end the process. After that, an
    uncaught ImportError of Lodestar is printed as one line on stderr, with exit
    code 1. Does nothing in a process that is not a tool.
    """
    module = tool()
    if module is None:
        return
    # Click is slow to import, and only tools need it.
    from lodestar._commands.groups import GROUPS
    from lodestar._commands.parsing import parse

    if module in GROUPS:
        prog = module if module == "lodestar" else f"python -m {module}"
        parse(GROUPS[module], sys.argv[1:], prog)
    sys.excepthook = _one_line


def _one_line(
    kind: type[BaseException],
    error: BaseException,
    trace: types.TracebackType | None,
) -> None:
    if issubclass(kind, ImportError) and str(error).startswith("lodestar: "):
        print(error, file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)
