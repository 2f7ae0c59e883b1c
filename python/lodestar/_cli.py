"""What command lines share: one-line errors, exit codes, whole numbers."""

import argparse
import os
import sys
from collections.abc import Callable

import tensorflow as tf

from lodestar._errors import describe_error

_INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message):
        """Ends the program with code 2."""
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def run(
    name: str,
    command: Callable[[], int],
    failure: int,
    *errors: type[Exception],
) -> int:
    """Runs a command and returns the exit code.

    Args:
        name: Of the program, which stands before what it says on stderr.
        command: Returns the exit code.
        failure: The exit code where it raises.
        *errors: What it raises, beside ValueError and the system's errors.
    """
    try:
        code = command()
        # So that a reader who has gone is noticed here, and not at exit.
        sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone, as in `... | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError, tf.errors.OpError, *errors) as error:
        print(f"{name}: {describe_error(error)}", file=sys.stderr)
        return failure
    return code


def integer(text: str, base: int = 10) -> int:
    """Reads an argument; ArgumentTypeError says that it is no integer."""
    try:
        return int(text, base)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an integer"
        ) from None


def count(text: str, least: int = 1) -> int:
    """As `integer`, `least` or more."""
    number = integer(text)
    if number < least:
        raise argparse.ArgumentTypeError(f"{text} is not {least} or more")
    return number
