"""The parser of command lines, and types of their arguments."""

import argparse
import pathlib
from collections.abc import Callable
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` whose errors take one line."""

    def error(self, message: str) -> NoReturn:
        """Ends the program with code 2."""
        self.exit(2, f"{self.prog}: {message}; see --help\n")


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


def at_least(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    """The type of arguments that are integers from `least` to `most`."""

    def integer(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is not at least {least}")
        if value > most:
            raise argparse.ArgumentTypeError(f"{text} is more than {most}")
        return value

    return integer


def positive(text: str) -> float:
    """The type of arguments that are finite numbers above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def fraction(text: str) -> float:
    """The type of arguments that are numbers between 0 and 1."""
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def path(text: str) -> pathlib.Path:
    """The type of arguments that are paths."""
    if not text:
        raise argparse.ArgumentTypeError("a path is empty")
    return pathlib.Path(text)


def names(text: str) -> list[str]:
    """The type of arguments that are names with a comma between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def at_least_each(least: int) -> Callable[[str], list[int]]:
    """The type of arguments that are integers with a comma between them."""
    one = at_least(least)

    def integers(text: str) -> list[int]:
        return [one(part) for part in text.split(",")]

    return integers
