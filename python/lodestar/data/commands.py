"""Commands that files come from or go through, checked before they are run."""

import os
from collections.abc import Sequence

from lodestar._typing import StrPath

PATH = "{path}"  # in the words of an `open_command`


def command_words(
    option: str, command: Sequence[StrPath] | None
) -> list[bytes]:
    """Returns the words of a command, none for None; checks that it is a list."""
    if command is None:
        return []
    if not isinstance(command, (list, tuple)) or not all(
        isinstance(word, (str, os.PathLike)) for word in command
    ):
        raise ValueError(
            f"`{option}` must be a list of strings, as ['python', "
            f"'gen.py'], got {command!r}. No shell would split a string."
        )
    words = [os.fsencode(word) for word in command]
    if not words or not words[0]:
        raise ValueError(f"`{option}` must have a command, got {command!r}.")
    if any(b"\0" in word for word in words):
        raise ValueError(
            f"`{option}` must not have a NUL character, got {command!r}."
        )
    return words


def check_open_command(
    command: Sequence[StrPath] | None,
) -> None:
    """Raises ValueError unless the command opens a file."""
    words = command_words("open_command", command)
    if words and not any(PATH.encode() in word for word in words):
        raise ValueError(
            f"`open_command` must have '{PATH}' in place of a file's path, as in "
            f"['hdfs', 'dfs', '-cat', '{PATH}'], got {command!r}."
        )
