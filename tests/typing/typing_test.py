"""Checks the types of the package, of the ops, and of a user's program."""

import pathlib
import subprocess
import sys
import types

import op_stubs
import pytest

from lodestar._library import gen_ops

# Bazel's copies of this file are links to it.
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROGRAM = _ROOT / "tests" / "typing" / "user_program.py"
# A strict project of a user, for whom TensorFlow and Keras have no types.
_USERS_SETTINGS = f"""
[mypy]
mypy_path = {_ROOT / "python"}
strict = true
follow_imports = silent
[mypy-keras.*,tensorflow.*]
ignore_missing_imports = true
"""


def _mypy(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "mypy", f"--cache-dir={folder}", *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
    )


def test_package(tmp_path):
    result = _mypy(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_users_program(tmp_path):
    settings = tmp_path / "mypy.ini"
    settings.write_text(_USERS_SETTINGS)
    result = _mypy(tmp_path, f"--config-file={settings}", str(_PROGRAM))
    assert result.returncode == 0, result.stdout + result.stderr


def test_stubs_of_the_ops():
    # If this fails, `bazel run //tools:op_stubs` rewrites them.
    assert (_ROOT / op_stubs.PATH).read_text() == op_stubs.stub(gen_ops)


def test_an_argument_of_no_known_kind_is_refused():
    module = types.ModuleType("ops")
    module.lodestar_x = lambda a: None
    module.lodestar_x.__doc__ = (
        "\n  Args:\n    a: A `thing`.\n\n  Returns:\n    The created Operation."
    )
    with pytest.raises(ValueError, match="lodestar_x: 'A `thing`.' has an unk"):
        op_stubs.stub(module)
