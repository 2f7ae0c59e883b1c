"""The Python of the pages runs as it stands there.

The blocks fenced as `python` of a page are run from top to bottom, as one
program, in an empty folder; those of text, sh, yaml and the like are not run.
"""

import pathlib

import keras
import notebook
import pytest

_DOCS = pathlib.Path(__file__).absolute().parents[3] / "docs"
_PAGES = [
    "../README",
    "data",
    "embedding",
    "from_hugectr",
    "from_keras",
    "from_paddle",
    "from_tfra",
    "id_tables",
    "layers",
    "limits",
    "optimizers",
    "production",
    "rows",
    "saving",
    "sequences",
    "serving",
    "snapshot",
    "training",
]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the Python of a page in an empty folder; returns its names."""
    monkeypatch.chdir(tmp_path)
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    return lambda name: notebook.run(_DOCS / f"{name}.md")


@pytest.mark.parametrize("name", _PAGES)
def test_the_python_of_a_page_runs(name, run):
    assert len(run(name)) > 1


def test_the_tutorial_comes_to_what_it_says(run, tmp_path):
    names = run("tutorial")
    assert names["baseline"] == pytest.approx(0.70, abs=0.01)
    assert names["auc"] == pytest.approx(0.90, abs=0.02)
    effect = names["effect"]
    steps = ("9th", "HS-grad", "Bachelors", "Masters", "Doctorate")
    assert [effect[s] for s in steps] == sorted(effect[s] for s in steps)
    rows = names["rows"]
    far = rows["length"] > 0.14
    typical = rows["frequency"].median()
    assert rows["frequency"][far].median() > 3 * typical
    assert rows["length"][~far].mean() == pytest.approx(0.08, abs=0.02)
    assert 0 < len(names["unseen"])
    known = names["rows_on_monday"] + len(names["unseen"])
    assert int(names["table"].size()) == known
    full, delta = names["full"], names["delta"]
    assert (full.kind, delta.kind) == ("full", "delta")
    assert full.rows / 2 < delta.rows < full.rows
    assert names["live"].version() == 2
    assert (names["after"] != names["before"]).any()
    pictures = {path.name for path in tmp_path.glob("*.svg")}
    kept = {path.name for path in (_DOCS / "tutorial").glob("*.svg")}
    assert pictures == kept


def test_the_notebook_is_made_of_the_tutorial():
    made = notebook.notebook((_DOCS / "tutorial.md").read_text())
    assert (_DOCS / "tutorial.ipynb").read_text() == made, (
        "run: python tools/notebook.py docs/tutorial.md"
    )


def test_the_python_of_the_page_that_starts_clusters_runs(
    fresh_process, tmp_path
):
    # TensorFlow would have their tasks in mind until its process ends.
    blocks = notebook.blocks((_DOCS / "distributed.md").read_text())
    assert blocks
    fresh_process.run(
        f"import os; os.chdir({str(tmp_path)!r})\n"
        + "".join(text for _, text in blocks)
    )
