"""Command lines with short errors: Click commands, types, tables."""

import _thread
import csv
import io
import os
import select
import shlex
import signal
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Sequence

import tensorflow as tf

from lodestar._commands.parsing import (
    Command,
    comma_separated,
    parse,
    path,
    positive,
)
from lodestar._errors import DataError, UnclearColumnsError, describe_error

__all__ = [
    "Command",
    "ERRORS",
    "INPUT_ERRORS",
    "comma_separated",
    "describe_error",
    "parse",
    "path",
    "positive",
    "print_table",
    "run",
]

# Errors of bad input, as opposed to bugs.
INPUT_ERRORS = (DataError, OSError, tf.errors.OpError)
# The same, with errors of arguments and of missing packages.
ERRORS = (ValueError, OSError, tf.errors.OpError, ImportError)
_INTERRUPTED = 130  # exit code of a shell after Ctrl-C


def run(
    name: str,
    command: Callable[[], int],
    failure: int = 2,
    *,
    errors: tuple[type[BaseException], ...] = ERRORS,
    interrupted: str | None = None,
    describe: Callable[[BaseException], str] = describe_error,
) -> int:
    """Runs a command and returns its exit code.

    >>> def command():
    ...     raise FileNotFoundError(2, "No such file", "clicks.csv")
    >>> run("train", command)  # on stderr: train: clicks.csv: No such file
    2

    Args:
        name: Name of the program, which precedes its errors on stderr.
        command: Returns the exit code.
        failure: Exit code if it raises one of `errors`.
        errors: Errors that become a line on stderr; others are raised.
        interrupted: Message on stderr after Ctrl-C. Defaults to one that says so.
        describe: Returns the message of an error.

    Returns:
        The result of `command`; `failure`; 130 after Ctrl-C; or 0 if the reader
        of stdout is gone.
    """
    with _Interrupt() as interrupt:
        try:
            code = command()
            # Detects a closed pipe here instead of at exit.
            sys.stdout.flush()
            interrupt.check()
            return code
        except BaseException as error:
            interrupt.has_arrived()
            gone = isinstance(error, BrokenPipeError) and _reader_is_gone()
            if gone:
                # Python flushes stdout again at exit, and would fail.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if gone and not interrupt.seen:
                return 0
            if interrupt.seen or isinstance(error, KeyboardInterrupt):
                print(interrupted or f"{name}: interrupted", file=sys.stderr)
                return _INTERRUPTED
            if not isinstance(error, errors):
                raise
            text = describe(error)
            if isinstance(error, UnclearColumnsError):
                text = _with_flags(error)
            print(f"{name}: {text}", file=sys.stderr)
            return failure


def _with_flags(error: UnclearColumnsError) -> str:
    """Returns the message for a command line, which ends with options to paste."""
    flags = []
    for option, names in error.suggested.items():
        if names:
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow(names)
            flags.append(shlex.quote(f"--{option}={line.getvalue()}"))
    return "\n".join(
        [
            *error.seen,
            "Declare which are ids (--categorical), which are numbers (--numeric) "
            "and which to leave out (--ignore); a schema file (--schema) declares "
            "anything else. For example:",
            f"  {' '.join(flags)}",
        ]
    )


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Prints a table: fitted to a terminal, otherwise one line per row.

    Args:
        rows: The heading, then the rows, with equally many cells.
    """
    if sys.stdout.isatty():
        # Imported here because Rich is slow to import.
        from rich.console import Console
        from rich.table import Table

        table = Table(*rows[0])
        for row in rows[1:]:
            table.add_row(*row)
        Console(markup=False, emoji=False, highlight=False).print(table)
        return
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths)]
        print("  ".join(cells).rstrip())


def _reader_is_gone() -> bool:
    """Whether nobody reads stdout any more, as in `... | head`."""
    try:
        descriptor = sys.stdout.fileno()
    except OSError:
        return False  # no file, so no reader
    poll = select.poll()
    poll.register(descriptor, 0)  # always reports a closed end
    return bool(poll.poll(0))


class _Interrupted(KeyboardInterrupt):
    """Ctrl-C; in contrast to a KeyboardInterrupt, weak references to it work."""


class _Interrupt:
    """Raises KeyboardInterrupt at Ctrl-C until it ends the command.

    Libraries sometimes convert the exception to another one. Python drops it if it is
    raised while an object is destroyed, and C code may drop it as well; the exception
    object then dies, and another one is raised.
    """

    def __init__(self) -> None:
        self.seen = False
        self._raised: weakref.ref[_Interrupted] | None = None
        self._before = signal.getsignal(signal.SIGINT)
        # Only the main thread can set a handler. A background program of a shell
        # keeps ignoring Ctrl-C.
        self._set = callable(self._before) and (
            threading.current_thread() is threading.main_thread()
        )

    def __enter__(self) -> "_Interrupt":
        if self._set:
            signal.signal(signal.SIGINT, self._raise)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._set:
            signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raises KeyboardInterrupt if Ctrl-C was pressed."""
        if self.seen:
            raise KeyboardInterrupt

    def has_arrived(self) -> None:
        """Raises no exception again for an earlier Ctrl-C."""
        self._raised = None

    def _raise(self, number: int, frame: types.FrameType | None) -> None:
        self.seen = True
        error = _Interrupted()
        self._raised = weakref.ref(error, self._is_lost)
        try:
            raise error
        finally:
            del error  # The traceback has this frame, and would keep it alive.

    def _is_lost(self, reference: "weakref.ref[_Interrupted]") -> None:
        # An exception raised by this call would be dropped, too. A threading.Thread
        # would need a lock that the interrupted code may hold.
        _thread.start_new_thread(self._press_again, (reference,))

    def _press_again(self, reference: "weakref.ref[_Interrupted]") -> None:
        time.sleep(0.01)
        if self._raised is reference:
            os.kill(os.getpid(), signal.SIGINT)
