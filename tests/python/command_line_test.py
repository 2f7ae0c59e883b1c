"""command_line: errors in one line, exit codes, types of arguments."""

import argparse
import os
import signal
import threading

import pytest
import tensorflow as tf

from lodestar import command_line
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
    assert command_line.run("job", raising(error)) == 2
    assert command_line.run("job", raising(error), 1) == 1
    assert capsys.readouterr().err == 2 * line


def test_a_fault_of_the_program_is_raised(capsys):
    with pytest.raises(KeyError):
        command_line.run("job", raising(KeyError("x")))
    errors = command_line.INPUT_ERRORS
    with pytest.raises(ValueError, match="x"):
        command_line.run("job", raising(ValueError("x")), errors=errors)
    assert command_line.run("job", raising(ValueError("x"))) == 2
    assert command_line.run("job", lambda: 3) == 3
    assert capsys.readouterr().err == "job: x\n"


def test_an_interrupt_that_a_library_turns_into_another_error(capsys):
    def command():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise RuntimeError("cancelled") from error

    before = signal.getsignal(signal.SIGINT)
    assert command_line.run("job", command) == 130
    assert command_line.run("job", command, interrupted="Gone.") == 130
    assert capsys.readouterr().err == "job: interrupted\nGone.\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_only_a_reader_of_stdout_that_is_gone_is_no_error(monkeypatch, capsys):
    broken = raising(BrokenPipeError(32, "Broken pipe"))
    assert command_line.run("job", broken) == 2  # of another pipe
    assert capsys.readouterr().err == "job: [Errno 32] Broken pipe\n"
    reader, writer = os.pipe()
    with open(writer, "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        assert command_line.run("job", broken) == 2
        os.close(reader)
        assert command_line.run("job", lambda: print("text") or 3) == 0
        print("goes nowhere", flush=True)


def test_it_runs_in_any_thread():
    codes = []
    thread = threading.Thread(
        target=lambda: codes.append(command_line.run("job", lambda: 4))
    )
    thread.start()
    thread.join()
    assert codes == [4]


@pytest.mark.parametrize(
    "read, text, message",
    [
        (command_line.integer, "x", "'x' is not an integer"),
        (command_line.count, "0", "0 is not 1 or more"),
        (command_line.at_least(2, 5), "1", "1 is not at least 2"),
        (command_line.at_least(2, 5), "6", "6 is more than 5"),
        (command_line.at_least_each(1), "1,0", "0 is not at least 1"),
        (command_line.positive, "nan", "nan is not positive"),
        (command_line.fraction, "1", "1 is not between 0 and 1"),
        (command_line.path, "", "a path is empty"),
    ],
)
def test_types_of_arguments_name_what_is_wrong(read, text, message):
    with pytest.raises(argparse.ArgumentTypeError, match=f"^{message}$"):
        read(text)


def test_a_wrong_command_line_is_one_line(capsys):
    parser = command_line.Parser(prog="job")
    parser.add_argument("--sizes", type=command_line.at_least_each(1))
    parser.add_argument("--names", type=command_line.names)
    options = parser.parse_args(["--sizes", "3,4", "--names", "a, b,"])
    assert options.sizes == [3, 4] and options.names == ["a", "b"]
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["--colour"])
    assert capsys.readouterr().err == (
        "job: unrecognized arguments: --colour; see --help\n"
    )
