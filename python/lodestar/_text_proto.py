"""The text format of protobuf messages that no installed package defines."""

from collections.abc import Mapping
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    struct_pb2,
    text_format,
)

ANY = "google.protobuf.Any"


def message_class(
    package: str, types: Mapping[str, dict[str, str] | list[str]]
) -> Any:
    """Returns the class of a message.

    Fields are numbered in order; the text format does not contain the numbers.

    Args:
        package: Name of the package.
        types: The messages, each a mapping from field to type, and the enums,
            each a list of names; the last one is the message. A type is a
            scalar type of protobuf, one of these, or `ANY`, with a suffix
            `"*"` if the field is repeated.
    """
    proto = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto",
        package=package,
        dependency=[any_pb2.DESCRIPTOR.name],
    )
    for name, fields in types.items():
        if isinstance(fields, list):
            enum = file.enum_type.add(name=name)
            for number, value in enumerate(fields):
                enum.value.add(name=value, number=number)
            continue
        message = file.message_type.add(name=name)
        for number, (field_name, kind) in enumerate(fields.items(), 1):
            plain = kind.removesuffix("*")
            field = message.field.add(
                name=field_name,
                number=number,
                label=proto.LABEL_OPTIONAL
                if plain == kind
                else proto.LABEL_REPEATED,
            )
            if plain == ANY:
                field.type, field.type_name = proto.TYPE_MESSAGE, f".{ANY}"
            elif plain in types:
                is_enum = isinstance(types[plain], list)
                field.type = proto.TYPE_ENUM if is_enum else proto.TYPE_MESSAGE
                field.type_name = f".{package}.{plain}"
            else:
                field.type = getattr(proto, f"TYPE_{plain.upper()}")
    pool = descriptor_pool.DescriptorPool()
    for known in any_pb2, struct_pb2:  # types in an `Any`
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"{package}.{name}")
    )


def parse(text: str, message: Any, *, allow_unknown: bool = False) -> Any:
    """Parses the text format into an empty message; ValueError names the line."""
    try:
        return text_format.Parse(
            text,
            message,
            allow_unknown_field=allow_unknown,
            allow_unknown_extension=allow_unknown,
            descriptor_pool=message.DESCRIPTOR.file.pool,
        )
    except text_format.ParseError as error:
        raise ValueError(
            f"not a {message.DESCRIPTOR.name}: {' '.join(str(error).split())}"
        ) from error


def text_of(message: Any) -> str:
    """Returns the text format of a message."""
    text: str = text_format.MessageToString(message, as_utf8=True)
    return text
