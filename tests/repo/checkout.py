"""Finds the files of the checkout for the tests of the repository."""

import os
import pathlib

# Bazel's copies of this file are links to it.
ROOT = pathlib.Path(__file__).resolve().parents[2]


def files(*suffixes: str, under: str = ".") -> list[pathlib.Path]:
    """Returns the project's files below `under` with these suffixes, sorted."""
    found = []
    for folder, subfolders, names in os.walk(ROOT / under):
        subfolders[:] = [
            name
            for name in subfolders
            if not name.startswith((".", "bazel-")) and name != "third_party"
        ]
        found += [
            pathlib.Path(folder, name)
            for name in names
            if name.endswith(suffixes)
        ]
    return sorted(found)


def label(path: pathlib.Path) -> str:
    """Returns the path as messages show it."""
    return str(path.relative_to(ROOT))
