"""Tests of notebooks generated from pages."""

import json
import traceback

import notebook
import pytest

_PAGE = """# A page

Text of *two*
lines.

```python
x = 1


y = x + 1
```

```sh
pip install it
```

```python
print(f"{y} é")
```
"""


def test_blocks_are_those_of_python_with_their_lines():
    assert notebook.blocks(_PAGE) == [
        (6, "x = 1\n\n\ny = x + 1\n"),
        (17, 'print(f"{y} é")\n'),
    ]
    assert notebook.blocks("") == []


def test_a_notebook_has_text_and_code_in_order():
    book = json.loads(notebook.notebook(_PAGE))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert [
        (cell["cell_type"], "".join(cell["source"])) for cell in book["cells"]
    ] == [
        ("markdown", "# A page\n\nText of *two*\nlines."),
        ("code", "x = 1\n\n\ny = x + 1"),
        ("markdown", "```sh\npip install it\n```"),
        ("code", 'print(f"{y} é")'),
    ]
    assert len({cell["id"] for cell in book["cells"]}) == 4
    assert book["cells"][1]["outputs"] == []
    assert "outputs" not in book["cells"][0]


def test_a_page_runs_as_one_program(tmp_path):
    path = tmp_path / "x.md"
    path.write_text(_PAGE)
    names = notebook.run(path)
    assert (names["y"], names["__name__"]) == (2, "docs_x")


def test_tracebacks_show_lines_of_the_page(tmp_path):
    path = tmp_path / "x.md"
    path.write_text(_PAGE.replace("print(", "1 / 0 ; print("))
    with pytest.raises(ZeroDivisionError) as caught:
        notebook.run(path)
    *_, last = traceback.extract_tb(caught.value.__traceback__)
    assert (last.filename, last.lineno) == (str(path), 18)


def test_the_command_writes_notebook_and_pictures(
    tmp_path, monkeypatch, fresh_process
):
    path = tmp_path / "x.md"
    path.write_text(
        "# Ü\n```python\nopen('a.svg', 'w').write('<svg/>')\n```\n", "utf-8"
    )
    fresh_process.run(
        "import sys, notebook\n"
        f"sys.argv = ['notebook.py', {str(path)!r}, '--pictures']\n"
        "notebook.main()"
    )
    cells = json.loads((tmp_path / "x.ipynb").read_text("utf-8"))["cells"]
    assert cells[0]["source"] == ["# Ü"]
    assert (tmp_path / "x" / "a.svg").read_text() == "<svg/>"
