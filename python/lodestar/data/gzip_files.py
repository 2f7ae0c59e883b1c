"""Files whose names end in `.gz`, compressed and not."""

from __future__ import annotations

import gzip
from typing import IO


def reader(path: str, file: IO[bytes]) -> IO[bytes]:
    """Reads what `file`, opened at `path`, holds; decompressed if `.gz`."""
    return gzip.GzipFile(fileobj=file) if path.endswith(".gz") else file


def writer(file: IO[bytes]) -> IO[bytes]:
    """Writes to `file`, compressed; must be closed before it.

    Without a time stamp, so that equal content gives equal bytes.
    """
    return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
