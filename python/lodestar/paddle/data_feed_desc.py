"""Paddle's description of MultiSlot files."""

import dataclasses
import os
import shlex
from collections.abc import Iterable
from typing import Any

from lodestar import _text_proto as text_proto
from lodestar._checks import did_you_mean
from lodestar._files import AtomicFile
from lodestar._input_bytes import open_input
from lodestar._typing import StrPath
from lodestar.data.record_dataset import ReadOptions
from lodestar.schema import Column, Schema, label_columns
from lodestar.schema.column import DTYPES, Dtype

_PACKAGE = "lodestar.data_feed"
# Fields in the order of Paddle's field numbers; see `text_proto.message_class`.
_MESSAGES = {
    "Slot": {
        "name": "string",
        "type": "string",
        "is_dense": "bool",
        "is_used": "bool",
        "shape": "int32*",
    },
    "MultiSlotDesc": {"slots": "Slot*", "uid_slot": "string"},
    "DataFeedDesc": {
        "name": "string",
        "batch_size": "int32",
        "multi_slot_desc": "MultiSlotDesc",
        "pipe_command": "string",
        "thread_num": "int32",
        "rank_offset": "string",
        "pv_batch_size": "int32",
        "input_type": "int32",
        "so_parser_name": "string",
    },
}
DEFAULT_BATCH_SIZE = 32
# Fields of Paddle's readers that have no counterpart here.
_UNSUPPORTED = ("rank_offset", "input_type", "so_parser_name")


@dataclasses.dataclass(frozen=True)
class DataFeedDesc:
    """Paddle's description of MultiSlot files, as a Schema.

    >>> desc = DataFeedDesc.read("data.prototxt", labels="click")
    >>> dataset = lodestar.data.open_dataset(
    ...     files,
    ...     desc.schema,
    ...     desc.batch_size,
    ...     pipe_command=desc.pipe_command,
    ...     num_parallel_files=desc.num_parallel_files,
    ... )

    Attributes:
        schema: The columns, in their order in a line.
        batch_size: Samples per batch.
        pipe_command: Command, as words, that each file is piped through; None if
            there is none or it is `cat`.
        num_parallel_files: Number of threads that read, Paddle's `thread_num`.
    """

    schema: Schema
    batch_size: int = DEFAULT_BATCH_SIZE
    pipe_command: list[str] | None = None
    num_parallel_files: int = ReadOptions.num_parallel_files

    @classmethod
    def read(
        cls,
        path: StrPath,
        labels: str | Column | Iterable[str | Column] = (),
        declare: Iterable[Column] = (),
    ) -> "DataFeedDesc":
        """Reads and parses a file; see `parse`.

        Raises:
            ValueError: As in `parse`, with the path.
            FileNotFoundError: If the file does not exist.
            tf.errors.OpError: If the file cannot be read.
        """
        with open_input(path) as file:
            data = file.read()
        try:
            return cls.parse(data.decode(), labels, declare)
        except ValueError as error:  # Includes UnicodeDecodeError.
            raise ValueError(f"{os.fspath(path)}: {error}") from error

    @classmethod
    def parse(
        cls,
        text: str,
        labels: str | Column | Iterable[str | Column] = (),
        declare: Iterable[Column] = (),
    ) -> "DataFeedDesc":
        """Parses the text form of the protobuf message `DataFeedDesc`.

        Shapes in the message are of a whole batch; their -1, the batch size, is
        removed. A slot without `is_used: true` becomes an unused column. The
        message does not tell which slots are labels, nor which dense slots of one id
        are one-hot.

        Args:
            text: Text as written by Paddle: `multi_slot_desc { slots { name: "C1"
                type: "uint64" is_used: true } ... }`.
            labels: The labels, as Columns or as names of binary labels, which get
                the type in the text.
            declare: Columns that the text does not fully describe, such as
                `Column.one_hot("day", 7)` for a dense `uint64` slot with the shape
                `[-1, 1]`, or `weights_of` for a slot of floats.

        Raises:
            ValueError: If the text is not such a message (the error names line
                and column); a slot, label or number is invalid; a declared column
                contradicts its slot; or a field is set that is not supported.
        """
        message = text_proto.parse(text, _message_class()())
        _check_supported(message)
        batch_size = _at_least_1(message, "batch_size", cls.batch_size)
        threads = _at_least_1(message, "thread_num", cls.num_parallel_files)
        slots = message.multi_slot_desc.slots
        dtypes = {slot.name: _type(slot) for slot in slots}
        found = {label.name: label for label in label_columns(labels, dtypes)}
        declared = {column.name: column for column in declare}
        columns = []
        for slot in slots:
            label = found.pop(slot.name, None)
            if label is not None and label.dtype != slot.type:
                raise ValueError(
                    f"Column {slot.name!r} has the type {slot.type!r}, but the "
                    f"label in `labels` has the dtype {label.dtype!r}."
                )
            own = declared.pop(slot.name, None)
            if own is not None:
                _check_fits(slot, own)
            columns.append(own or label or _column(slot))
        for name, left in (("labels", found), ("declare", declared)):
            if left:
                raise ValueError(
                    f"`{name}` has {next(iter(left))!r}, which is not a column; "
                    f"the columns are {', '.join(dtypes)}."
                    f"{did_you_mean(next(iter(left)), dtypes)}"
                )
        command = _command(message.pipe_command)
        return cls(Schema(columns), batch_size, command, threads)

    def save(self, path: StrPath) -> None:
        """Writes the text form to a file, for Paddle; see `text`."""
        text = self.text()
        with AtomicFile(path) as file:
            file.write(text.encode())

    def text(self) -> str:
        """Returns the text form of the protobuf message.

        A label or a one-hot column becomes a dense slot of one value. The size of a
        one-hot column, `binary`, `weights_of` and `wide` are lost, since Paddle reads
        lines without them; `declare` of `parse` adds them.

        Raises:
            ValueError: If the message cannot express a column: `encoding`, `depth`,
                `positive`, `separator`, `unit`, a sample weight, or a free
                dimension.
        """
        message = _message_class()(
            name="MultiSlotDataFeed",
            batch_size=self.batch_size,
            pipe_command=shlex.join(self.pipe_command or ["cat"]),
            thread_num=self.num_parallel_files,
        )
        for column in self.schema:
            _add_slot(message, column)
        return text_proto.text_of(message)


def _check_supported(message: Any) -> None:
    fields = [(message, name) for name in _UNSUPPORTED]
    fields.append((message.multi_slot_desc, "uid_slot"))
    for part, name in fields:
        if value := getattr(part, name):
            raise ValueError(
                f"`{name}`: {value!r} is not supported. Remove the field if the "
                "files are read without it."
            )


def _at_least_1(message: Any, name: str, default: int) -> int:
    value: int = getattr(message, name)
    if not message.HasField(name):
        return default
    if value < 1:
        raise ValueError(f"`{name}` must be at least 1, got {value}.")
    return value


def _add_slot(message: Any, column: Column) -> Any:
    """Adds the slot of a column to a DataFeedDesc, and returns it."""
    check_expressible(column)
    dense = column.kind != "sparse"
    return message.multi_slot_desc.slots.add(
        name=column.name,
        type=column.dtype,
        is_dense=dense,
        is_used=column.used,
        shape=[-1, *(column.shape or (1,))] if dense else [],
    )


def _check_fits(slot: Any, declared: Column) -> None:
    """Raises ValueError unless Paddle reads a declared column as the slot."""
    own = _column(_add_slot(_message_class()(), declared))
    wanted = _column(slot)
    if own != wanted:
        raise ValueError(
            f"Column {slot.name!r} has the type {slot.type!r} and is "
            f"{wanted.describe()} in the text, but `declare` has the dtype "
            f"{declared.dtype!r} and {declared.describe()}."
        )


def _column(slot: Any) -> Column:
    if not slot.is_dense:
        return Column.sparse(slot.name, dtype=slot.type, used=slot.is_used)
    shape = list(slot.shape) or [-1, 1]
    if shape.count(-1) > 1:
        raise ValueError(
            f"Column {slot.name!r}: `shape` must have at most one -1, the batch "
            f"size, got {shape}: a file has the number of values of a sample, "
            "but not its other sizes."
        )
    return Column.dense(
        slot.name,
        [dim for dim in shape if dim != -1],
        dtype=slot.type,
        used=slot.is_used,
    )


def check_expressible(column: Column) -> None:
    """Raises ValueError unless a DataFeedDesc can express `column`."""
    problem = None
    if column.kind == "sample_weight":
        problem = "a sample-weight column"
    elif -1 in column.shape:
        problem = f"the shape {list(column.shape)}"
    for field in (
        *("encoding", "depth", "positive", "optional", "separator"),
        *("unit", "rounded"),
    ):
        value = getattr(column, field)
        if value != getattr(Column, field):
            problem = f"`{field}`={value!r}"
    if problem:
        raise ValueError(
            f"Column {column.name!r}: a DataFeedDesc cannot express {problem}."
        )


def _type(slot: Any) -> Dtype:
    if slot.type not in DTYPES:
        raise ValueError(
            f"Column {slot.name!r}: the type must be one of {DTYPES}, got "
            f"{slot.type!r}."
        )
    dtype: Dtype = slot.type
    return dtype


def _command(text: str) -> list[str] | None:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"`pipe_command` {text!r}: {error}") from error
    return None if words in ([], ["cat"]) else words


def _message_class() -> Any:
    """Returns the class of DataFeedDesc, with Paddle's fields."""
    return text_proto.message_class(_PACKAGE, _MESSAGES)
