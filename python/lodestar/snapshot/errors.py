"""Errors of snapshots."""

import contextlib
import errno
from collections.abc import Iterable, Iterator

import tensorflow as tf

from lodestar._errors import NamedFile, describe_error


class SnapshotError(RuntimeError):
    """A snapshot cannot be written, found or restored."""


class MissingSnapshotError(FileNotFoundError, NamedFile, SnapshotError):
    """A folder does not exist or holds no snapshot."""

    @classmethod
    def of(cls, path: str) -> "MissingSnapshotError":
        """Returns the error for the path of a folder."""
        return cls(errno.ENOENT, "holds no snapshot", path)


class CorruptSnapshotError(SnapshotError):
    """A file of a snapshot is damaged.

    The message names the file and, where bytes are wrong, their offset.
    """


class SnapshotLockedError(SnapshotError):
    """Another process or thread is writing to the snapshot folder."""


def listed(names: Iterable[str]) -> str:
    """Formats names for an error message."""
    return ", ".join(map(repr, names)) or "none"


@contextlib.contextmanager
def corrupt_files() -> Iterator[None]:
    """Converts the errors of ops that read files to SnapshotErrors."""
    try:
        yield
    except tf.errors.DataLossError as error:
        raise CorruptSnapshotError(describe_error(error)) from None
    except (
        tf.errors.UnimplementedError,
        tf.errors.InvalidArgumentError,
    ) as error:
        # A later format, not a regular file, or files of different tables.
        raise SnapshotError(describe_error(error)) from None
