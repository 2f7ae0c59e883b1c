"""What is wrong with data, in one line."""

import contextlib
import errno
import os
import re
import zlib
from collections.abc import Iterator

import tensorflow as tf


class DataError(ValueError):
    """Bad input data or output place; the text is one line that names it."""


# What TensorFlow puts around an op's own message.
_DECORATION = re.compile(
    r"\{\{[^}]*\}\}|\[\[.*?\]\]|\[Op:[^\]]*\](?: name:.*)?|"
    r"Error in user-defined function passed to \S+ transformation with "
    r"iterator: \S+: "
)


# What is said of an error that another task of a cluster had.
_FROM_TASK = re.compile(
    r"\s*Additional GRPC error information from remote target (\S+) while .*",
    re.DOTALL,
)


# What is raised in Python inside a graph: its class and text on a line, then
# where that was.
_FROM_PYTHON = re.compile(r"(?:^|\s)\w+: ([^\n]*)\n\s*Traceback \(most recent")


# Several nodes failed, as who waits for what was read does.
_FIRST_OF_SEVERAL = re.compile(
    r"\d root error\(s\) found\.\s+\(0\) [A-Z_]+: *([^\n]*)"
)


# What tf.debugging.Assert puts around a text, in graphs and eagerly.
_ASSERTION = re.compile(
    r"(?:assertion failed: \[|Expected 'tf\.Tensor\(False\b.*?' to be true\. "
    r"Summarized data: b['\"])(.*)['\"\]]"
)


# TensorFlow's file systems say "path; No such file or directory".
_SYSTEM_REASONS = frozenset(map(os.strerror, errno.errorcode))


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Makes errors of reading a file, compressed or not, DataErrors that name it."""
    try:
        yield
    except (tf.errors.OpError, EOFError, OSError, zlib.error) as error:
        text = describe_error(error)
        if not (isinstance(error, tf.errors.OpError) and text.startswith(path)):
            text = f"{path}: {text}"
        raise DataError(text) from error


def describe_error(error: BaseException) -> str:
    """Returns the error's own message on one line.

    TensorFlow wraps what an op says into the names of graph nodes and, inside a
    `tf.function` as in `model.fit`, into stack traces; this takes them off.
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
        # The nodes and their stacks come first, the message after the last one.
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
    text = _ASSERTION.sub(r"\1", text)
    path, _, reason = text.rpartition("; ")
    return f"{path}: {reason}" if reason in _SYSTEM_REASONS else text
