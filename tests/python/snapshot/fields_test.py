"""Field tables: reading, and errors that name the field."""

import pytest

from lodestar.snapshot.fields import (
    integer,
    list_of,
    or_none,
    read_fields,
    record,
    text,
    value,
)

TABLE = {
    "name": text(bool, "a name"),
    "sizes": list_of(integer(0, 9)),
    "parent": or_none(integer(1)),
    "whole": value(lambda found: isinstance(found, bool), "true or false"),
}
GOOD = {"name": "a", "sizes": [0, 9], "parent": None, "whole": True}


def test_reads_known_fields_and_ignores_others():
    wanted = {**GOOD, "sizes": (0, 9)}
    assert read_fields("it", TABLE, {**GOOD, "other": 1}) == wanted
    nested = list_of(record("a part", TABLE, dict))
    assert nested("parts", [GOOD, GOOD]) == (wanted, wanted)
    assert or_none(integer(1))("parent", 3) == 3


@pytest.mark.parametrize(
    "found, message",
    [
        ([], r"it must be an object, got \[\]"),
        ({}, "has no `name`"),
        ({**GOOD, "name": ""}, "`name` must be a name, got ''"),
        ({**GOOD, "name": 3}, "`name` must be a name, got 3"),
        ({**GOOD, "sizes": 3}, "`sizes` must be a list, got 3"),
        (
            {**GOOD, "sizes": [10]},
            "`sizes` must be an integer in \\[0, .*, got 10",
        ),
        ({**GOOD, "sizes": [True]}, "`sizes` must be an integer.*, got True"),
        (
            {**GOOD, "parent": 0},
            "`parent` must be an integer in \\[1, .*, got 0",
        ),
        ({**GOOD, "whole": 1}, "`whole` must be true or false, got 1"),
    ],
    ids=str,
)
def test_refuses_by_name(found, message):
    with pytest.raises(ValueError, match=message):
        read_fields("it", TABLE, found)
    if isinstance(found, dict):
        with pytest.raises(ValueError, match=message):
            record("it", TABLE, dict)("parts", found)


def test_long_values_are_cut():
    with pytest.raises(ValueError, match="^`name` must be text, got 'x{59}$"):
        value(lambda _: False, "text")("name", "x" * 100)
