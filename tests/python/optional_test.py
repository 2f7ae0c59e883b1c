"""lodestar._optional: what is missing is named, with what to type."""

import importlib.util
import os
import subprocess
import sys

import pytest

from lodestar._optional import import_optional

NONE_OF_THEM = """
import sys
for name in ("pandas", "polars", "pyarrow", "tqdm", "yaml"):
    sys.modules[name] = None  # as if it were not installed
import lodestar
"""


@pytest.mark.parametrize(
    "name, install",
    [
        ("pyarrow", "'tf-lodestar[parquet]'"),
        ("pyarrow.parquet", "'tf-lodestar[parquet]'"),
        ("tqdm", "'tf-lodestar[progress]'"),
        ("yaml", "pyyaml"),
        ("pandas", "pandas"),
    ],
)
def test_what_is_missing_is_named(monkeypatch, name, install):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError) as error:
        import_optional(name, "Reading it")
    package = name.split(".")[0]
    assert str(error.value).startswith(
        f"Reading it needs {package}: pip install {install} ("
    )


def test_what_is_there_is_returned():
    assert import_optional("importlib.util", "x") is importlib.util


def _run(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", NONE_OF_THEM + code, *arguments],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "LODESTAR_QUIET_START": "1",
        },
    )


def test_without_them_all_else_works_and_each_use_says_what_to_type(tmp_path):
    code = """
spec = lodestar.data.Schema([lodestar.data.Column.label("y")])
uses = [
    lambda: spec.save("schema.yaml"),
    lambda: lodestar.data.open_writer("x.parquet", spec),
    lambda: lodestar.data.open_dataset("x.parquet", spec, 4, format="parquet"),
]
for use in uses:
    try:
        use()
    except ImportError as error:
        print(error)
from lodestar.data.__main__ import main
from lodestar.data.tool.progress import Progress
with Progress() as progress:
    progress.start("generating", 3)
    progress.update(1)
sys.exit(main(["inspect", sys.argv[1]]))
"""
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1")
    done = _run(code, str(path))
    lines = done.stdout.splitlines()
    assert [line.partition(" (")[0] for line in lines] == [
        "Schema needs yaml: pip install pyyaml",
        "ParquetWriter needs pyarrow: pip install 'tf-lodestar[parquet]'",
        "ParquetDataset needs pyarrow: pip install 'tf-lodestar[parquet]'",
    ], done.stderr
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("lodestar.data: ")
    assert "'tf-lodestar[parquet]'" in last
