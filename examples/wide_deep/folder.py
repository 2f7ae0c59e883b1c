"""Files and folders that appear whole or not at all."""

import contextlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

from errors import InputError


@contextlib.contextmanager
def new_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives a folder to fill, which becomes `path` when the block ends.

    If the block raises, nothing of it is left, nor are folders above `path`
    that were made for it.

    Raises:
        InputError: The folder cannot be made.
    """
    partial = path.with_name(path.name + ".partial")
    made = [p for p in path.parents if not p.exists()]
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    except OSError as error:
        _remove_empty(made)
        raise InputError(
            f"{path.parent}: cannot be written: {error.strerror}"
        ) from error
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        _remove_empty(made)
        raise


def write_json(path: pathlib.Path, content: Any) -> None:
    """Writes `content`; a file that was there stays until all is written."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(content, indent=2) + "\n")
    os.replace(partial, path)


def read_json(path: pathlib.Path) -> Any:
    """Reads what `write_json` wrote; None if there is no such file."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: is no JSON: {error}") from error


def size_on_disk(path: pathlib.Path) -> int:
    """Bytes of the files at `path`, or whose names begin with it."""
    files = path.parent.glob(path.name + "*")
    return sum(
        p.stat().st_size
        for f in files
        for p in ([f] if f.is_file() else f.rglob("*"))
        if p.is_file()
    )


def _remove_empty(folders: list[pathlib.Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()
