"""lodestar._optional: errors name a missing package and how to install it."""

import importlib.util
import os
import subprocess
import sys

import pytest

from lodestar._optional import import_optional


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="^Reading needs pandas: pip install"):
        import_optional("pandas", "Reading")


def test_installed_packages_are_returned():
    assert import_optional("importlib.util", "x") is importlib.util


def test_lodestar_works_without_them(tmp_path):
    for name in ("pandas", "polars"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('none')")
    code = """
import lodestar
table = lodestar.EmbeddingVariable(2, name="t")
print(table.export().to_arrow().column_names)
try:
    table.export().to_pandas()
except ImportError as error:
    print(error)
"""
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    columns, error = done.stdout.splitlines()
    assert columns.startswith("['id', 'value'")
    assert error == (
        "EmbeddingRows.to_pandas needs pandas: pip install pandas (none)"
    )
