"""Runs the Python code of the pages.

The blocks of a page that are fenced as `python` are run from top to bottom, as
one program, in an empty folder. Blocks of text, sh, yaml and the like are not
run.
"""

import pathlib
import re

import keras
import notebook
import numpy as np
import pytest
from processes import Interpreter

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_DOCS = _ROOT / "docs"
_PAGES = {
    str(path.relative_to(_ROOT)): path.read_text()
    for folder, pattern in ((_ROOT, "*.md"), (_DOCS, "**/*.md"))
    for path in sorted(folder.glob(pattern))
}
# Pages that start clusters, which TensorFlow remembers until its process ends.
_CLUSTERS = [name for name, page in _PAGES.items() if "LocalCluster(" in page]
_OTHERS = [
    name
    for name, page in _PAGES.items()
    if notebook.blocks(page)
    # Two pages have their own tests below.
    and name not in (*_CLUSTERS, "README.md", "docs/tutorial.md")
]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Returns a function that runs a page's Python in an empty folder."""
    monkeypatch.chdir(tmp_path)
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    return lambda name: notebook.run(_ROOT / name)


@pytest.mark.parametrize("name", _OTHERS)
def test_the_python_of_a_page_runs(name, run):
    assert len(run(name)) > 1


@pytest.mark.parametrize("name", _CLUSTERS)
def test_the_python_of_a_page_that_starts_clusters_runs(name, tmp_path):
    with Interpreter() as process:
        process.run(
            "import notebook, os, pathlib\n"
            f"os.chdir({str(tmp_path)!r})\n"
            f"notebook.run(pathlib.Path({str(_ROOT / name)!r}))"
        )


def test_pages_have_no_python_that_is_not_run():
    fence = re.compile(r"^ *(?:```|~~~)\W*py.*", re.M | re.I)
    prompt = re.compile(r"^ *>>> .*", re.M)
    assert "docs/data.md" in _OTHERS and "docs/distributed.md" in _CLUSTERS
    for name, page in _PAGES.items():
        assert len(fence.findall(page)) == len(notebook.blocks(page)), name
        assert not prompt.findall(page), f"{name}: has no Python block"


def test_the_readme_shows_its_output(run, capsys):
    run("README.md")
    (shown,) = re.findall(
        r"^```text\n(.*?)^```", _PAGES["README.md"], re.M | re.S
    )
    assert capsys.readouterr().out == shown


def _auc_without_job(names):
    """Returns the AUC of the tutorial's logistic regression without `job`."""
    columns = names["columns"].drop(columns="job")
    model = names["baselines"]["logistic regression"]
    model.fit(columns[:8000], names["rich"][:8000])
    scores = model.predict_proba(columns[10000:])[:, 1]
    return names["roc_auc_score"](names["rich"][10000:], scores)


def test_the_tutorial_has_its_stated_results(run, tmp_path):
    names = run("docs/tutorial.md")
    logistic, trees = names["aucs"].values()
    assert logistic == pytest.approx(0.909, abs=0.001)
    assert trees == pytest.approx(0.908, abs=0.001)
    assert names["auc"] == pytest.approx(0.915, abs=0.003)
    assert _auc_without_job(names) == pytest.approx(0.911, abs=0.001)
    effect = names["effect"]
    steps = ("9th", "HS-grad", "Bachelors", "Masters", "Doctorate")
    assert [effect[s] for s in steps] == sorted(effect[s] for s in steps)
    ages = names["ages"]
    places = ages["place"][ages["id"].between(20 // 5, 60 // 5)]
    ranks = places.rank().to_numpy()
    assert abs(np.corrcoef(ranks, np.arange(ranks.size))[0, 1]) > 0.9
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
