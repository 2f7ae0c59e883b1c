"""lodestar.__main__: the command that pip installs."""

import importlib

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
