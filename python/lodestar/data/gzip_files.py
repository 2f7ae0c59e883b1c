"""Files whose names end in `.gz`, compressed and not."""

from __future__ import annotations

import gzip
from typing import IO


def reader(path: str, file: IO[bytes]) -> IO[bytes]:
    """Reads what `file`, opened at `path`, holds; decompressed if `.gz`."""
    return gzip.GzipFile(fileobj=file) if path.endswith(".gz") else file


def writer(path: str, file: IO[bytes]) -> IO[bytes]:
    """Writes to `file`; compressed if `path` ends in `.gz`.

    Without a time stamp, so that equal content gives equal bytes. If it is not
    `file` itself, it must be closed before that.
    """
    if not path.endswith(".gz"):
        return file
    return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
