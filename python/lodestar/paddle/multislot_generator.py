"""Base class of scripts that convert lines to MultiSlot text."""

import collections
import contextlib
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, Unpack

import numpy as np
import tensorflow as tf

from lodestar._checks import check_count
from lodestar._errors import DataError, describe_error
from lodestar._files import AtomicFile, as_path
from lodestar._input_bytes import open_input
from lodestar._typing import StrPath, StrPaths
from lodestar.data.record_dataset import ReadArguments
from lodestar.paddle.generated_dataset import generated_dataset
from lodestar.schema import SchemaLike, as_schema
from lodestar.schema.domain import EXACT_BELOW

# Exit code of a program whose reader has gone in a shell: 128 + SIGPIPE.
_READER_GONE = 141
# The smallest number that rounds to an infinite float32.
_FLOAT32_END = float(2**128 - 2**103)
# Python converts at most 4300 digits.
_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")
_FLOAT = re.compile(
    r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf(inity)?|nan)",
    re.IGNORECASE,
)
_HEX_FLOAT = re.compile(
    r"[+-]?0x([0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(p[+-]?[0-9]+)?",
    re.IGNORECASE,
)


class MultiSlotGenerator:
    r"""Converts lines of any text to MultiSlot text.

    A subclass returns the samples of a line in `generate_sample`. With
    `run_from_stdin()` as its last line, a script becomes a command for
    `pipe_command`; `lines` and `write` do the same in process.

    >>> class Words(MultiSlotGenerator):
    ...     def generate_sample(self, line):
    ...         label, *ids = map(int, line.split())
    ...         yield [("words", ids), ("label", [label])]
    >>> list(Words().lines(["1 1926 8 17", "0 5"]))
    ['3 1926 8 17 1 1\n', '1 5 1 0\n']

    A sample is a list of `(name, values)`, one per slot, where `values` is a list,
    tuple or rank-1 array of integers and floats. All samples must have the slots
    of the first one, in its order, or, with `schema`, the slots and values of the
    schema. Numbers are written without loss: integers have 64 bits (-1 has the
    bits of 18446744073709551615), floats are float32.

    The semantics are those of Paddle's `MultiSlotDataGenerator`.
    """

    def __init__(
        self,
        *,
        schema: SchemaLike | None = None,
        allow_empty: bool = True,
        strings: bool = False,
    ):
        r"""Creates a generator; call this if a subclass has its own `__init__`.

        Args:
            schema: A Schema, a list of slots or the path of a schema file that
                samples must match. None infers it from the first sample.
            allow_empty: Whether a slot may have no values, which Lodestar can read
                but Paddle cannot.
            strings: Whether values are strings to write unchanged, as in Paddle's
                `MultiSlotStringDataGenerator`. They must still be valid numbers
                of MultiSlot text.

        >>> class Words(MultiSlotGenerator):
        ...     def generate_sample(self, line):
        ...         label, *ids = line.split()
        ...         yield [("words", ids), ("label", [label])]
        >>> list(Words(strings=True).lines(["1 1926 008 17"]))
        ['3 1926 008 17 1 1\n']
        """
        self._strings = strings
        self._spec = None if schema is None else as_schema(schema)
        self._allow_empty = allow_empty
        self._batch_size = 32
        self._types: dict[str, str] = {}
        if self._spec is not None:
            self._types = {slot.name: slot.dtype for slot in self._spec}

    def generate_sample(self, line: Any) -> Any:
        r"""Returns the samples of one line. Override this method.

        Args:
            line: A line including its end (`\n` or `\r\n`), if any; an item of
                `lines`; or None in `run_from_memory`.

        Returns:
            An iterable of samples, such as a generator; a callable that
            returns one, or None. Samples that are None are skipped.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must override generate_sample()."
        )

    def generate_batch(self, samples: list[Any]) -> Any:
        """Returns the samples to write for a batch.

        Override this method if samples depend on each other, as in padding.

        Args:
            samples: As many samples as set by `set_batch`, fewer in the last batch.

        Returns:
            The same as `generate_sample`.
        """
        return samples

    def set_batch(self, batch_size: int) -> None:
        """Sets the batch size of `generate_batch`, which is 32 by default."""
        check_count("batch_size", batch_size, 1)
        self._batch_size = batch_size

    @property
    def slot_types(self) -> dict[str, str]:
        """Slot name -> `"uint64"` or `"float"`, in order.

        Without `schema`, a slot is a float once it had a float, and this is empty
        before the first sample.
        """
        return dict(self._types)

    def lines(self, lines: Iterable[Any]) -> Iterator[str]:
        """Yields the MultiSlot lines of input lines, each with its newline.

        Raises:
            TypeError: If `lines` is one string.
            DataError: While iterating, if a sample is invalid or a method raised;
                names the number of the input line.
        """
        if isinstance(lines, (str, bytes)):
            raise TypeError(
                f"`lines` must be an iterable of lines, got {lines!r}."
            )
        return self._texts(self._samples(lines, "line "), "line ")

    def write(self, path_in: StrPath, path_out: StrPath) -> int:
        """Converts a file of lines to MultiSlot; returns the number of samples.

        The file is created atomically; an error leaves nothing. Paths may have any
        `tf.io.gfile` scheme; names that end in `.gz` are compressed.

        Raises:
            DataError: As in `lines`, with the line as `path:number`, or if there
                were no samples.
            FileNotFoundError: If a file does not exist.
            tf.errors.OpError: If a file cannot be read or written.
        """
        path = as_path(path_in)
        count = 0
        with AtomicFile(path_out) as out:
            for text in self._file_texts(path):
                out.write(text.encode())
                count += 1
            if not count:
                raise DataError(f"{path}: the generator returned no samples.")
        return count

    def dataset(
        self,
        files: StrPaths,
        batch_size: int,
        **options: Unpack[ReadArguments],
    ) -> tf.data.Dataset:
        """Returns the samples of input files as `open_dataset` would.

        The generator runs in this process, in one thread, so no text file and no
        command is needed. It must have a `schema`. Neither a graph nor a checkpoint
        of an iterator can save such a dataset.

        Args:
            files: One or several paths of any `tf.io.gfile` scheme; names that end
                in `.gz` are decompressed.
            batch_size: Samples per batch.
            **options: Options of `open_dataset` except `num_parallel_files`,
                `deterministic`, `on_error`, `skipped` and `open_command`.

        Raises:
            ValueError: If the generator has no `schema`, an option is out of range
                or not allowed, or `files` is empty.
            tf.errors.OpError: While reading, with the text of the `DataError` that
                `write` would raise.
        """
        if self._spec is None:
            raise ValueError(
                f"dataset() needs a {type(self).__name__} created with `schema`."
            )
        return generated_dataset(
            self._file_texts, files, self._spec, batch_size, **options
        )

    def _file_texts(self, path: str) -> Iterator[str]:
        where = f"{path}:"
        with open_input(path) as file:
            lines = _decoded(file, path)
            yield from self._texts(self._samples(lines, where), where)

    def run_from_stdin(self) -> None:
        """Reads lines from stdin and writes MultiSlot text to stdout.

        In a script, other prints go to stderr. After an error the process exits
        with code 2 and one line on stderr, which names the number of the input line.
        If stdout is closed, it exits silently with code 141.
        """
        lines = _decoded(sys.stdin.buffer, "stdin")
        self._run(self._samples(lines, "stdin:"), "stdin:")

    def run_from_memory(self) -> None:
        """Like `run_from_stdin`, with the samples of `generate_sample(None)`."""
        samples = _results("run_from_memory", self.generate_sample, None)
        self._run(enumerate(samples, 1), "sample ")

    def _run(self, samples: Iterable[tuple[int, Any]], where: str) -> None:
        out = sys.stdout.buffer
        try:
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    for text in self._texts(samples, where):
                        out.write(text.encode())
            finally:
                out.flush()
        except BrokenPipeError:
            # Python flushes stdout again at exit, which would print an error.
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
            sys.exit(_READER_GONE)
        except DataError as error:
            print(error, file=sys.stderr)
            sys.exit(2)

    def _samples(
        self, lines: Iterable[Any], where: str
    ) -> Iterator[tuple[int, Any]]:
        """Yields (line number, sample)."""
        for number, line in enumerate(lines, 1):
            place = f"{where}{number}"
            for sample in _results(place, self.generate_sample, line):
                yield number, sample

    def _texts(
        self, samples: Iterable[tuple[int, Any]], where: str
    ) -> Iterator[str]:
        method = getattr(self.generate_batch, "__func__", None)
        if method is MultiSlotGenerator.generate_batch:
            for number, sample in samples:
                yield self._text(sample, f"{where}{number}")
            return
        batch: list[tuple[int, Any]] = []
        for numbered in samples:
            batch.append(numbered)
            if len(batch) == self._batch_size:
                yield from self._batch_texts(batch, where)
                batch = []
        if batch:
            yield from self._batch_texts(batch, where)

    def _batch_texts(
        self, batch: list[tuple[int, Any]], where: str
    ) -> Iterator[str]:
        first, last = batch[0][0], batch[-1][0]
        place = f"{where}{first}" + (f"-{last}" if first != last else "")
        samples = [sample for _, sample in batch]
        for sample in _results(place, self.generate_batch, samples):
            yield self._text(sample, place)

    def _text(self, sample: Any, place: str) -> str:
        """Returns the line of a sample."""
        if isinstance(sample, zip):
            sample = list(sample)
        if not isinstance(sample, (list, tuple)):
            raise DataError(
                f"{place}: a sample must be a list of (name, values), got "
                f"{_shown(sample)}."
            )
        for slot in sample:
            if (
                not isinstance(slot, (list, tuple))
                or len(slot) != 2
                or not isinstance(slot[0], str)
            ):
                raise DataError(
                    f"{place}: a slot must be (name, values), got {_shown(slot)}."
                )
        self._check_names([name for name, _ in sample], place)
        words: list[str] = []
        counts: dict[str, int] = {}
        for name, values in sample:
            texts = self._value_texts(name, values, place)
            counts[name] = len(texts)
            self._check_count(name, counts, place)
            words.append(str(len(texts)))
            words += texts
        for ids, weights in self._spec.weights.items() if self._spec else ():
            if counts[ids] != counts[weights]:
                raise DataError(
                    f"{place}: slot {weights!r} must have {counts[ids]} values, "
                    f"one per id of slot {ids!r}, got {counts[weights]}."
                )
        return " ".join(words) + "\n"

    def _check_names(self, names: list[str], place: str) -> None:
        if not self._types:
            for name, count in collections.Counter(names).items():
                if count > 1:
                    raise DataError(f"{place}: slot {name!r} is repeated.")
            if not names:
                raise DataError(f"{place}: the sample has no slots.")
            self._types = dict.fromkeys(names, "uint64")
        wanted = list(self._types)
        if names == wanted:
            return
        origin = "the first sample" if self._spec is None else "the schema file"
        if len(names) != len(wanted):
            raise DataError(
                f"{place}: the sample must have {len(wanted)} slots, as in "
                f"{origin}, got {len(names)}."
            )
        found, name = next(
            pair for pair in zip(names, wanted) if len({*pair}) > 1
        )
        raise DataError(
            f"{place}: slot {found!r} is in the position of {name!r}; slots must be "
            f"in the order of {origin}."
        )

    def _value_texts(self, name: str, values: Any, place: str) -> list[str]:
        if not isinstance(values, (list, tuple)) and (
            not isinstance(values, np.ndarray) or values.ndim != 1
        ):
            kind = "strings" if self._strings else "integers and floats"
            raise DataError(
                f"{place}: slot {name!r} must be a list of {kind}, got "
                f"{_shown(values)}."
            )
        texts = []
        for index, value in enumerate(values):
            number, text = self._number(value)
            if isinstance(number, float) and self._spec is None:
                self._types[name] = "float"
            problem = self._problem(name, number)
            if problem:
                raise DataError(
                    f"{place}: slot {name!r}: value {index + 1} of {len(values)} "
                    f"must be {problem}, got {_shown(value)}."
                )
            texts.append(text)
        return texts

    def _number(self, value: Any) -> tuple[int | float | None, str]:
        """Returns the value as a number (None if it is not one) and its text."""
        if self._strings:
            if isinstance(value, str):
                return parse_number(value), value
            return None, ""
        if isinstance(value, (int, np.integer, np.bool_)):
            return int(value), str(int(value))
        if isinstance(value, np.float32):
            number = float(value)
            return number, _exact_text(number) or str(
                value
            )  # shorter than repr
        if isinstance(value, (float, np.floating)):
            number = float(value)
            return number, _exact_text(number) or repr(number)
        return None, ""

    def _problem(self, name: str, number: int | float | None) -> str:
        """Returns the requirement that a number violates, or ""."""
        slot = None if self._spec is None else self._spec[name]
        if self._types[name] == "float":
            if number is None:
                return "a number"
            if _FLOAT32_END <= abs(number) != float("inf"):
                return "a float32"
            if (
                EXACT_BELOW[32] <= abs(number) != float("inf")
                and float(np.float32(number)) != number
            ):
                return "a number that float32 holds exactly from 2**24 on"
        elif not isinstance(number, int):
            return "an integer or a float" if slot is None else "an integer"
        elif not -(2**63) <= number < 2**64:
            return "an integer of 64 bits"
        if slot is None:
            return ""
        if slot.kind == "label" and slot.binary and number not in (0, 1):
            return "0 or 1"
        if slot.kind == "one_hot" and not 0 <= number < slot.size:
            return f"a whole number from 0 to {slot.size - 1}"
        return ""

    def _check_count(
        self, name: str, counts: dict[str, int], place: str
    ) -> None:
        count = counts[name]
        slot = None if self._spec is None else self._spec[name]
        wanted = ""
        if slot is not None and slot.num_values not in (None, count):
            wanted = str(slot.num_values)
        elif slot is not None and count % slot.multiple:
            wanted = f"a multiple of {slot.multiple}"
        elif not count and not self._allow_empty:
            wanted = "at least one"
        if wanted:
            raise DataError(
                f"{place}: the number of values of slot {name!r} must be "
                f"{wanted}, got {count}."
            )


def _exact_text(number: float) -> str:
    """Returns the digits of a large whole number, "" for other numbers.

    Readers require exact numbers where float32 does not hold every whole number.
    """
    is_large = EXACT_BELOW[32] <= abs(number) != float("inf")
    return str(int(number)) if is_large and number.is_integer() else ""


def parse_number(text: str) -> int | float | None:
    """Returns the number that a word of MultiSlot text represents, or None.

    A number beyond float32 becomes the smallest such number.
    """
    if _INTEGER.fullmatch(text):
        return int(text)
    if _HEX_FLOAT.fullmatch(text):
        try:
            return float.fromhex(text)
        except OverflowError:
            return _FLOAT32_END
    if not _FLOAT.fullmatch(text):
        return None
    number = float(text)
    too_large = math.isinf(number) and "inf" not in text.lower()
    return _FLOAT32_END if too_large else number


def _results(
    place: str, method: Callable[..., Any], argument: Any
) -> Iterator[Any]:
    """Yields the results of a subclass's method; wraps its errors."""
    try:
        results = method(argument)
        if callable(results):
            results = results()
        for result in () if results is None else results:
            if result is not None:
                yield result
    except Exception as error:
        # The first frame is this one, the second is in the subclass.
        frame = traceback.extract_tb(error.__traceback__)[:2][-1]
        raise DataError(
            f"{place}: {method.__name__}() raised {type(error).__name__} at "
            f"{frame.filename}:{frame.lineno}: {describe_error(error)}"
        ) from error


def _decoded(file: IO[bytes], path: str) -> Iterator[str]:
    number = 0
    try:
        for line in file:
            number += 1
            yield line.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}:{number}: byte {error.start + 1} is not UTF-8."
        ) from error


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
