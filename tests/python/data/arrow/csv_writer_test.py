"""lodestar.data.arrow.csv_writer: open_dataset reads the written files."""

import csv

import pytest

from lodestar.data import Column, Schema, open_dataset
from lodestar.data.arrow.csv_writer import CsvWriter

SPEC = Schema(
    [
        Column.label("y"),
        Column.dense("x", (2,)),
        Column.dense("free", (-1, 2)),
        Column.dense("n", (1,), dtype="uint64"),
        Column.sparse("C"),
        Column.sparse("w", dtype="float", weights_of="C"),
        Column.one_hot("day", 7),
        Column.sparse("unused", used=False),
    ]
)


def samples(rows):
    for i in range(rows):
        ids = [2**64 - 1 - i, i][: i % 3]
        yield {
            "y": i % 2,
            "x": [i / 4, -i],
            "free": [[1, 2], [3, i]],
            "n": i,
            "C": ids,
            "w": [0.5] * len(ids),
            "day": i % 7,
            "unused": [i],
        }


def write(path, rows, **options):
    with CsvWriter(path, SPEC, **options) as out:
        for sample in samples(rows):
            out.write(sample)
    return path


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_content_of_the_file(tmp_path, delimiter):
    path = write(tmp_path / "a.csv", 3, delimiter=delimiter)
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file, delimiter=delimiter))
    assert rows[2] == {
        "y": "0",
        "x_0": "0.5",
        "x_1": "-2",
        "free": "1 2 3 2",
        "n": "2",
        "C": f"{2**64 - 3} 2",
        "w": "0.5 0.5",
        "day": "2",
        "unused": "2",
    }
    ((features, _),) = open_dataset(path, SPEC, 8)
    assert features["C"].to_list() == [[], [-2], [-3, 2]]


def test_names_that_need_quotes(tmp_path):
    names = ["a,b", 'say "x"', "two\nlines", "a\rb", "c;d;e;f", "label", "ü"]
    schema = [Column.sparse(name) for name in names]
    path = tmp_path / "a.csv"
    with CsvWriter(path, schema) as writer:
        writer.write({name: [i] for i, name in enumerate(names)})
    (features,) = open_dataset(path, schema, 8)
    assert [features[name].to_list() for name in names] == [
        [[i]] for i in range(len(names))
    ]
