"""One-line descriptions of errors in data."""

import contextlib
import errno
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf


class DataError(ValueError):
    """Bad input data or output path; the message is one line that names it."""


class NamedFile(OSError):
    """An error of the system whose text begins with the path."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class FileError(NamedFile, DataError):
    """A file that the system cannot read, with its `errno` and `filename`."""


class MissingFileError(FileNotFoundError, FileError):
    """A file or folder that does not exist."""


class DeniedFileError(PermissionError, FileError):
    """A file or folder without permission to read it."""


class UnclearColumnsError(DataError):
    """The first rows leave several meanings for columns.

    The message has one line per column, and ends with a call to paste.

    Attributes:
        seen: The heading and the lines that describe the columns.
        suggested: Maps options to the names of columns in the call.
    """

    def __init__(
        self, text: str, seen: Sequence[str], suggested: Mapping[str, list[str]]
    ):
        super().__init__(text)
        self.seen = seen
        self.suggested = suggested


# Text that TensorFlow adds to an op's message.
_DECORATION = re.compile(
    r"\{\{[^}]*\}\}|\[\[.*?\]\]|\[Op:[^\]]*\](?: name:.*)?|"
    r"Error in user-defined function passed to \S+ transformation with "
    r"iterator: \S+: "
)


# Text added to an error of another task of a cluster.
_FROM_TASK = re.compile(
    r"\s*Additional GRPC error information from remote target (\S+) while .*",
    re.DOTALL,
)


# A Python exception inside a graph: its class and message, then the traceback.
_FROM_PYTHON = re.compile(r"(?:^|\s)\w+: ([^\n]*)\n\s*Traceback \(most recent")


# Several nodes failed, such as a reader and its consumers.
_FIRST_OF_SEVERAL = re.compile(
    r"\d root error\(s\) found\.\s+\(0\) [A-Z_]+: *([^\n]*)"
)


# Text that tf.debugging.Assert adds to a message.
_ASSERTION = re.compile(r"assertion failed: \[(.*)\]")


# TensorFlow's file systems report "path; No such file or directory".
_SYSTEM_REASONS = frozenset(map(os.strerror, errno.errorcode))


_NUMBERS: dict[type[BaseException], int] = {
    tf.errors.NotFoundError: errno.ENOENT,
    tf.errors.PermissionDeniedError: errno.EACCES,
}


def file_error(
    path: str, number: int = errno.ENOENT, reason: str | None = None
) -> FileError:
    """Returns the error of the system for a file, by default a missing one."""
    cls = FileError
    if number == errno.ENOENT:
        cls = MissingFileError
    elif number in (errno.EACCES, errno.EPERM):
        cls = DeniedFileError
    return cls(number, reason or os.strerror(number), path)


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Converts errors of reading a file to DataErrors that name it."""
    try:
        yield
    except DataError:
        raise
    except (tf.errors.OpError, EOFError, OSError, zlib.error) as error:
        text = describe_error(error)
        if not (isinstance(error, tf.errors.OpError) and text.startswith(path)):
            text = f"{path}: {text}"
        number = _NUMBERS.get(type(error))
        if isinstance(error, OSError):
            number = error.errno
        if number is None:
            raise DataError(text) from error
        reason = text.removeprefix(f"{path}: ")
        raise file_error(path, number, reason) from error


@contextlib.contextmanager
def noting_graph_errors() -> Iterator[None]:
    """Adds its own sentence to an op's error, which TensorFlow puts among stacks.

    Python prints notes last.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if "\n" in error.message:
            error.add_note(describe_error(error))
        raise


def call_plainly(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function; removes the names that TensorFlow adds to an op's error."""
    try:
        return call(*args, **kwargs)
    except tf.errors.OpError as error:
        plain: Any = type(error)
        text = _DECORATION.sub("", error.message).strip()
        raise plain(None, None, text, error.experimental_payloads) from None


def describe_error(error: BaseException) -> str:
    """Returns the error's own message on one line.

    Removes the names of graph nodes and, inside a `tf.function` such as in `model.fit`,
    the stack traces that TensorFlow adds.
    """
    if isinstance(error, tf.errors.OpError):
        return _own_message(error.message)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _own_message(text: str) -> str:
    several = _FIRST_OF_SEVERAL.search(text)
    if several:
        text = several[1]
    text = _FROM_TASK.sub(r" (from \1)", text)
    from_python = _FROM_PYTHON.search(text)
    if from_python:
        return " ".join(from_python[1].split())
    if text.startswith("Graph execution error"):
        # The message follows the nodes and their stacks.
        lines = text.splitlines()
        for number in range(len(lines) - 1, -1, -1):
            if (
                lines[number]
                .lstrip()
                .startswith(("[[", "Detected at", "File "))
            ):
                continue
            own = _DECORATION.sub("", lines[number]).strip()
            if own and not own.startswith("("):
                text = own
                break
    text = " ".join(_DECORATION.sub("", text).split())
    text = _ASSERTION.sub(lambda found: found[1].replace("] [", " "), text)
    path, _, reason = text.rpartition("; ")
    return f"{path}: {reason}" if reason in _SYSTEM_REASONS else text
