"""lodestar.__main__: the command that pip installs."""

import importlib
import inspect
import os
import subprocess
import sys

import click
import pytest

import lodestar
from lodestar.__main__ import main
from lodestar._commands.data import READING
from lodestar._commands.groups import GROUPS, LODESTAR
from lodestar._formats import FORMAT_NAMES, KEY_TYPES
from lodestar.data.files.formats import FORMATS
from lodestar.hugectr.key_records import KEY_DTYPES


@pytest.mark.parametrize(
    "command",
    ["data generate x", "snapshot list x", "train server --task 1"],
)
def test_each_group_runs_in_its_module(monkeypatch, command):
    group, name, *_ = command.split()
    module = importlib.import_module(f"lodestar.{group}.__main__")
    seen = []
    monkeypatch.setattr(module, "run", lambda found: seen.append(found) or 3)
    assert main(command.split()) == 3
    assert [found.command_path for found in seen] == [
        f"lodestar {group} {name}"
    ]


def test_version_and_help(capsys):
    for option, wanted in (
        ("--version", f"Lodestar {lodestar.__version__}"),
        ("--help", "Usage: lodestar [OPTIONS] COMMAND"),
    ):
        with pytest.raises(SystemExit) as end:
            main([option])
        assert end.value.code == 0
        assert wanted in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["dta"], [], ["--bogus"], [""]])
def test_an_unknown_command_is_one_line(capsys, arguments):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lodestar: ") and line.endswith(" See --help.")


def _with_old_keras(folder, *arguments, **environment):
    """Runs Python with another TensorFlow and Keras, which fail on import."""
    (folder / "keras.py").write_text("__version__ = '3.4.1'")
    (folder / "tensorflow.py").write_text("raise ImportError('imported')")
    path = os.pathsep.join([str(folder), *sys.path])
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


def _script(folder):
    """Writes the script that pip writes."""
    path = folder / "lodestar"
    path.write_text(
        "import sys\nfrom lodestar.__main__ import main\nsys.exit(main())"
    )
    return [path]


def _module(folder):
    return ["-m", "lodestar"]


@pytest.mark.parametrize(
    "start, arguments",
    [
        *((_script, "--version"), (_module, "--version"), (_module, "-h")),
        *((_script, "--help"), (_module, "data --help")),
        *((_script, "data convert -h"), (_module, "snapshot inspect --help")),
        (_script, "train server --help"),
    ],
)
def test_version_and_help_import_no_tensorflow(tmp_path, start, arguments):
    done = _with_old_keras(tmp_path, *start(tmp_path), *arguments.split())
    assert (done.returncode, done.stderr) == (0, "")
    if arguments == "--version":
        assert done.stdout == f"Lodestar {lodestar.__version__}\n"
        return
    command = " ".join(w for w in arguments.split() if w[0] != "-")
    assert done.stdout.startswith(f"Usage: lodestar {command}".strip())


@pytest.mark.parametrize(
    "arguments, said",
    [
        ("lodestar", "lodestar: Missing command."),
        ("lodestar dta", "lodestar: No such command 'dta'."),
        ("lodestar data", "lodestar data: Missing command."),
        ("lodestar data open --x", "lodestar data: No such command 'open'."),
        ("lodestar.data open", "python -m lodestar.data: No such command"),
        ("lodestar data inspect", "lodestar data inspect: Missing argument"),
        (
            "lodestar data convert --limit 0 a b",
            "lodestar data convert: Invalid value for '--limit': 0 is not in the "
            "range x>=1.",
        ),
        (
            "lodestar.snapshot compact --keep 0 a",
            "python -m lodestar.snapshot compact: Invalid value for '--keep': 0",
        ),
        (
            "lodestar train server --task x",
            "lodestar train server: Invalid value for '--task': 'x' is not a",
        ),
    ],
)
def test_errors_of_usage_import_no_tensorflow(tmp_path, arguments, said):
    done = _with_old_keras(tmp_path, "-m", *arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(said) and line.endswith(" See --help.")


def _commands(command):
    yield command
    for below in getattr(command, "commands", {}).values():
        yield from _commands(below)


def test_every_command_and_option_has_help():
    assert set(GROUPS.values()) <= set(_commands(LODESTAR))
    for command in _commands(LODESTAR):
        assert command.help, command.name
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, (command.name, option.name)


def test_options_of_reading_are_called_as_those_of_open_dataset():
    named = inspect.signature(lodestar.data.open_dataset).parameters
    known = {*named, *(name for f in FORMATS.values() for name in f.reads)}
    assert {option.name for option in READING} <= known


def test_completion_imports_no_tensorflow(tmp_path):
    """As a shell requests it."""
    environment = {
        "_LODESTAR_COMPLETE": "bash_complete",
        "COMP_WORDS": "lodestar data insp",
        "COMP_CWORD": "2",
    }
    done = _with_old_keras(tmp_path, *_script(tmp_path), **environment)
    assert (done.returncode, done.stdout) == (0, "plain,inspect\n")


def test_options_offer_the_formats_that_there_are():
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
def test_missing_packages_of_a_command_are_one_line(tmp_path, start):
    done = _with_old_keras(tmp_path, *start(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("lodestar: Keras must be 3.15 or later, got 3.4.1")


def test_another_program_sees_the_error_itself(tmp_path):
    path = tmp_path / "main.py"
    path.write_text("import lodestar")
    done = _with_old_keras(tmp_path, path, "--version")
    assert done.returncode == 1 and "Traceback" in done.stderr
