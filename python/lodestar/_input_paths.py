"""Paths, checked before anything is opened."""

import os
import stat

from lodestar._errors import DataError
from lodestar._files import as_path

_FILE_SCHEME = "file://"
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def as_input(path: str | bytes | os.PathLike[str]) -> str:
    """The path of a file to read, as a string.

    Raises:
        DataError: The path holds a NUL; or is a pipe, which would be waited
            for, a socket or a device, and no file.
    """
    path = as_path(path)
    local = path.removeprefix(_FILE_SCHEME)
    if "://" not in local:
        try:
            kind = _KINDS.get(stat.S_IFMT(os.stat(local).st_mode))
        except OSError:
            kind = None  # reading will say what is wrong
        if kind:
            raise DataError(f"{path}: is {kind}, wanted a file")
    return path
