"""Folders that appear, or are replaced, atomically."""

import contextlib
import fcntl
import os
import re
import shutil
import uuid
import warnings
from collections.abc import Iterator

import tensorflow as tf

from lodestar._files import exchange, list_folder
from lodestar._typing import StrPath

_LEFT = re.compile(r"\.(partial|replaced)-([0-9a-f]{8})")
# Files of an unfinished export.
_WRITTEN = {
    "assets",
    "assets.extra",
    "features.json",
    "fingerprint.pb",
    "saved_model.pb",
    "variables",
}


@contextlib.contextmanager
def whole_folder(path: StrPath) -> Iterator[str]:
    """Yields an empty folder to write to, which replaces `path` at the end.

    If the block fails or the process dies, the old folder stays. If the system
    cannot exchange two names in one step, the folder is missing between two
    renames; if the process dies there, the next export restores the old folder.
    Removes the remains of dead exports, with a warning. If `path` is a link, its
    target is replaced.

    >>> with whole_folder("served") as partial:
    ...     tf.saved_model.save(module, partial)

    Raises:
        ValueError: `path` is neither a SavedModel nor an empty folder.
    """
    path = os.fsdecode(path).rstrip("/")
    if os.path.islink(path):
        path = os.path.realpath(path)
    _check_replaceable(path)
    write = _write_elsewhere if "://" in path else _write_here
    with write(path) as partial:
        yield partial


@contextlib.contextmanager
def _write_here(path: str) -> Iterator[str]:
    _clear_dead(path)
    with contextlib.ExitStack() as held:
        partial, replaced = _names(path)
        try:
            os.makedirs(partial)
            # The lock tells other exports that this one is alive. They may
            # have removed the folder before it was locked.
            while held.enter_context(_held(partial)) is False:
                partial, replaced = _names(path)
                os.makedirs(partial)
            yield partial
            if not os.path.exists(path):
                os.rename(partial, path)
                return
            held.enter_context(_held(path))
            if not exchange(partial, path):
                _rename_twice(partial, path, replaced)
        finally:
            for leftover in (partial, replaced):
                _remove(leftover)


def _names(path: str) -> tuple[str, str]:
    unique = uuid.uuid4().hex[:8]
    return f"{path}.partial-{unique}", f"{path}.replaced-{unique}"


def _rename_twice(partial: str, path: str, replaced: str) -> None:
    try:
        os.rename(path, replaced)
        os.rename(partial, path)
    except BaseException:
        if not os.path.exists(path):
            os.rename(replaced, path)
        raise


def _clear_dead(path: str) -> None:
    """Removes the remains of dead exports and restores the old folder."""
    for folders in _leftovers(path).values():
        with contextlib.ExitStack() as held:
            states = [held.enter_context(_held(x)) for x in folders.values()]
            if not all(states):
                continue  # of an export in progress
            if "replaced" in folders and not os.path.exists(path):
                os.rename(folders.pop("replaced"), path)
                _warn(
                    f"Restored {path!r}, which a killed export had moved away."
                )
            for folder in folders.values():
                if _remove(folder):
                    _warn(f"Removed {folder!r}, left by a killed export.")


def _leftovers(path: str) -> dict[str, dict[str, str]]:
    """Returns random part of the name -> "partial" or "replaced" -> folder."""
    parent, name = os.path.split(path)
    found: dict[str, dict[str, str]] = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(parent or "."):
            match = _LEFT.fullmatch(entry.name[len(name) :])
            if match and entry.name.startswith(name) and _is_ours(entry):
                kind, unique = match.groups()
                folder = os.path.join(parent, entry.name)
                found.setdefault(unique, {})[kind] = folder
    return found


def _is_ours(entry: os.DirEntry[str]) -> bool:
    """Returns whether a folder with the name of a leftover is one."""
    if not entry.is_dir(follow_symlinks=False):
        return False
    found = set(os.listdir(entry.path))
    return "saved_model.pb" in found or found <= _WRITTEN


@contextlib.contextmanager
def _held(folder: str) -> Iterator[bool | None]:
    """Locks a folder; yields whether it exists and was not locked.

    The system unlocks it when the process dies. Yields None if the file system
    does not support locks.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            state = os.path.exists(folder)
        except BlockingIOError:
            state = False
        except OSError:
            state = None
        yield state
    finally:
        os.close(descriptor)


def _remove(folder: str) -> bool:
    """Removes a folder; returns whether it existed and is gone."""
    if not os.path.exists(folder):
        return False
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.exists(folder):
        _warn(f"Could not remove {folder!r}, which is no longer needed.")
        return False
    return True


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=10)


@contextlib.contextmanager
def _write_elsewhere(path: str) -> Iterator[str]:
    """Writes to a file system that only `tf.io.gfile` supports."""
    gfile = tf.io.gfile
    partial, replaced = _names(path)
    try:
        gfile.makedirs(partial)
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
        raise ValueError("`path` must be the path of a folder other than '/'.")
    if not gfile.exists(path):
        return
    if not gfile.isdir(path):
        raise ValueError(f"`path` must be a folder, but {path!r} is a file.")
    entries = list_folder(path)
    if not entries or "saved_model.pb" in entries:
        return
    # Unless another export has just replaced the folder that was listed.
    if not gfile.exists(os.path.join(path, "saved_model.pb")):
        raise ValueError(
            "`path` must be a SavedModel or an empty folder, since it is "
            f"replaced, but {path!r} holds {entries[:5]}."
        )
