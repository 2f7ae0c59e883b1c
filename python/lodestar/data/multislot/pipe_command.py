"""What may be a pipe command."""

import os
from collections.abc import Sequence


def pipe_words(command: Sequence[str | os.PathLike] | None) -> list[bytes]:
    """The words of a command, none of None; raises ValueError if it is none."""
    if command is None:
        return []
    if not isinstance(command, (list, tuple)) or not all(
        isinstance(word, (str, os.PathLike)) for word in command
    ):
        raise ValueError(
            "`pipe_command` must be a list of strings, as ['python', "
            f"'gen.py'], found {command!r}; no shell would take it apart."
        )
    words = [os.fsencode(word) for word in command]
    if not words or not words[0]:
        raise ValueError(
            f"`pipe_command` must name a command, found {command!r}."
        )
    if any(b"\0" in word for word in words):
        raise ValueError(
            f"`pipe_command` must not have a NUL character, found {command!r}."
        )
    return words
