"""What is wrong with snapshots."""

import contextlib
from collections.abc import Iterable, Iterator

import tensorflow as tf

from lodestar._errors import describe_error


class SnapshotError(RuntimeError):
    """A snapshot cannot be written, found or taken; the text says why."""


class CorruptSnapshotError(SnapshotError):
    """A file of a snapshot is not what was written; the text names the file.

    Where bytes are wrong it gives their offset, too.
    """


class SnapshotLockedError(SnapshotError):
    """Another process or thread writes to the folder of snapshots."""


def listed(names: Iterable[str]) -> str:
    """Names as errors show them."""
    return ", ".join(map(repr, names)) or "none"


@contextlib.contextmanager
def corrupt_files() -> Iterator[None]:
    """Makes the ops' errors of what a file holds ours."""
    try:
        yield
    except tf.errors.DataLossError as error:
        raise CorruptSnapshotError(describe_error(error)) from None
    except (
        tf.errors.UnimplementedError,
        tf.errors.InvalidArgumentError,
    ) as error:
        # A later format, no regular file, files that are not of one table.
        raise SnapshotError(describe_error(error)) from None
