"""CSV to MultiSlot text: numeric columns become float slots, others id slots."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection

import numpy as np
import tensorflow as tf

from lodestar.data.csv_reader import CsvReader
from lodestar.data.errors import DataError, describe_error
from lodestar.data.hashing import hash_ids
from lodestar.data.multislot_writer import MultiSlotWriter
from lodestar.data.slot_spec import Slot, SlotSpec

_CHUNK_ROWS = 4096
# Distinct label texts kept to show and to compare.
_MAX_LABEL_TEXTS = 1000
_FLOAT_MAX = float(np.finfo(np.float32).max)


def parse_label(text: str) -> tuple[str, str | None]:
    """Splits `COLUMN[=POSITIVE]` at the first `=`.

    >>> parse_label("Salary=>50K")
    ('Salary', '>50K')
    """
    column, found, positive = text.partition("=")
    if not column or (found and not positive):
        raise DataError(
            f"the label must be COLUMN or COLUMN=POSITIVE, found {text!r}"
        )
    return column, positive if found else None


def slots_path(target: str | os.PathLike) -> str:
    """The slot file that `convert_csv` writes beside its output."""
    return os.fspath(target) + ".slots.yaml"


def convert_csv(
    source: str | os.PathLike,
    target: str | os.PathLike,
    *,
    label: str,
    delimiter: str | None = None,
    categorical: Collection[str] = (),
    numeric: Collection[str] = (),
    missing: Collection[str] = ("", "?"),
    on_start: Callable[[str, int], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> SlotSpec:
    """Writes a CSV file with a header as MultiSlot text.

    Reads the file twice: once to see which columns are numeric (every value
    that is there is a number), once to write. A numeric column becomes a dense
    float slot of its name, 0 where missing; any other column a sparse id slot,
    empty where missing, else one id, `hash_ids(column, value)`; a column without
    any value is an id slot. Memory does not grow with the file.

    Beside `target` the slot file `target + ".slots.yaml"` is written. Both
    appear only when all is done.

    Args:
        source: The CSV file, UTF-8, fields separated by `delimiter`.
        target: The MultiSlot file to write; `.gz` compresses it.
        label: `COLUMN`, whose values are 0 and 1, or `COLUMN=POSITIVE`: 1 where
            the column's value is POSITIVE (or POSITIVE and a full stop, as in
            some copies of the census data), 0 at any other value.
        delimiter: None finds it in the header.
        categorical: Columns that are id slots even if all values are numbers.
        numeric: Columns that must be numbers; another value is an error.
        missing: Texts that stand for a missing value.
        on_start: Called before each pass with what it does and the file's bytes.
        on_progress: Called with the number of bytes of each piece read.

    Returns:
        The slots: the label first, then the columns in the file's order.

    Raises:
        DataError: The input is missing, empty, binary or cut short, a column is
            unknown, a value is not valid, or the output cannot be written. One
            line that names the file, and the line and column where there is
            one. Nothing is left behind.

    Warns:
        UserWarning: The last line has no newline, so the file may be cut short.
    """
    reader = CsvReader(source, delimiter=delimiter, on_progress=on_progress)
    label_column, positive = label, None
    if label not in reader.columns:  # where a name may hold "=" itself
        label_column, positive = parse_label(label)
    reader.column_index(label_column)
    for name in (*categorical, *numeric):
        reader.column_index(name)
        if name == label_column:
            raise DataError(f"column '{name}' is the label")
    for name in categorical:
        if name in numeric:
            raise DataError(f"column '{name}' is both categorical and numeric")
    target = os.fspath(target)
    if os.path.realpath(target) == os.path.realpath(reader.path):
        raise DataError(f"{target}: is both input and output")
    if tf.io.gfile.isdir(target):
        raise DataError(f"{target}: cannot be written: it is a folder")
    size = tf.io.gfile.stat(reader.path).length

    if on_start is not None:
        on_start("reading columns", size)
    kinds = _find_numeric(
        reader, label_column, positive, set(categorical), set(numeric), missing
    )
    spec = SlotSpec(
        [Slot.label(label_column)]
        + [
            Slot.dense(name) if is_numeric else Slot.sparse(name)
            for name, is_numeric in kinds.items()
        ]
    )
    if on_start is not None:
        on_start("writing", size)
    try:
        with MultiSlotWriter(target, spec) as writer:
            _write(reader, spec, positive, frozenset(missing), writer)
            # Inside, so that an unwritable slot file leaves no text either.
            spec.to_yaml(slots_path(target))
    except (OSError, tf.errors.OpError) as error:
        text = describe_error(error)
        if text.startswith(target):  # with the suffix of a temporary file
            text = text.partition(": ")[2]
        raise DataError(f"{target}: cannot be written: {text}") from error
    return spec


def _number(text: str) -> float | None:
    """The number that `text` is, NaN included; None if it is none."""
    try:
        # float() also takes "1_000", which is no number in a file.
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _label_value(
    reader: CsvReader, line: int, column: str, text: str, positive: str | None
) -> int:
    if positive is not None:
        if text:
            return int(text in (positive, positive + "."))
    else:
        value = _number(text)
        if value in (0.0, 1.0):
            return int(value)
    wanted = "0 or 1" if positive is None else "a value"
    raise DataError(
        f"{reader.path}:{line}: column '{column}': the label is {text!r}, "
        f"wanted {wanted}"
    )


def _find_numeric(
    reader: CsvReader,
    label_column: str,
    positive: str | None,
    categorical: set[str],
    numeric: set[str],
    missing: Collection[str],
) -> dict[str, bool]:
    """Whether each column but the label is numeric, after checking all labels."""
    missing = frozenset(missing)
    label_at = reader.column_index(label_column)
    # Columns that may still be numeric, and whether a value was seen.
    candidates = {
        i: False
        for i, name in enumerate(reader.columns)
        if i != label_at and name not in categorical
    }
    forced = {i for i in candidates if reader.columns[i] in numeric}
    num_positive = 0
    label_texts: set[str] = set()
    last_is_new = False
    for line, fields in reader.rows():
        label = _label_value(
            reader, line, label_column, fields[label_at], positive
        )
        num_positive += label
        last_is_new = fields[label_at] not in label_texts
        if last_is_new and len(label_texts) < _MAX_LABEL_TEXTS:
            label_texts.add(fields[label_at])
        for i in list(candidates):
            if fields[i] in missing:
                continue
            if _number(fields[i]) is not None:
                candidates[i] = True
            elif i in forced:
                raise DataError(
                    f"{reader.path}:{line}: column '{reader.columns[i]}': "
                    f"{fields[i]!r} is not a number"
                )
            else:
                del candidates[i]
    if positive is not None and num_positive == 0:
        some = ", ".join(map(repr, sorted(label_texts)[:5]))
        raise DataError(
            f"{reader.path}: column '{label_column}': no label is "
            f"{positive!r}; found {some}"
        )
    if reader.ends_without_newline:
        # Valid CSV, but also what a file cut within its last field looks like.
        text = (
            f"{reader.path}:{line}: the last line has no newline at its end, so "
            "the file may be cut short"
        )
        if positive is not None and last_is_new and len(label_texts) > 2:
            raise DataError(f"{text}: its label occurs in no other line")
        warnings.warn(text, stacklevel=3)
    return {
        name: candidates.get(i, False) or i in forced
        for i, name in enumerate(reader.columns)
        if i != label_at
    }


def _write(
    reader: CsvReader,
    spec: SlotSpec,
    positive: str | None,
    missing: frozenset[str],
    writer: MultiSlotWriter,
) -> None:
    chunk: list[tuple[int, list[str]]] = []
    for row in reader.rows():
        chunk.append(row)
        if len(chunk) == _CHUNK_ROWS:
            writer.write_batch(_columns(reader, spec, positive, missing, chunk))
            chunk = []
    if chunk:
        writer.write_batch(_columns(reader, spec, positive, missing, chunk))


def _columns(
    reader: CsvReader,
    spec: SlotSpec,
    positive: str | None,
    missing: frozenset[str],
    chunk: list[tuple[int, list[str]]],
) -> dict:
    columns = {}
    for slot in spec:
        at = reader.column_index(slot.name)
        texts = [fields[at] for _, fields in chunk]
        if slot.kind == "label":
            columns[slot.name] = np.array(
                [
                    _label_value(reader, line, slot.name, text, positive)
                    for (line, _), text in zip(chunk, texts, strict=True)
                ],
                np.int64,
            )
        elif slot.kind == "dense":
            columns[slot.name] = np.array(
                [
                    0.0
                    if text in missing
                    else _finite(reader, line, slot.name, text)
                    for (line, _), text in zip(chunk, texts, strict=True)
                ],
                np.float64,
            )
        else:
            present = [text not in missing for text in texts]
            ids = hash_ids(
                slot.name, [t for t, p in zip(texts, present, strict=True) if p]
            )
            columns[slot.name] = (
                ids,
                np.concatenate([[0], np.cumsum(present)]),
            )
    return columns


def _finite(reader: CsvReader, line: int, column: str, text: str) -> float:
    value = _number(text)
    if value is None or not abs(value) <= _FLOAT_MAX:
        raise DataError(
            f"{reader.path}:{line}: column '{column}': {text!r} is not a "
            "finite float32"
        )
    return value
