"""Schema files of NVIDIA Merlin and NVTabular: `schema.pbtxt`.

The format is the text form of TensorFlow Metadata's `Schema` message, with tags
for the role of each feature.
"""

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

from google.protobuf import struct_pb2
from google.protobuf.message import DecodeError

from lodestar import _text_proto as text_proto
from lodestar.schema.column import Column, Dtype

SUFFIX = ".pbtxt"

_LABEL_TAGS = {
    "target",
    "classification",
    "binary_classification",
    "multi_class_classification",
    "regression",
}
_OTHER_TARGETS = {"regression", "multi_class", "multi_class_classification"}
_BINARY_TAGS = {"binary_classification", "binary"}
_ID_TAGS = {
    "categorical",
    "id",
    "user_id",
    "item_id",
    "session_id",
    "text",
    "text_tokenized",
    "tokenized",
}
_NUMBER_TAGS = {"continuous", "embedding", "time"}
# Our own tag. Merlin keeps unknown tags.
_WIDE = "wide"
_STRUCT_URL = "type.googleapis.com/google.protobuf.Struct"
_TYPES: dict[str, dict[str, str] | list[str]] = {
    "FeatureType": ["TYPE_UNKNOWN", "BYTES", "INT", "FLOAT", "STRUCT"],
    "Dim": {"size": "int64"},
    "FixedShape": {"dim": "Dim*"},
    "ValueCount": {"min": "int64", "max": "int64"},
    "IntDomain": {
        "name": "string",
        "min": "int64",
        "max": "int64",
        "is_categorical": "bool",
    },
    "Raw": {"type_url": "string", "value": "bytes"},
    "Annotation": {"tag": "string*", "extra_metadata": "Raw*"},
    "Feature": {
        "name": "string",
        "value_count": "ValueCount",
        "shape": "FixedShape",
        "type": "FeatureType",
        "int_domain": "IntDomain",
        "annotation": "Annotation",
    },
    "Path": {"step": "string*"},
    "WeightedFeature": {
        "name": "string",
        "feature": "Path",
        "weight_feature": "Path",
    },
    "Schema": {
        "feature": "Feature*",
        "weighted_feature": "WeightedFeature*",
    },
}
_BYTES, _INT, _FLOAT, _STRUCT = 1, 2, 3, 4


def parse(text: str) -> list[Column]:
    """Parses the columns of a schema file; raises ValueError if it is invalid.

    The file does not describe missing values or string labels, so they have the
    defaults.
    """
    message = text_proto.parse(
        text, _message_class(reads=True)(), allow_unknown=True
    )
    weights_of = {
        ".".join(weighted.weight_feature.step): ".".join(weighted.feature.step)
        for weighted in message.weighted_feature
    }
    columns = []
    for feature in message.feature:
        try:
            columns.append(_column(feature, weights_of.get(feature.name)))
        except ValueError as error:
            raise ValueError(f"feature {feature.name!r}: {error}") from error
    return columns


def text_of(columns: Iterable[Column]) -> str:
    """Returns the schema file text that `parse` reads as `columns`."""
    message = _message_class()()
    for column in columns:
        part = _message_class()()
        _add(part, column)
        (found,) = parse(text_proto.text_of(part))
        for field in dataclasses.fields(Column):
            value = getattr(column, field.name)
            if field.compare and getattr(found, field.name) != value:
                raise ValueError(
                    f"Column {column.name!r}: a {SUFFIX} file cannot express "
                    f"`{field.name}`={value!r}."
                )
        message.MergeFrom(part)
    return text_proto.text_of(message)


@functools.cache
def _message_class(*, reads: bool = False) -> Any:
    """Returns the message class; `reads` supports `extra_metadata` in either form.

    Write its bytes form, because only parsers with Struct can read the other.
    """
    types = dict(_TYPES)
    if reads:
        types["Annotation"] = {
            "tag": "string*",
            "extra_metadata": f"{text_proto.ANY}*",
        }
    return text_proto.message_class("lodestar.merlin", types)


def _column(feature: Any, weights_of: str | None) -> Column:
    name, tags = feature.name, {tag.lower() for tag in feature.annotation.tag}
    if feature.type == _STRUCT:
        raise ValueError("features of the type STRUCT cannot be read.")
    is_list, shape = _form(feature, tags)
    dtype: Dtype = "uint64" if feature.type == _INT else "float"
    if tags & _LABEL_TAGS:
        if is_list or feature.type == _BYTES:
            raise ValueError(
                "a label must be one number, got "
                + ("a list." if is_list else "the type BYTES.")
            )
        return Column.label(name, dtype=dtype, binary=_is_binary(feature, tags))
    is_typed = feature.type in (_INT, _FLOAT)
    is_number = bool(tags & _NUMBER_TAGS) or feature.type == _FLOAT
    if (
        tags & _ID_TAGS
        or feature.int_domain.is_categorical
        or not (is_number or is_typed)
    ):
        return Column.sparse(
            name,
            encoding="int" if is_typed else "hash",
            strings_only=not is_typed,
            wide=_WIDE in tags,
        )
    if not is_number:
        raise ValueError(
            "the type INT does not say whether these are ids or numbers; add "
            "the tag 'categorical' or 'continuous'."
        )
    if weights_of is not None or (is_list and not shape):
        return Column.sparse(name, dtype=dtype, weights_of=weights_of)
    return Column.dense(name, shape or [1], dtype=dtype)


def _form(feature: Any, tags: set[str]) -> tuple[bool, list[int]]:
    """Returns whether a feature is a list, and its shape if it is fixed."""
    count = feature.value_count
    if feature.HasField("shape"):
        shape = [dim.size for dim in feature.shape.dim]
        return bool(shape), shape if all(size > 0 for size in shape) else []
    if count.min == count.max > 0:
        return count.max > 1, [count.max]
    is_list = feature.HasField("value_count") or "list" in tags
    for metadata in feature.annotation.extra_metadata:
        if metadata.type_url == _STRUCT_URL:
            try:
                properties = struct_pb2.Struct.FromString(metadata.value)
            except DecodeError as error:
                raise ValueError(
                    "`extra_metadata` must be a Struct."
                ) from error
            if "is_list" in properties:
                is_list |= bool(properties["is_list"])
    return is_list, []


def _is_binary(feature: Any, tags: set[str]) -> bool:
    if tags & _BINARY_TAGS:
        return True
    if tags & _OTHER_TARGETS or feature.type == _FLOAT:
        return False
    return feature.int_domain.max <= 1


def _add(message: Any, column: Column) -> None:
    feature = message.feature.add(
        name=column.name, type=_FLOAT if column.dtype == "float" else _INT
    )
    tags = feature.annotation.tag
    is_list = is_ragged = column.kind == "sparse"
    if column.kind == "label":
        tags.append("target")
        other = "regression" if column.dtype == "float" else "multi_class"
        tags.append("binary_classification" if column.binary else other)
    elif column.kind == "dense" or column.dtype == "float":
        tags.append("continuous")
    else:
        tags.append("categorical")
        if column.encoding == "hash":
            feature.type = _BYTES
    if column.wide:
        tags.append(_WIDE)
    if column.weights_of is not None:
        weighted = message.weighted_feature.add(
            name=f"{column.weights_of} weighted"
        )
        weighted.feature.step.append(column.weights_of)
        weighted.weight_feature.step.append(column.name)
    if is_ragged:
        feature.value_count.SetInParent()
    elif len(column.shape) > 1:
        is_list = True
        for size in column.shape:
            feature.shape.dim.add(size=size)
    elif column.shape and column.shape != (1,):
        is_list = True
        feature.value_count.min = feature.value_count.max = column.shape[0]
    properties = struct_pb2.Struct()
    properties["is_list"] = is_list
    properties["is_ragged"] = is_ragged
    if feature.type != _BYTES:
        properties["dtype_item_size"] = 32 if feature.type == _FLOAT else 64
    feature.annotation.extra_metadata.add(
        type_url=_STRUCT_URL,
        value=properties.SerializeToString(deterministic=True),
    )
