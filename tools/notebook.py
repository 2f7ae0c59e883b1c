"""Makes the notebook and the pictures of a page.

    python tools/notebook.py docs/tutorial.md

writes docs/tutorial.ipynb, the page's Python as cells of code, what is between
as cells of text. With `--pictures` it runs the Python, too, in an empty folder, and
puts the SVGs that it saves there into docs/tutorial/.
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
    """The Python of a page, in order.

    Args:
        page: Text of Markdown.

    Returns:
        The line of the page, from 1, that stands before each block fenced as
        `python`, and its text.
    """
    return [
        (page.count("\n", 0, found.start(1)), found[1])
        for found in _PYTHON.finditer(page)
    ]


def notebook(page: str) -> str:
    """A Jupyter notebook of a page.

    Args:
        page: Text of Markdown.

    Returns:
        JSON, nbformat 4.5: cells without outputs, the same for the same page.
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
        path: Of the page; tracebacks show its lines.

    Returns:
        The names that the program has in the end.
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
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=pathlib.Path, help="a page, as x.md")
    parser.add_argument(
        "--pictures", action="store_true", help="run it for its pictures, too"
    )
    options = parser.parse_args()
    path = options.page.resolve()
    path.with_suffix(".ipynb").write_text(notebook(path.read_text()))
    if options.pictures:
        _draw(path)


if __name__ == "__main__":
    main()
