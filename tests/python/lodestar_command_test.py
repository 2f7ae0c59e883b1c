"""lodestar.__main__: the command that pip installs."""

import importlib
import os
import subprocess
import sys

import pytest

import lodestar
from lodestar.__main__ import main


@pytest.mark.parametrize("name", ["data", "snapshot", "train"])
def test_each_command_is_the_main_of_its_module(monkeypatch, name):
    module = importlib.import_module(f"lodestar.{name}.__main__")
    seen = []
    monkeypatch.setattr(module, "main", lambda given: seen.append(given) or 3)
    assert main([name, "--help", "x", name]) == 3
    assert seen == [["--help", "x", name]]


def test_version_and_help(capsys):
    for option, wanted in (
        ("--version", f"Lodestar {lodestar.__version__}"),
        ("--help", "usage: lodestar [-h] [--version] COMMAND"),
    ):
        with pytest.raises(SystemExit) as end:
            main([option])
        assert end.value.code == 0
        assert wanted in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["dta"], [], ["--bogus"], [""]])
def test_what_is_no_command_is_said_in_one_line(capsys, arguments):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lodestar: ") and line.endswith("; see --help")


def _with_old_keras(folder, *arguments):
    """Runs Python where any import of TensorFlow or Keras is the wrong one."""
    (folder / "keras.py").write_text("__version__ = '3.4.1'")
    (folder / "tensorflow.py").write_text("raise ImportError('imported')")
    path = os.pathsep.join([str(folder), *sys.path])
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
    )


def _script(folder):
    """What pip writes."""
    path = folder / "lodestar"
    path.write_text(
        "import sys\nfrom lodestar.__main__ import main\nsys.exit(main())"
    )
    return [path]


@pytest.mark.parametrize("option", ["--version", "--help", "-h"])
@pytest.mark.parametrize("start", [_script, lambda folder: ["-m", "lodestar"]])
def test_version_and_help_import_no_tensorflow(tmp_path, start, option):
    done = _with_old_keras(tmp_path, *start(tmp_path), option)
    assert (done.returncode, done.stderr) == (0, "")
    assert "odestar" in done.stdout


@pytest.mark.parametrize(
    "start",
    [
        lambda folder: [*_script(folder), "data", "--help"],
        lambda folder: ["-m", "lodestar", "snapshot"],
        lambda folder: ["-m", "lodestar.data", "--help"],
    ],
)
def test_a_command_without_its_packages_says_so_in_one_line(tmp_path, start):
    done = _with_old_keras(tmp_path, *start(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("lodestar: Keras 3.4.1 is installed, wanted 3.15")


def test_another_program_sees_the_error_itself(tmp_path):
    path = tmp_path / "main.py"
    path.write_text("import lodestar")
    done = _with_old_keras(tmp_path, path, "--version")
    assert done.returncode == 1 and "Traceback" in done.stderr
