"""lodestar._command_line: one-line errors, exit codes, parsing and tables."""

import os
import pathlib
import pty
import signal
import sys
import threading
import time

import click
import pytest
import tensorflow as tf

from lodestar import _command_line
from lodestar._commands.data import READING, given_options
from lodestar.data import DataError


def raising(error):
    def command():
        raise error

    return command


@pytest.mark.parametrize(
    "error, line",
    [
        (DataError("in.csv: is empty"), "job: in.csv: is empty\n"),
        (FileNotFoundError(2, "No such file", "a"), "job: a: No such file\n"),
        (tf.errors.DataLossError(None, None, "b: cut\nshort"), "job: b: cut short\n"),
    ],
)  # fmt: skip
def test_an_error_is_one_line(error, line, capsys):
    assert _command_line.run("job", raising(error)) == 2
    assert _command_line.run("job", raising(error), 1) == 1
    assert capsys.readouterr().err == 2 * line


def test_a_fault_of_the_program_is_raised(capsys):
    with pytest.raises(KeyError):
        _command_line.run("job", raising(KeyError("x")))
    errors = _command_line.INPUT_ERRORS
    with pytest.raises(ValueError, match="x"):
        _command_line.run("job", raising(ValueError("x")), errors=errors)
    assert _command_line.run("job", raising(ValueError("x"))) == 2
    assert _command_line.run("job", lambda: 3) == 3
    assert capsys.readouterr().err == "job: x\n"


class _Slow:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


def _drops_the_error():
    # As C code that asks whether an object has an attribute.
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        pass


@pytest.mark.parametrize("lose", [lambda: _Slow() and None, _drops_the_error])
@pytest.mark.parametrize("ends", [False, True])
def test_an_interrupt_that_is_lost_is_raised_again(
    lose, ends, monkeypatch, capsys
):
    # Pytest's hook would keep the exception.
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    ended = []

    def command():
        lose()
        if not ends:
            time.sleep(60)
        ended.append(True)
        return 0

    before = signal.getsignal(signal.SIGINT)
    assert _command_line.run("job", command) == 130
    assert capsys.readouterr().err == "job: interrupted\n"
    assert signal.getsignal(signal.SIGINT) is before
    assert ends or not ended


def test_an_interrupt_that_a_library_turns_into_another_error(capsys):
    def command():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise RuntimeError("cancelled") from error

    before = signal.getsignal(signal.SIGINT)
    assert _command_line.run("job", command) == 130
    assert _command_line.run("job", command, interrupted="Gone.") == 130
    assert capsys.readouterr().err == "job: interrupted\nGone.\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_only_a_closed_stdout_is_not_an_error(monkeypatch, capsys):
    broken = raising(BrokenPipeError(32, "Broken pipe"))
    assert _command_line.run("job", broken) == 2  # of another pipe
    assert capsys.readouterr().err == "job: [Errno 32] Broken pipe\n"
    reader, writer = os.pipe()
    with open(writer, "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        assert _command_line.run("job", broken) == 2
        os.close(reader)
        assert _command_line.run("job", lambda: print("text") or 3) == 0
        print("goes nowhere", flush=True)


def test_it_runs_in_any_thread():
    codes = []
    thread = threading.Thread(
        target=lambda: codes.append(_command_line.run("job", lambda: 4))
    )
    thread.start()
    thread.join()
    assert codes == [4]


JOB = _command_line.Command(
    "job",
    [
        click.Option(
            ["--sizes"], type=_command_line.comma_separated(click.INT)
        ),
        click.Option(["--names"], type=_command_line.comma_separated()),
        click.Option(["--out"], type=_command_line.path),
        click.Option(["--rate"], type=_command_line.positive),
        *READING,
    ],
)


def test_a_command_line_is_parsed_into_values():
    line = ["--sizes=3,4", "--names", "a, b", "--out=x/y", "--rate=.5"]
    params = _command_line.parse(JOB, line).params
    assert (params["sizes"], params["names"]) == ([3, 4], ["a", "b"])
    assert (params["out"], params["rate"]) == (pathlib.Path("x/y"), 0.5)


def test_options_of_reading_that_are_given():
    params = _command_line.parse(JOB, []).params
    assert given_options(params) == {}
    line = "--format raw --nnz 2,3 --key-type int64 --na-value x --na-value="
    params = _command_line.parse(JOB, line.split()).params
    assert given_options(params) == {
        "format": "raw",
        "nnz_per_slot": [2, 3],
        "key_type": "int64",
        "na_values": ("x", ""),
    }
    assert _command_line.parse(JOB, ["--nnz=7"]).params["nnz_per_slot"] == 7


@pytest.mark.parametrize(
    "argument, message",
    [
        ("--colour", "No such option"),
        ("--sizes=3,x", "'--sizes': 'x' is not a valid integer."),
        ("--names=a,,b", "'a,,b' has an empty item."),
        ("--names=", "'' has an empty item."),
        ('--names="a', "'\"a' is not a list."),
        ("--out=", "The path is empty."),
        ("--rate=nan", "nan is not a positive number."),
        ("--rate=0", "0 is not a positive number."),
        ("--slot-size-array=3,0", "0 is not in the range x>=1."),
        ("--delimiter=", "The delimiter is empty."),
    ],
)
def test_a_wrong_command_line_is_one_line(capsys, argument, message):
    with pytest.raises(SystemExit, match="2"):
        _command_line.parse(JOB, [argument], "work")
    error = capsys.readouterr().err
    assert error.startswith("work: ") and error.endswith(" See --help.\n")
    assert message in error and error.count("\n") == 1


ROWS = [("column", "kind"), ("a", "[bold]:smile:"), ("b", "ids")]


def test_a_table_in_a_pipe_has_a_line_per_row(capsys):
    _command_line.print_table([*ROWS, ("c", "x" * 200)])
    assert capsys.readouterr().out.splitlines() == [
        "column  kind",
        "a       [bold]:smile:",
        "b       ids",
        "c       " + "x" * 200,
    ]


def test_a_table_on_a_terminal_has_a_frame(monkeypatch):
    leader, terminal = pty.openpty()
    with open(terminal, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        _command_line.print_table(ROWS)
        stdout.flush()
        text = os.read(leader, 10_000).decode()
    os.close(leader)
    assert "│ b " in text and "[bold]:smile:" in text
