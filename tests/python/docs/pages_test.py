"""The Python of the pages runs as it stands there.

The blocks fenced as `python` of a page are run from top to bottom, as one
program, in an empty folder; those of text, sh, yaml and the like are not run.
"""

import pathlib
import re

import keras
import pytest

_DOCS = pathlib.Path(__file__).absolute().parents[3] / "docs"
_PAGES = [
    "../README",
    "data",
    "embedding",
    "from_keras",
    "from_paddle",
    "from_tfra",
    "id_tables",
    "layers",
    "optimizers",
    "saving",
    "sequences",
    "serving",
    "snapshot",
    "training",
]
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def _blocks(page):
    """(line of the page, text) of each Python block."""
    return [
        (page.count("\n", 0, found.start(2)), found[2])
        for found in _FENCED.finditer(page)
        if found[1] == "python"
    ]


@pytest.mark.parametrize("name", _PAGES)
def test_the_python_of_a_page_runs(name, tmp_path, monkeypatch):
    path = _DOCS / f"{name}.md"
    blocks = _blocks(path.read_text())
    assert blocks
    monkeypatch.chdir(tmp_path)
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    names = {"__name__": f"docs_{name}"}
    for line, text in blocks:
        # Tracebacks show lines of the page.
        exec(compile("\n" * line + text, str(path), "exec"), names)


def test_the_python_of_the_page_that_starts_clusters_runs(
    fresh_process, tmp_path
):
    # TensorFlow would have their tasks in mind until its process ends.
    blocks = _blocks((_DOCS / "distributed.md").read_text())
    assert blocks
    fresh_process.run(
        f"import os; os.chdir({str(tmp_path)!r})\n"
        + "".join(text for _, text in blocks)
    )
