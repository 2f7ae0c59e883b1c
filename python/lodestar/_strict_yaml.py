"""YAML of slot files: a subset of the language, parsed strictly."""

import re
from typing import Any

import yaml

_DECIMAL = re.compile("[-+]?(0|[1-9][0-9]{0,18})", re.ASCII)


def load(text: str) -> Any:
    """Parses a schema file; ValueError for aliases, duplicate keys and odd numbers."""
    return yaml.load(text, _SlotLoader)


class _SlotLoader(yaml.SafeLoader):
    """Refuses ambiguous or excessive YAML.

    Plain YAML keeps the last of two equal keys, reads `010` as 8 and `1:30` as 90, and
    expands a few lines of aliases to any amount of data.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise ValueError(
                f"alias '*{event.anchor}' on line {event.start_mark.line + 1}; "
                "a schema file must not use aliases"
            )
        return super().compose_node(parent, index)

    def construct_integer(self, node: Any) -> int:
        text = self.construct_scalar(node)
        if not _DECIMAL.fullmatch(text):
            raise ValueError(
                f"{text[:40]!r} on line {node.start_mark.line + 1} is not a "
                "decimal integer; put names in quotes"
            )
        return int(text)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue  # refused by the base class
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise ValueError(
                    f"key {key!r} occurs twice, again on line "
                    f"{key_node.start_mark.line + 1}"
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


_SlotLoader.add_constructor(
    "tag:yaml.org,2002:int", _SlotLoader.construct_integer
)
