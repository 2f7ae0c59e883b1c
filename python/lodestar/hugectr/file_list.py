"""HugeCTR's file lists: which files a data set has."""

import os
import re
from collections.abc import Iterable

import tensorflow as tf

from lodestar._files import AtomicFile, as_path
from lodestar._input_bytes import open_input
from lodestar._typing import StrPath

_COUNT = re.compile("0*[0-9]{1,18}", re.ASCII)

# What HugeCTR calls one.
FILE_LIST = "file_list.txt"


def read_file_list(path: StrPath) -> list[str]:
    """Returns the paths that a file list names, in order.

    Line 1 is their number N, then come N lines of one path each. A carriage
    return at the end of a line is no part of it; blank lines may only come
    last. Lines after the N paths are ignored, as HugeCTR's own generators may
    write the names twice. A relative path is relative to the working directory.

    Args:
        path: The list; of any `tf.io.gfile` scheme.

    Raises:
        ValueError: The list is not as described, or a file that it names is
            not there; names the list and the line.
        tf.errors.OpError: The list cannot be read.
    """
    path = as_path(path)
    with open_input(path) as file:
        data = file.read()
    try:
        lines = [line.removesuffix("\r") for line in data.decode().split("\n")]
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}:{line}: is not UTF-8") from error
    count = lines[0].strip(" \t")
    if not _COUNT.fullmatch(count) or int(count) == 0:
        raise ValueError(
            f"{path}:1: the number of files is {_short(count)}, wanted a whole "
            "number of at least 1"
        )
    while lines and not lines[-1].strip():
        lines.pop()
    files = lines[1:]
    if int(count) > len(files):
        raise ValueError(
            f"{path}:1: the number of files is {_short(count)}, found "
            f"{len(files)} paths"
        )
    files = files[: int(count)]
    for number, name in enumerate(files, 2):
        if not name.strip():
            raise ValueError(f"{path}:{number}: is blank, wanted a path")
        if "\0" in name:
            raise ValueError(f"{path}:{number}: has a NUL byte, wanted a path")
        if not tf.io.gfile.exists(name):
            hint = ""
            if "://" not in name and not os.path.isabs(name):
                hint = (
                    f"; it is relative to the working directory, {os.getcwd()}"
                )
            raise ValueError(
                f"{path}:{number}: there is no file {_short(name)}{hint}"
            )
    return files


def write_file_list(path: StrPath, files: Iterable[StrPath]) -> None:
    """Writes the file list that `read_file_list` reads back as these paths.

    The list appears whole or not at all.

    Args:
        path: The list; of any `tf.io.gfile` scheme.
        files: At least one path; written as they are.

    Raises:
        ValueError: No paths, or one that no line can hold.
        tf.errors.OpError: The list cannot be written.
    """
    path = as_path(path)
    if isinstance(files, (str, bytes, os.PathLike)):
        raise ValueError(
            f"{path}: `files` is {files!r}, wanted a list of paths"
        )
    names = [as_path(file) for file in files]
    if not names:
        raise ValueError(f"{path}: a file list needs at least one path")
    for name in names:
        if not name.strip() or any(c in name for c in "\r\n\0"):
            raise ValueError(
                f"{path}: the path {name!r} is blank or has a line break or NUL"
            )
    lines = [str(len(names)), *names]
    with AtomicFile(path) as file:
        file.write("".join(line + "\n" for line in lines).encode())


def _short(text: str) -> str:
    return repr(text if len(text) <= 200 else text[:200] + "...")
