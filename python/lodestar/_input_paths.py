"""Checks of input paths before anything is opened."""

import os
import stat

from lodestar._errors import DataError, file_error
from lodestar._files import as_path

_FILE_SCHEME = "file://"
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def as_input(path: str | bytes | os.PathLike[str]) -> str:
    """Returns the path of a file to read.

    Raises:
        MissingFileError: It does not exist; only for local paths.
        DataError: It is not a file.
    """
    path = as_path(path)
    local = path.removeprefix(_FILE_SCHEME)
    if "://" not in local:
        try:
            kind = _KINDS.get(stat.S_IFMT(os.stat(local).st_mode))
        except FileNotFoundError:
            raise file_error(path) from None
        except OSError:
            kind = None  # reading reports the error
        if kind:
            raise DataError(f"{path}: is {kind}, expected a file")
    return path
