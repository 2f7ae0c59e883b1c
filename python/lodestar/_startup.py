"""The start of a process that promises one line on stderr, and no other.

TensorFlow logs notes on this machine's instruction sets while its libraries
are loaded, before it reads TF_CPP_MIN_LOG_LEVEL. Our command-line tools leave
them out; for anyone else `import lodestar` changes nothing.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterator

_NOTE = re.compile(rb"[IWE]\d{4} |WARNING: All log messages before absl::")


def tool() -> str | None:
    """The module of `python -m lodestar...`, or "lodestar" for the command.

    None in any other process.
    """
    # While Python looks for the module of -m, this stands for its name.
    if sys.argv[:1] == ["-m"]:
        module = sys.orig_argv[-len(sys.argv)].removeprefix("-m")
    else:
        # The script that pip writes.
        module = os.path.basename(sys.argv[0] if sys.argv else "")
        if module != "lodestar":
            return None
    return module if module.split(".")[0] == "lodestar" else None


def is_tool() -> bool:
    """Whether this process is one, or asks to be quiet as one.

    It asks by LODESTAR_QUIET_START=1 in its environment.
    """
    asks = os.environ.get("LODESTAR_QUIET_START") == "1"
    return asks or tool() is not None


@contextlib.contextmanager
def quiet_tools() -> Iterator[None]:
    """In a tool, leaves log lines of libraries out of stderr, and no others.

    A user who sets TF_CPP_MIN_LOG_LEVEL gets what they ask for: any level but
    0 leaves the notes out, 0 shows all.
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
