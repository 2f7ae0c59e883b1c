"""Converts the sections of a schema file to columns and back."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from lodestar._checks import did_you_mean
from lodestar.schema.column import Column, Kind

_SECTIONS = (
    "label",
    "sample_weight",
    "dense",
    "sparse",
    "wide",
    "weights",
    "one_hot",
    "unused",
    "order",
    "na_values",
    "text",
)
# The options of text files, with the types of their values.
_TEXT_TYPES: dict[str, type] = {
    "columns": list,
    "delimiter": str,
    "quote": str,
    "header": bool,
    "skip_lines": int,
    "encoding": str,
}
TEXT_OPTIONS = tuple(_TEXT_TYPES)
# The names of the (dtype, binary) of a label in a schema file.
_LABELS = {
    "binary": ("uint64", True),
    "binary_float": ("float", True),
    "integer": ("uint64", False),
    "float": ("float", False),
}
# For each kind: the key that a plain value sets, its default in a list of
# names, and the other allowed keys.
_FORMS: dict[Kind, tuple[str, Any, tuple[str, ...]]] = {
    "label": (
        "type",
        "binary",
        ("positive", "negative", "optional", "rounded"),
    ),
    "sample_weight": ("dtype", "float", ("rounded",)),
    "dense": (
        "shape",
        1,
        ("dtype", "fill_value", "separator", "unit", "rounded"),
    ),
    "sparse": (
        "dtype",
        "uint64",
        (
            *("encoding", "hash_as", "strings_only", "fill_value"),
            *("separator", "unit", "depth", "rounded"),
        ),
    ),
    "one_hot": ("size", None, ()),
}
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Column)}


def parse(
    content: Any,
) -> tuple[list[Column], list[str] | None, Mapping[str, Any]]:
    """Returns the columns of a schema file, its `na_values` or None, and `text`."""
    if not isinstance(content, Mapping):
        raise ValueError(
            f"must be a mapping with the keys {', '.join(_SECTIONS)}, got "
            f"{type(content).__name__}"
        )
    _check_keys(content, _SECTIONS, "")
    wide = _names(content, "wide")
    unused = _names(content, "unused")
    weights = _mapping(content, "weights", "id column to weights column")
    weights_of = _inverse(weights)
    entries = {kind: dict(_entries(content, kind)) for kind in _FORMS}
    for section, names in (
        ("wide", wide),
        ("weights", [*weights, *weights_of]),
    ):
        for name in names:
            if name not in entries["sparse"]:
                raise ValueError(
                    f"key '{section}': {name!r} is not under 'sparse'"
                )
    columns: dict[str, Column] = {}
    for kind, found in entries.items():
        for name, value in found.items():
            _check_name(kind, name)
            if name in columns:
                raise ValueError(
                    f"key '{kind}': column {name!r} is declared twice"
                )
            try:
                columns[name] = Column(
                    name,
                    kind,
                    wide=name in wide,
                    used=name not in unused,
                    weights_of=weights_of.get(name),
                    **_attributes(kind, name, value),
                )
            except ValueError as error:
                raise ValueError(f"key '{kind}': {error}") from error
    for name in unused:
        if name not in columns:
            raise ValueError(f"key 'unused': {name!r} is not a declared column")
    if not columns:
        raise ValueError("declares no columns")
    text = _mapping(content, "text", "option to value")
    return _ordered(content, columns), _na_values(content), text


def checked_text(text: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options of text files; raises ValueError if one is not valid."""
    found = {}
    for name, value in text.items():
        if name not in _TEXT_TYPES:
            raise ValueError(
                f"`text`: unknown option {name!r}; the options are "
                f"{', '.join(_TEXT_TYPES)}.{did_you_mean(name, _TEXT_TYPES)}"
            )
        if isinstance(value, tuple):
            value = list(value)
        items = value if isinstance(value, list) else []
        wanted = _TEXT_TYPES[name]
        if type(value) is not wanted or not all(
            isinstance(item, str) for item in items
        ):
            raise ValueError(
                f"`text`: `{name}` must be "
                f"{'a list of strings' if wanted is list else wanted.__name__}, "
                f"got {value!r}."
            )
        found[name] = value
    return found


def sections(columns: Sequence[Column]) -> dict[str, Any]:
    """Returns the schema file content that `parse` reads as `columns`."""
    content: dict[str, Any] = {}
    for kind, (_, default, _) in _FORMS.items():
        values = {c.name: _value(c) for c in columns if c.kind == kind}
        if (
            values
            and kind not in ("dense", "one_hot")
            and all(value == default for value in values.values())
        ):
            content[kind] = list(values)
        elif values:
            content[kind] = values
        if kind != "sparse":
            continue
        wide = [c.name for c in columns if c.wide]
        weights = {c.weights_of: c.name for c in columns if c.weights_of}
        if wide:
            content["wide"] = wide
        if weights:
            content["weights"] = weights
    unused = [c.name for c in columns if not c.used]
    if unused:
        content["unused"] = unused
    if parse(content)[0] != list(columns):
        content["order"] = [c.name for c in columns]
    return content


def _attributes(kind: Kind, name: str, value: Any) -> dict[str, Any]:
    """Returns the column attributes in an entry of a section."""
    key, default, others = _FORMS[kind]
    attributes = {key: value}
    if isinstance(value, Mapping):
        _check_keys(value, (key, *others), f"key '{kind}': {name!r} has the ")
        attributes = dict(value)
        if default is None or kind == "dense":
            if key not in value:
                raise ValueError(f"{name!r} has no '{key}'")
        attributes.setdefault(key, default)
    found = attributes[key]
    if kind == "label":
        if not isinstance(found, str) or found not in _LABELS:
            raise ValueError(
                f"{name!r} must be one of {', '.join(_LABELS)}, got {found!r}"
            )
        for key in ("positive", "negative"):
            texts = attributes.get(key)
            if any(isinstance(x, bool) for x in (texts, *_list(texts))):
                raise ValueError(
                    f"`{key}` of {name!r} must be strings, got {texts!r}; put "
                    "words such as yes and no in quotes"
                )
        del attributes["type"]
        attributes["dtype"], attributes["binary"] = _LABELS[found]
    elif kind == "dense":
        if isinstance(found, int) and not isinstance(found, bool):
            attributes["shape"] = found = [found]
        if not isinstance(found, list):
            raise ValueError(
                f"the shape of {name!r} must be a list of positive integers, "
                f"at most one of them -1, got {found!r}"
            )
        attributes.setdefault("dtype", "float")
    return attributes


def _value(column: Column) -> Any:
    """Returns the entry of a column in its section: a value or a mapping."""
    key, _, others = _FORMS[column.kind]
    if column.kind == "label":
        words = {meaning: word for word, meaning in _LABELS.items()}
        value: Any = words[column.dtype, column.binary]
    else:
        value = getattr(column, key)
    if column.kind == "dense":
        value = list(value)
    mapping = {
        other: _plain(getattr(column, other))
        for other in others
        if getattr(column, other)
        != ("float" if other == "dtype" else _DEFAULTS[other])
    }
    return {key: value, **mapping} if mapping else value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _plain(value: Any) -> Any:
    """Returns a tuple of strings as YAML shows it: a string or a list."""
    if not isinstance(value, tuple):
        return value
    return value[0] if len(value) == 1 else list(value)


def _ordered(
    content: Mapping[str, Any], columns: dict[str, Column]
) -> list[Column]:
    if "order" not in content:
        return list(columns.values())
    order = _names(content, "order")
    for name in order:
        if name not in columns:
            raise ValueError(f"key 'order': {name!r} is not a declared column")
    for name in columns:
        if name not in order:
            raise ValueError(f"key 'order': column {name!r} is missing")
    return [columns[name] for name in order]


def _na_values(content: Mapping[str, Any]) -> list[str] | None:
    found = content.get("na_values")
    if found is None:
        return None
    if not isinstance(found, list) or not all(
        isinstance(text, str) for text in found
    ):
        raise ValueError(
            f"key 'na_values': must be a list of strings, got {found!r}"
        )
    return found


def _check_keys(
    content: Mapping[str, Any], allowed: Collection[str], where: str
) -> None:
    for key in content:
        if key not in allowed:
            raise ValueError(
                f"{where}unknown key {key!r}; the keys are "
                f"{', '.join(allowed)}.{did_you_mean(key, allowed)}"
            )


def _check_name(section: str, name: Any) -> None:
    if not isinstance(name, str):
        raise ValueError(
            f"key '{section}': the name of a column must be a string, got "
            f"{name!r}; put it in quotes"
        )


def _mapping(content: Any, section: str, wanted: str) -> Mapping[str, Any]:
    found = content.get(section, {})
    if not isinstance(found, Mapping):
        raise ValueError(
            f"key '{section}': must be a mapping from {wanted}, got {found!r}"
        )
    return found


def _inverse(weights: Mapping[str, Any]) -> dict[str, str]:
    """Maps weights columns to id columns."""
    inverse: dict[str, str] = {}
    for name, weights_name in weights.items():
        _check_name("weights", name)
        _check_name("weights", weights_name)
        if weights_name in inverse:
            raise ValueError(
                f"key 'weights': {weights_name!r} holds the weights of both "
                f"{inverse[weights_name]!r} and {name!r}"
            )
        inverse[weights_name] = name
    return inverse


def _entries(
    content: Mapping[str, Any], section: Kind
) -> Iterable[tuple[Any, Any]]:
    """Returns the (name, value) pairs of a list of names or a mapping."""
    found = content.get(section, [])
    default = _FORMS[section][1]
    if default is None:
        found = _mapping(content, section, "name to size")
    if isinstance(found, Mapping):
        return list(found.items())
    return [(name, default) for name in _names(content, section)]


def _names(content: Mapping[str, Any], section: str) -> dict[str, None]:
    """Returns the names of a list, in order, as a set with fast lookup."""
    found = content.get(section, [])
    if not isinstance(found, list):
        raise ValueError(
            f"key '{section}': must be a list of column names, got {found!r}"
        )
    names: dict[str, None] = {}
    for name in found:
        _check_name(section, name)
        if name in names:
            raise ValueError(f"key '{section}': {name!r} occurs twice")
        names[name] = None
    return names
