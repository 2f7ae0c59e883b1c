"""Values of JSON in strings."""

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Parses JSON.

    Raises ValueError for text that is not JSON, also where Python's parser is
    lenient: NaN, Infinity, and an object with a key that occurs twice.
    """
    return json.loads(
        text, parse_constant=_refuse_constant, object_pairs_hook=_object
    )


def json_texts(value: Any, depth: int, *, strings_only: bool = False) -> Any:
    """Returns JSON lists of `depth` levels, with their values as strings.

    Null stays None. Raises ValueError unless lists have that depth, or if a value is
    not a string with `strings_only`.
    """
    if value is None:
        return None
    if depth:
        if not isinstance(value, list):
            raise ValueError("expected a list")
        return [
            json_texts(x, depth - 1, strings_only=strings_only) for x in value
        ]
    if isinstance(value, str):
        return value
    if strings_only or isinstance(value, (list, dict)):
        raise ValueError("expected a string or a number")
    return json.dumps(value)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found
