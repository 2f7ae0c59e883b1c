"""Startup of a process with at most one line on stderr.

TensorFlow logs notes on the instruction sets of the machine while its libraries are
loaded, before it reads TF_CPP_MIN_LOG_LEVEL. Our command-line tools suppress them;
`import lodestar` elsewhere does not.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterator

_NOTE = re.compile(rb"[IWE]\d{4} |WARNING: All log messages before absl::")


def tool() -> str | None:
    """Returns the module of `python -m lodestar...`, or "lodestar" for the command.

    None in any other process.
    """
    # Until Python has found the module of -m, argv has its placeholder.
    if sys.argv[:1] == ["-m"]:
        module = sys.orig_argv[-len(sys.argv)].removeprefix("-m")
    else:
        # The script installed by pip.
        module = os.path.basename(sys.argv[0] if sys.argv else "")
        if module != "lodestar":
            return None
    return module if module.split(".")[0] == "lodestar" else None


def is_tool() -> bool:
    """Whether this is a tool or LODESTAR_QUIET_START=1 in the environment."""
    asks = os.environ.get("LODESTAR_QUIET_START") == "1"
    return asks or tool() is not None


@contextlib.contextmanager
def quiet_tools() -> Iterator[None]:
    """Suppresses log lines of libraries on stderr in a tool, but nothing else.

    TF_CPP_MIN_LOG_LEVEL has precedence: 0 shows all notes, other levels suppress them.
    """
    if not is_tool() or sys.stderr is None:
        yield
        return
    if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") == "0":
        yield
        return
    sys.stderr.flush()
    stderr = os.dup(2)
    with open(os.memfd_create("stderr"), "w+b") as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            for line in held:
                if not _NOTE.match(line):
                    os.write(2, line)
