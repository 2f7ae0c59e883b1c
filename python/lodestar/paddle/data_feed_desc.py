"""DataFeedDesc: Paddle's description of MultiSlot files."""

import dataclasses
import os
import shlex
from collections.abc import Iterable
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
)

from lodestar._typing import StrPath
from lodestar.data.input_bytes import open_input
from lodestar.data.schema import Column, Schema, label_columns

_PACKAGE = "lodestar.data_feed"
# Field -> type, in the order of Paddle's numbers; "*" where it is repeated.
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
_DEFAULT_BATCH_SIZE = 32
_TYPES = ("uint64", "float")


@dataclasses.dataclass(frozen=True)
class DataFeedDesc:
    """What a DataFeedDesc says, as MultiSlotDataset takes it.

    >>> desc = DataFeedDesc.read("data.prototxt", labels="click")
    >>> MultiSlotDataset(
    ...     files, desc.schema, desc.batch_size, pipe_command=desc.pipe_command)

    Attributes:
        schema: The slots, in their order in a line.
        batch_size: Samples a batch.
        pipe_command: The words of the command that files go through; None if
            there is none, or it is `cat`.
    """

    schema: Schema
    batch_size: int
    pipe_command: list[str] | None

    @classmethod
    def read(
        cls,
        path: StrPath,
        labels: str | Column | Iterable[str | Column] = (),
    ) -> "DataFeedDesc":
        """Reads a file of the text; as `parse`, with the path in errors.

        Raises:
            ValueError: As `parse`.
            tf.errors.OpError: The file cannot be read.
        """
        with open_input(path) as file:
            data = file.read()
        try:
            return cls.parse(data.decode(), labels)
        except ValueError as error:  # UnicodeDecodeError is one
            raise ValueError(f"{os.fspath(path)}: {error}") from error

    @classmethod
    def parse(
        cls, text: str, labels: str | Column | Iterable[str | Column] = ()
    ) -> "DataFeedDesc":
        """Reads the text form of the protobuf message `DataFeedDesc`.

        Its shapes are those of a whole batch: the dim of -1, the number of
        samples, is left out. A slot that is not `is_used`, as by default, is an
        unused one. The message does not say which slots are labels.

        Args:
            text: As Paddle writes it: `multi_slot_desc { slots { name: "C1"
                type: "uint64" is_used: true } ... }`.
            labels: The slots that are labels, by name (0 and 1, of the type in
                the text), or as Slots.

        Raises:
            ValueError: The text is no such message, which names line and
                column; or a slot, a label or a number in it is not valid.
        """
        message = _message_class()()
        try:
            text_format.Parse(text, message)
        except text_format.ParseError as error:
            raise ValueError(
                f"not a DataFeedDesc: {' '.join(str(error).split())}"
            ) from error
        batch_size = (
            message.batch_size
            if message.HasField("batch_size")
            else _DEFAULT_BATCH_SIZE
        )
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, wanted at least 1")
        listed = message.multi_slot_desc.schema
        dtypes = {slot.name: _type(slot) for slot in listed}
        found = {slot.name: slot for slot in label_columns(labels, dtypes)}
        schema = []
        for slot in listed:
            label = found.pop(slot.name, None)
            if label is not None and label.dtype != slot.type:
                raise ValueError(
                    f"slot {slot.name!r}: its type is {slot.type!r}, but the "
                    f"label given is of {label.dtype}"
                )
            schema.append(label or _slot(slot))
        if found:
            raise ValueError(
                f"label {next(iter(found))!r} is not a slot; the slots are "
                + ", ".join(dtypes)
            )
        return cls(Schema(schema), batch_size, _command(message.pipe_command))


def _slot(slot: Any) -> Column:
    if not slot.is_dense:
        return Column.sparse(slot.name, dtype=slot.type, used=slot.is_used)
    shape = list(slot.shape) or [-1, 1]
    if shape.count(-1) > 1:
        raise ValueError(
            f"slot {slot.name!r}: its shape is {shape}, wanted at most one -1"
        )
    return Column.dense(
        slot.name,
        [dim for dim in shape if dim != -1],
        dtype=slot.type,
        used=slot.is_used,
    )


def _type(slot: Any) -> str:
    if slot.type not in _TYPES:
        raise ValueError(
            f"slot {slot.name!r}: its type is {slot.type!r}, wanted one of "
            + ", ".join(_TYPES)
        )
    return slot.type


def _command(text: str) -> list[str] | None:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"pipe_command {text!r}: {error}") from error
    return None if words in ([], ["cat"]) else words


def _message_class() -> Any:
    """The class of DataFeedDesc, with the fields that Paddle gives it."""
    proto = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="lodestar/data_feed.proto", package=_PACKAGE
    )
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for number, (name, kind) in enumerate(fields.items(), 1):
            plain = kind.removesuffix("*")
            field = message.field.add(
                name=name,
                number=number,
                label=proto.LABEL_OPTIONAL
                if plain == kind
                else proto.LABEL_REPEATED,
            )
            if plain in _MESSAGES:
                field.type = proto.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{plain}"
            else:
                field.type = getattr(proto, f"TYPE_{plain.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"{_PACKAGE}.DataFeedDesc")
    )
