"""Folders that appear, or are replaced, when all of them is written."""

import contextlib
import os
import uuid
from collections.abc import Iterator

import tensorflow as tf


@contextlib.contextmanager
def whole_folder(path: str | os.PathLike) -> Iterator[str]:
    """Gives a folder to write in, which is at `path` after the block.

    If the block fails, what was at `path` is still there. A reader finds the
    old folder or the new one, and for a moment between two renames neither.

    >>> with whole_folder("served") as partial:
    ...     tf.saved_model.save(module, partial)
    """
    path = os.fspath(path).rstrip("/")
    unique = uuid.uuid4().hex[:8]
    partial = f"{path}.partial-{unique}"
    replaced = f"{path}.replaced-{unique}"
    gfile = tf.io.gfile
    try:
        yield partial
        if not gfile.exists(path):
            gfile.rename(partial, path)
            return
        gfile.rename(path, replaced)
        try:
            gfile.rename(partial, path)
        except BaseException:
            gfile.rename(replaced, path)
            raise
    finally:
        for leftover in (partial, replaced):
            if gfile.exists(leftover):
                gfile.rmtree(leftover)
