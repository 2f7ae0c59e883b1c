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


def test_reads_the_fields_of_the_table_and_passes_over_others():
    wanted = {**GOOD, "sizes": (0, 9)}
    assert read_fields("it", TABLE, {**GOOD, "other": 1}) == wanted
    nested = list_of(record("a part", TABLE, dict))
    assert nested("parts", [GOOD, GOOD]) == (wanted, wanted)
    assert or_none(integer(1))("parent", 3) == 3


@pytest.mark.parametrize(
    "found, message",
    [
        ([], r"it is \[\], wanted an object"),
        ({}, "has no `name`"),
        ({**GOOD, "name": ""}, "`name` is '', wanted a name"),
        ({**GOOD, "name": 3}, "`name` is 3, wanted a name"),
        ({**GOOD, "sizes": 3}, "`sizes` is 3, wanted a list"),
        ({**GOOD, "sizes": [10]}, "`sizes` is 10, wanted an integer from 0 to"),
        ({**GOOD, "sizes": [True]}, "`sizes` is True, wanted an integer"),
        ({**GOOD, "parent": 0}, "`parent` is 0, wanted an integer from 1 to"),
        ({**GOOD, "whole": 1}, "`whole` is 1, wanted true or false"),
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
    with pytest.raises(ValueError, match="^`name` is 'x{59}, wanted text$"):
        value(lambda _: False, "text")("name", "x" * 100)
