"""The user's files: which they are, and how they are read."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable
from typing import Any

from errors import InputError
from options import Options

from lodestar.data import Source, expand_inputs, one_format, open_source

# Formats that are trained on only after a conversion to MultiSlot text.
CONVERTED = ("csv", "tsv")
# What says how files are read, by the names that the readers have for it.
_READING = (
    "label",
    "categorical",
    "numeric",
    "key_type",
    "layout",
    "nnz_per_slot",
    "num_samples",
    "slot_size_array",
)


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Files of one format.

    Attributes:
        train: Files to train on, with absolute paths.
        evaluation: Files to evaluate on; none if a part of `train` is held out.
        format: Of all files.
        options: Of their reader.
        slots: The slot file given, if any.
    """

    train: list[str]
    evaluation: list[str]
    format: str
    options: dict[str, Any]
    slots: pathlib.Path | None

    def stamp(self) -> dict[str, Any]:
        """What changes when the files do, or how they are read."""
        return {
            "data": [_stamp(path) for path in self.train],
            "eval_data": [_stamp(path) for path in self.evaluation],
            "format": self.format,
            "options": self.options,
            "slots": self.slots and _stamp(self.slots),
        }

    def open(self) -> Source:
        """The files, after a look at what they hold.

        Raises:
            InputError: The model cannot be trained on such slots.
            DataError, ValueError, tf.errors.OpError: As `open_source`.
        """
        files = [*self.train, *self.evaluation]
        source = open_source(
            files, self.slots, format=self.format, **self.options
        )
        _check(source.spec.used, self.slots or files[0])
        return source


def find_inputs(options: Options) -> Inputs:
    """The inputs that the command line names.

    Raises:
        DataError, ValueError, OSError, tf.errors.OpError: A file is missing, or
            shows no format.
    """
    train = _expanded(options.data)
    evaluation = _expanded(options.eval_data or ())
    return Inputs(
        train,
        evaluation,
        options.format or one_format([*train, *evaluation]),
        {
            name: getattr(options, name)
            for name in _READING
            if getattr(options, name) is not None
        },
        options.slots,
    )


def _expanded(paths: Iterable[pathlib.Path]) -> list[str]:
    return [os.path.abspath(p) for p in expand_inputs(map(os.fspath, paths))]


def _stamp(path: str | pathlib.Path) -> list:
    status = os.stat(path)
    return [os.path.abspath(path), status.st_size, status.st_mtime_ns]


def _check(slots, where) -> None:
    labels = [slot.name for slot in slots if slot.kind == "label"]
    if len(labels) != 1:
        raise InputError(
            f"{where}: wanted one label slot of 0 and 1, found {labels}"
        )
    for slot in slots:
        if slot.kind == "sparse" and slot.dtype != "uint64":
            raise InputError(
                f"{where}: sparse slot {slot.name!r} is of float, wanted ids"
            )
        if slot.kind == "dense" and slot.num_values is None:
            raise InputError(
                f"{where}: dense slot {slot.name!r} has the shape "
                f"{list(slot.shape)}, wanted a fixed one"
            )
    if len(slots) == 1:
        raise InputError(f"{where}: no feature slot beside the label")
