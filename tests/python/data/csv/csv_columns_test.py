"""Which columns of a CSV file are numbers and which are ids."""

import numpy as np
import pytest

from lodestar.data.csv.csv_columns import CsvColumns


def kind(name, values, rows_at_once=1000):
    """What a column of these values is, and whether anything is said of it."""
    columns = CsvColumns([name], ["", "?"])
    texts = list(map(str, values))
    for begin in range(0, len(texts), rows_at_once):
        columns.add([texts[begin : begin + rows_at_once]])
    (is_number,) = columns.numeric()
    return "number" if is_number else "ids", bool(columns.notes())


def some(rng, count, rows):
    """`count` different whole numbers from 1 on, in `rows` rows."""
    values = np.concatenate([np.arange(count), rng.integers(0, count, rows)])
    return rng.permutation(values[:rows]) + 1


@pytest.mark.parametrize(
    "name, make, wanted",
    [
        # As of a log of views: many, and each comes back.
        ("user", lambda rng: some(rng, 943, 20_000), ("ids", True)),
        ("item", lambda rng: np.minimum(rng.zipf(1.2, 9000), 1682), "ids"),
        ("from_0", lambda rng: rng.zipf(1.2, 50_000) % 4000, "ids"),
        ("more", lambda rng: rng.integers(0, 30_000, 200_000), "ids"),
        ("few", lambda rng: some(rng, 129, 129 * 4), ("ids", True)),
        # As of a census.
        ("age", lambda rng: some(rng, 73, 30_000), ("number", True)),
        ("month", lambda rng: some(rng, 10, 300), ("number", False)),
        ("weight", lambda rng: some(rng, 9000, 13_000), ("number", True)),
        ("row", lambda rng: np.arange(50_000), ("number", True)),
        ("few", lambda rng: some(rng, 128, 128 * 4), ("number", True)),
        ("few", lambda rng: some(rng, 129, 129 * 4 - 1), ("number", True)),
        # Counts, and what may be below zero.
        (
            "gain",
            lambda rng: some(rng, 900, 9000) * (rng.random(9000) < 0.4),
            ("number", False),
        ),
        (
            "change",
            lambda rng: some(rng, 900, 9000) - 450,
            ("number", False),
        ),
        ("price", lambda rng: some(rng, 900, 9000) + 0.5, ("number", False)),
        ("mixed", lambda rng: [*some(rng, 900, 9000), 0.5], ("number", False)),
        # Names and digits that numbers do not have.
        ("user_id", lambda rng: some(rng, 5, 20), ("ids", True)),
        ("movieId", lambda rng: some(rng, 5, 20), "ids"),
        ("ID", lambda rng: some(rng, 5, 20), "ids"),
        ("id", lambda rng: np.arange(2000), ("number", True)),
        ("paid", lambda rng: some(rng, 5, 20), "number"),
        ("zip", lambda rng: ["02139", "10001"], "ids"),
        ("zeros", lambda rng: ["0", "10"], "number"),
        ("hash", lambda rng: [2**60 + 1, -(2**61)], "ids"),
        ("long", lambda rng: ["9" * 5000], "ids"),
        # As pandas writes integers beside missing values.
        (
            "user_id",
            lambda rng: [f"{i}.0" for i in some(rng, 900, 9000)],
            ("number", True),
        ),
        ("from_0", lambda rng: ["7.", *range(20), *range(20)], "number"),
        ("zip", lambda rng: ["02139.0", "10001.0"], "number"),
        # Not whole numbers at all.
        ("text", lambda rng: [*some(rng, 900, 9000), "x"], ("ids", False)),
        ("missing", lambda rng: ["", "?"], ("ids", False)),
    ],
)
def test_kinds(rng, name, make, wanted):
    found = kind(name, make(rng))
    assert (found if isinstance(wanted, tuple) else found[0]) == wanted


def test_what_counts_is_what_is_there_and_not_its_order(rng):
    values = rng.integers(0, 50_000, 300_000)  # more than are counted
    for rows_at_once in (17, 2048, 10**6):
        for order in (values, np.sort(values)):
            assert kind("a", order, rows_at_once)[0] == "ids"
    missing = np.where(rng.random(300_000) < 0.9, "?", values.astype(str))
    assert kind("a", missing)[0] == "number"


def test_memory_stays_bounded_and_notes_short(rng):
    columns = CsvColumns([f"c{i}" for i in range(3000)], [""])
    rows = rng.integers(0, 10**9, 1500).astype(str).tolist()
    columns.add([rows] * 3000)
    assert all(len(c._counts) <= 2**21 // 3000 for c in columns._columns)
    (note,) = columns.notes()
    assert note.startswith("columns c0, c1, ")
    assert "c19, ...: whole numbers, taken for numbers" in note
