"""lodestar.__main__: the command that pip installs."""

import argparse
import importlib
import os
import subprocess
import sys

import pytest

import lodestar
from lodestar.__main__ import main
from lodestar._commands.data_parser import data_parser
from lodestar._commands.snapshot_parser import snapshot_parser
from lodestar._commands.train_parser import train_parser
from lodestar._formats import FORMAT_NAMES, KEY_TYPES
from lodestar.data.tool.formats import FORMATS
from lodestar.hugectr.key_records import KEY_DTYPES


@pytest.mark.parametrize("name", ["data", "snapshot", "train"])
def test_each_command_is_the_main_of_its_module(monkeypatch, name):
    module = importlib.import_module(f"lodestar.{name}.__main__")
    seen = []
    monkeypatch.setattr(module, "main", lambda *given: seen.append(given) or 3)
    assert main([name, "--help", "x", name]) == 3
    assert seen == [(["--help", "x", name], f"lodestar {name}")]


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


@pytest.mark.parametrize(
    "arguments",
    ["--version", "--help", "-h", "data --help", "data convert -h"]
    + ["snapshot --help", "snapshot inspect --help", "train server --help"],
)
@pytest.mark.parametrize("start", [_script, lambda folder: ["-m", "lodestar"]])
def test_version_and_help_import_no_tensorflow(tmp_path, start, arguments):
    done = _with_old_keras(tmp_path, *start(tmp_path), *arguments.split())
    assert (done.returncode, done.stderr) == (0, "")
    if arguments == "--version":
        assert done.stdout == f"Lodestar {lodestar.__version__}\n"
        return
    command = " ".join(w for w in arguments.split() if w[0] != "-")
    assert done.stdout.startswith(f"usage: lodestar {command}".strip())


@pytest.mark.parametrize(
    "arguments, said",
    [
        ("lodestar", "lodestar: the following arguments are required"),
        ("lodestar dta", "lodestar: argument COMMAND: invalid choice"),
        ("lodestar data", "lodestar data: the following arguments"),
        ("lodestar data open --x", "lodestar data: argument COMMAND"),
        ("lodestar.data open", "python -m lodestar.data: argument COMMAND"),
        ("lodestar data inspect", "lodestar data inspect: the following"),
        (
            "lodestar data convert --limit 0 a b",
            "lodestar data convert: argument --limit: 0 is not at least 1",
        ),
        (
            "lodestar.snapshot compact --keep 0 a",
            "python -m lodestar.snapshot compact: argument --keep: 0 is not 1",
        ),
        (
            "lodestar train server --task x",
            "lodestar train server: argument --task: invalid integer",
        ),
    ],
)
def test_errors_of_usage_import_no_tensorflow(tmp_path, arguments, said):
    done = _with_old_keras(tmp_path, "-m", *arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(said) and line.endswith("; see --help")


def _parsers(parser):
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _parsers(below)


@pytest.mark.parametrize("make", [data_parser, snapshot_parser, train_parser])
def test_every_argument_has_help_and_a_program_its_name(make):
    for parser in _parsers(make("lodestar x")):
        assert parser.prog.startswith("lodestar x")
        assert parser.description
        for action in parser._actions:
            if not isinstance(action, argparse._SubParsersAction):
                assert action.help, (parser.prog, action.dest)


def test_parsers_offer_the_formats_that_there_are():
    assert FORMAT_NAMES == tuple(FORMATS)
    assert KEY_TYPES == tuple(KEY_DTYPES)


@pytest.mark.parametrize(
    "start",
    [
        lambda folder: [*_script(folder), "data", "inspect", "x"],
        lambda folder: ["-m", "lodestar", "snapshot", "list", "x"],
        lambda folder: ["-m", "lodestar.data", "inspect", "x"],
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
