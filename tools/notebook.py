"""Makes the notebook and the pictures of a page.

    python tools/notebook.py docs/tutorial.md

writes docs/tutorial.ipynb, with the page's Python as code cells and the rest as
text cells. `--pictures` also runs the Python in an empty folder, and copies the
SVG files that it saves to docs/tutorial/.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import tempfile
from typing import Any

_PYTHON = re.compile(r"^```python\n(.*?)^```$\n?", re.M | re.S)


def blocks(page: str) -> list[tuple[int, str]]:
    """Returns the Python of a page, in order.

    Args:
        page: Markdown source.

    Returns:
        For each block fenced as `python`: the number of the line before it,
        from 1, and its text.
    """
    return [
        (page.count("\n", 0, found.start(1)), found[1])
        for found in _PYTHON.finditer(page)
    ]


def notebook(page: str) -> str:
    """Returns the Jupyter notebook of a page.

    Args:
        page: Markdown source.

    Returns:
        JSON in nbformat 4.5: cells without outputs, equal for equal pages.
    """
    # Every second part is the text of a block.
    parts = [part.strip("\n") for part in _PYTHON.split(page)]
    cells: list[dict[str, Any]] = []
    for number, text in enumerate(parts):
        if not text:
            continue
        code = number % 2 == 1
        cell: dict[str, Any] = {
            "cell_type": "code" if code else "markdown",
            "id": f"cell-{len(cells)}",
            "metadata": {},
            "source": text.splitlines(keepends=True),
        }
        if code:
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell)
    kernel = {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    }
    book = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def run(path: pathlib.Path) -> dict[str, Any]:
    """Runs the Python of a page in the working directory, as one program.

    Args:
        path: The page; tracebacks show its lines.

    Returns:
        The names that the program defines.
    """
    names: dict[str, Any] = {"__name__": f"docs_{path.stem}"}
    for line, text in blocks(path.read_text()):
        exec(compile("\n" * line + text, str(path), "exec"), names)
    return names


def _draw(path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    # No date, and the same names of parts each time.
    matplotlib.rcParams["svg.hashsalt"] = path.stem
    os.environ["SOURCE_DATE_EPOCH"] = "0"
    pictures = path.with_suffix("")
    pictures.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run(path)
        for picture in pathlib.Path(folder).glob("*.svg"):
            shutil.copy(picture, pictures)


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=pathlib.Path, help="page, e.g. x.md")
    parser.add_argument(
        "--pictures",
        action="store_true",
        help="also run the page for its pictures",
    )
    options = parser.parse_args()
    path = options.page.resolve()
    path.with_suffix(".ipynb").write_text(notebook(path.read_text()))
    if options.pictures:
        _draw(path)


if __name__ == "__main__":
    main()
