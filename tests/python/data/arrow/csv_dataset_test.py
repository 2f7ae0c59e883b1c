"""lodestar.data.open_dataset: lines of CSV and TSV as batches."""

import gzip
import os

import numpy as np
import pytest
import tensorflow as tf
from text_ids import hash_ids

from lodestar._errors import describe_error
from lodestar.data import Column, Schema, SkippedRecords, open_dataset
from lodestar.data.arrow.csv_writer import CsvWriter
from lodestar.paddle import MultiSlotDataset, MultiSlotWriter

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
ROWS = 50


def samples(rows=ROWS):
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


def write(path, rows=ROWS, writer=CsvWriter, **options):
    with writer(path, SPEC, **options) as out:
        for sample in samples(rows):
            out.write(sample)
    return path


def flat(dataset):
    return [tf.nest.flatten(x, expand_composites=True) for x in dataset]


def order(dataset):
    return [
        i
        for features, _ in dataset
        for i in features["n"].numpy().ravel().tolist()
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"drop_remainder": True},
        {"sparse": "lod"},
        {"sparse": "csr"},
        {"as_columns": True},
        {"repeat": 2},
    ],
)
def test_elements_are_those_of_multislot_text(tmp_path, options):
    files = [
        write(tmp_path / f"{i}.csv", rows) for i, rows in enumerate((9, 4))
    ]
    text = [
        write(tmp_path / f"{i}.txt", rows, MultiSlotWriter)
        for i, rows in enumerate((9, 4))
    ]
    found = open_dataset(files, SPEC, 4, **options)
    wanted = MultiSlotDataset(text, SPEC, 4, **options)
    assert found.element_spec == wanted.element_spec
    for got, want in zip(flat(found), flat(wanted), strict=True):
        for a, b in zip(got, want, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def test_slots_found_in_the_file(tmp_path):
    path = tmp_path / "in.tsv.gz"
    with gzip.open(path, "wt") as file:
        file.write("age\tcity\tbought\n31\tOslo\tyes\n\t?\tno\n")
    ((features, label),) = open_dataset(path, batch_size=4, label="bought=yes")
    assert features["age"].numpy().tolist() == [[31.0], [0.0]]
    assert features["city"].to_list() == [
        hash_ids("city", ["Oslo"]).tolist(),
        [],
    ]
    assert label.numpy().tolist() == [[1.0], [0.0]]


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
@pytest.mark.parametrize("window", [1, 10, 1000])
def test_shuffled(tmp_path, batch_size, window):
    path = write(tmp_path / "in.csv")
    dataset = open_dataset(
        path, SPEC, batch_size, shuffle_rows=window, seed=1, repeat=2
    )
    found = order(dataset)
    epochs = found[:ROWS], found[ROWS:]
    assert [sorted(epoch) for epoch in epochs] == [list(range(ROWS))] * 2
    for epoch in epochs:
        assert (epoch == list(range(ROWS))) == (window == 1)
    assert (epochs[0] == epochs[1]) == (window == 1)
    for place, i in enumerate(epochs[0]):
        assert i < place + window


def test_shards_share_the_rows(tmp_path):
    files = [write(tmp_path / "in.csv", 5000)]
    parts = [
        order(open_dataset(files, SPEC, 64, shard=(3, i))) for i in range(3)
    ]
    assert parts == [list(range(5000))[i::3] for i in range(3)]


def test_bad_rows_are_left_out(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("label,a\n1,2\n3,4\n0\n0,5\n")
    schema = [Column.label("label"), Column.sparse("a")]
    skipped = SkippedRecords()
    ((features, _),) = open_dataset(
        path, schema, 8, on_error="skip", skipped=skipped
    )
    assert features["a"].to_list() == [[2], [5]]
    assert sorted(skipped.messages) == [
        f"{path}:3: column 'label': is '3', wanted 0 or 1",
        f"{path}:4: found 1 fields, wanted 2 as in the header",
    ]
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(open_dataset(path, schema, 8))
    assert describe_error(error.value) == (
        f"{path}:4: found 1 fields, wanted 2 as in the header"
    )


def test_a_file_that_changes_while_it_is_read(tmp_path):
    path = write(tmp_path / "in.csv", 5000)
    iterator = iter(open_dataset(path, SPEC, 10, prefetch=0))
    next(iterator)
    with open(path, "a") as file:
        file.write("\n")
    os.utime(path, (1, 1))
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(iterator)
    size = path.stat().st_size
    assert describe_error(error.value).startswith(
        f"{path}: changed while it was read: it had {size - 1} bytes when it was "
        f"opened, {size} bytes at the end, and "
    )


def test_a_free_dim_needs_samples_of_one_size(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("f,g\n1 2,0\n1 2 3 4,0\n")
    schema = [Column.dense("f", (-1, 2)), Column.dense("g")]
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="found 4 values in sample 1"
    ):
        list(open_dataset(path, schema, 2))
    shapes = [x["f"].shape.as_list() for x in open_dataset(path, schema, 1)]
    assert shapes == [[1, 1, 2], [1, 2, 2]]


def test_weights(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("c,w\n1 2,0.5 1\n3,0.5 1\n")
    schema = [Column.sparse("c"), Column.sparse("w", dtype="float")]
    with pytest.raises(tf.errors.InvalidArgumentError, match="'w'.*wanted 1"):
        list(open_dataset(path, schema, 2, weights={"c": "w"}))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch_size": None}, "`batch_size` is missing"),
        ({"open_command": ["cat"]}, "`open_command` is no option of CsvDatas"),
        ({"label": "b"}, "unknown column 'b'; the columns are label, x"),
        ({"numeric": ["x"], "slots": [Column.dense("x")]}, "`schema` says"),
        ({"numeric": "x"}, "`numeric` must be a list of strings, found 'x'"),
        ({"missing": "NA"}, "`missing` must be a list of strings, found 'NA'"),
        ({"ids": "octal"}, "`ids`='octal' is not in"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, options, text):
    path = tmp_path / "in.csv"
    path.write_text("label,x\n1,2\n")
    with pytest.raises(ValueError, match=text):
        open_dataset(path, **{"batch_size": 2, **options})
