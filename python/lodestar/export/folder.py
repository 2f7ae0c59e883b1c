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
    Where `path` is a link, the folder that it leads to is replaced.

    >>> with whole_folder("served") as partial:
    ...     tf.saved_model.save(module, partial)

    Raises:
        ValueError: What is at `path` is no SavedModel and no empty folder.
    """
    path = os.fsdecode(path).rstrip("/")
    if os.path.islink(path):
        path = os.path.realpath(path)
    _check_replaceable(path)
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


def _check_replaceable(path: str) -> None:
    gfile = tf.io.gfile
    if not path:
        raise ValueError("`path` is empty, or '/'; wanted that of a folder.")
    if not gfile.exists(path):
        return
    if not gfile.isdir(path):
        raise ValueError(f"`path`={path!r} is a file, wanted a folder.")
    entries = gfile.listdir(path)
    if entries and "saved_model.pb" not in entries:
        raise ValueError(
            f"`path`={path!r} is a folder of other things than a SavedModel, "
            f"{sorted(entries)[:5]} among them, which replacing it would "
            "remove."
        )
