"""HugeCTR's file lists."""

import os
import re
from collections.abc import Iterable

import tensorflow as tf

from lodestar._files import AtomicFile, as_path
from lodestar._input_bytes import open_input
from lodestar._typing import StrPath

_COUNT = re.compile("0*[0-9]{1,18}", re.ASCII)

# HugeCTR's name of a file list.
FILE_LIST = "file_list.txt"


def read_file_list(path: StrPath) -> list[str]:
    """Returns the paths in a file list, in order.

    Line 1 has their number N, followed by N lines with a path each. Lines may end
    with a carriage return; only the last lines may be blank. More than N paths are
    ignored, because HugeCTR's own generators may write the names twice. A relative
    path is relative to the working directory.

    Raises:
        ValueError: If the list is invalid or a file is missing. The error names
            the line.
        tf.errors.OpError: If the list cannot be read.
    """
    path = as_path(path)
    with open_input(path) as file:
        data = file.read()
    try:
        lines = [line.removesuffix("\r") for line in data.decode().split("\n")]
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}:{line}: is not UTF-8.") from error
    count = lines[0].strip(" \t")
    if not _COUNT.fullmatch(count) or int(count) == 0:
        raise ValueError(
            f"{path}:1: the number of files must be a whole number of at least 1, "
            f"got {_short(count)}."
        )
    while lines and not lines[-1].strip():
        lines.pop()
    files = lines[1:]
    if int(count) > len(files):
        raise ValueError(
            f"{path}:1: the number of files is {_short(count)}, but there are "
            f"{len(files)} paths."
        )
    files = files[: int(count)]
    for number, name in enumerate(files, 2):
        if not name.strip():
            raise ValueError(f"{path}:{number}: the path must not be blank.")
        if "\0" in name:
            raise ValueError(f"{path}:{number}: the path has a NUL byte.")
        if not tf.io.gfile.exists(name):
            hint = ""
            if "://" not in name and not os.path.isabs(name):
                hint = (
                    f" It is relative to the working directory {os.getcwd()}."
                )
            raise ValueError(
                f"{path}:{number}: the file {_short(name)} does not exist.{hint}"
            )
    return files


def write_file_list(path: StrPath, files: Iterable[StrPath]) -> None:
    """Writes a file list atomically; `read_file_list` returns the same paths."""
    path = as_path(path)
    if isinstance(files, (str, bytes, os.PathLike)):
        raise ValueError(
            f"{path}: `files` must be a list of paths, got {files!r}."
        )
    names = [as_path(file) for file in files]
    if not names:
        raise ValueError(f"{path}: a file list needs at least one path.")
    for name in names:
        if not name.strip() or any(c in name for c in "\r\n\0"):
            raise ValueError(
                f"{path}: the path {name!r} is blank or has a line break or NUL."
            )
    lines = [str(len(names)), *names]
    with AtomicFile(path) as file:
        file.write("".join(line + "\n" for line in lines).encode())


def _short(text: str) -> str:
    return repr(text if len(text) <= 200 else text[:200] + "...")
