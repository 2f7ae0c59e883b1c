"""open_dataset and open_source: files of any format, recognised."""

import numpy as np
import pandas
import pytest

from lodestar.data import (
    Column,
    DataError,
    Schema,
    SkippedRecords,
    open_dataset,
)
from lodestar.data.arrow.csv_writer import CsvWriter
from lodestar.data.arrow.parquet_writer import ParquetWriter
from lodestar.data.tool.find_format import expand_inputs, one_format
from lodestar.data.tool.open_files import open_source
from lodestar.hugectr import NormWriter, RawWriter, write_file_list
from lodestar.paddle import MultiSlotWriter

SPEC = Schema(
    [
        Column.label("y"),
        Column.dense("x", [2]),
        Column.sparse("a"),
        Column.sparse("b"),
    ]
)
WRITERS = {
    "multislot": MultiSlotWriter,
    "norm": NormWriter,
    "raw": RawWriter,
    "parquet": ParquetWriter,
}
ROWS = 100


def columns(rows=ROWS):
    splits = np.arange(rows + 1)
    return {
        "y": np.arange(rows) % 2,
        "x": np.arange(2 * rows, dtype=np.float32).reshape(rows, 2),
        "a": (np.arange(rows), splits),
        "b": (np.arange(rows) * 7, splits),
    }


def write(folder, name, stem="all", data=None):
    path = folder / f"{stem}.{name}"
    with WRITERS[name](path, SPEC) as writer:
        writer.write_batch(data or columns())
    return path


def values(dataset, slot):
    return [int(v) for features, _ in dataset for v in features[slot].values]


@pytest.mark.parametrize("name", WRITERS)
def test_the_format_is_found(tmp_path, name):
    path = write(tmp_path, name)
    assert one_format([str(path)]) == name
    dataset = open_dataset(path, SPEC, 30)
    assert values(dataset, "b") == [i * 7 for i in range(ROWS)]
    SPEC.save(f"{path}.schema.yaml")
    assert values(open_dataset(path, batch_size=30), "a") == list(range(ROWS))
    source = open_source(path)
    assert source.spec == SPEC
    (found,) = source.batches(str(path))
    np.testing.assert_array_equal(found["a"][0], np.arange(ROWS))


def test_csv_has_a_dataset(tmp_path):
    path = tmp_path / "in.csv"
    with CsvWriter(path, SPEC) as writer:
        writer.write_batch(columns())
    text = list(open_dataset(write(tmp_path, "multislot"), SPEC, 30))
    for (found, y), (wanted, z) in zip(
        open_dataset(path, SPEC, 30), text, strict=True
    ):
        np.testing.assert_array_equal(y, z)
        np.testing.assert_array_equal(found["x"], wanted["x"])
        np.testing.assert_array_equal(found["b"].values, wanted["b"].values)
    shuffled = open_dataset(path, SPEC, 30, shuffle_rows=ROWS, seed=1, repeat=2)
    ids = values(shuffled, "a")
    assert ids[:ROWS] != list(range(ROWS))
    assert sorted(ids) == sorted(2 * list(range(ROWS)))


def test_csv_needs_no_slots(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("bought,price,word\nyes,1.5,a\nno,,b\nyes,2,\n")
    dataset = open_dataset(path, batch_size=3, label="bought=yes")
    ((features, label),) = dataset
    assert label.numpy().ravel().tolist() == [1, 0, 1]
    assert features["price"].numpy().ravel().tolist() == [1.5, 0, 2]
    assert features["word"].row_lengths().numpy().tolist() == [1, 1, 0]
    with pytest.raises(ValueError, match="`deterministic` is no option of Csv"):
        open_dataset(path, batch_size=3, label="bought=yes", deterministic=True)
    path.write_text("bought,price\nyes,1\nno,1,2\n")
    with pytest.raises(Exception, match="in.csv:3: found 3 fields, wanted 2"):
        list(open_dataset(path, batch_size=3, label="bought=yes"))


def test_a_file_list_stands_for_its_files(tmp_path):
    files = [str(write(tmp_path, "norm", str(i))) for i in range(2)]
    write_file_list(tmp_path / "list.txt", files)
    assert expand_inputs([str(tmp_path / "list.txt")]) == files
    dataset = open_dataset(tmp_path / "list.txt", SPEC, 64)
    assert values(dataset, "a") == [*range(ROWS), *range(ROWS)]


def test_errors(tmp_path):
    norm, text = write(tmp_path, "norm"), write(tmp_path, "multislot")
    with pytest.raises(DataError, match="is multislot, but .* is norm"):
        open_dataset([norm, text], SPEC, 10)
    with pytest.raises(DataError, match="which slots?"):
        open_dataset(norm, batch_size=10)
    with pytest.raises(DataError, match="`format`='avro' is not in"):
        open_dataset(norm, SPEC, 10, format="avro")
    with pytest.raises(DataError, match="is norm, but `layout` is for raw"):
        open_source(norm, SPEC, layout="int")
    with pytest.raises(ValueError, match="`batch_size` is missing"):
        open_dataset(norm, SPEC)


@pytest.mark.parametrize(
    "option, advice",
    [
        ({"label": "y"}, "the label as Column.label\\('y'\\)"),
        ({"label": "y=1"}, "the label as Column.label\\('y'\\)"),
        ({"numeric": ["x"]}, "$"),
    ],
)
def test_an_option_of_another_format_is_refused(tmp_path, option, advice):
    path = write(tmp_path, "parquet")
    (name,) = option
    for opened in (open_dataset, open_source):
        size = {"batch_size": 4} if opened is open_dataset else {}
        with pytest.raises(
            DataError,
            match=f"all.parquet: is parquet, but `{name}` is for csv, tsv; "
            f"declare the columns in `schema`.*{advice}",
        ):
            opened(path, **size, **option)


def test_an_option_that_no_reader_has_is_named(tmp_path):
    path = write(tmp_path, "parquet")
    with pytest.raises(
        TypeError,
        match="^open_dataset has no option `labels`; the options are weights, "
        "slot_size_array, drop_remainder, .*, open_command.$",
    ):
        open_dataset(path, batch_size=4, labels="y")
    with pytest.raises(
        TypeError, match="^MultiSlotDataset has no option `sed`"
    ):
        open_dataset(write(tmp_path, "multislot"), SPEC, 4, sed=1)


@pytest.mark.parametrize(
    "labels, is_binary", [([0, 1, 1], True), ([1, 5, 2.5], False)]
)
def test_a_label_is_any_number_in_a_file_and_in_a_table(
    tmp_path, labels, is_binary
):
    frame = pandas.DataFrame({"rating": labels, "user": ["a", "b", "c"]})
    path = tmp_path / "ratings.csv"
    frame.to_csv(path, index=False)
    wanted = np.float32(labels).reshape(3, 1)
    for files in (path, frame):
        dataset = open_dataset(files, batch_size=3, label="rating")
        ((features, label),) = dataset
        np.testing.assert_array_equal(label, wanted)
        assert list(features) == ["user"]
    source = open_source(path, label="rating")
    assert source.spec["rating"].binary == is_binary
    with MultiSlotWriter(tmp_path / "copy.txt", source.spec) as writer:
        for piece in source.batches(str(path)):
            writer.write_batch(piece)
    ((_, label),) = open_dataset(tmp_path / "copy.txt", source.spec, 3)
    np.testing.assert_array_equal(label, wanted)


def test_bad_rows_of_csv_are_left_out_each_once(tmp_path):
    spec = Schema(
        [
            Column.label("y"),
            Column.dense("I", (2,)),
            Column.dense("free", (-1, 2)),
            Column.sparse("C"),
            Column.sparse("w", dtype="float", weights_of="C"),
            Column.one_hot("day", 7),
        ]
    )
    good = "1,0.5,2,1 2,7 8,1 2,6\n"
    bad = [
        ("2,0.5,2,1 2,7 8,1 2,6\n", "'y': is '2', wanted 0 or 1"),
        ("1,0.5,x,1 2,7 8,1 2,6\n", "'I': 'x' is not a float32"),
        ("1,0.5,2,1,7 8,1 2,6\n", "'free': has 1 values, wanted a multi"),
        ("1,0.5,2,1 2,7 z,1 2,6\n", "'C': 'z' is not an integer"),
        ("1,0.5,2,1 2,7 8,1,6\n", "'w': has 1 values, wanted 2"),
        ("1,0.5,2,1 2,7 8,1 2,7\n", "'day': is '7', wanted a whole number"),
        ("2,x,2,1,7 8,1,6\n", "'y': is '2', wanted 0 or 1"),
    ]
    path = tmp_path / "in.csv"
    rows = "".join(good + line for line, _ in bad) * 400  # some chunks
    path.write_text("y,I_0,I_1,free,C,w,day\n" + rows + good)
    skipped = SkippedRecords()
    source = open_source(path, spec, skipped=skipped)
    batches = list(source.batches(str(path)))
    assert skipped.count == 400 * len(bad)
    for i, text in enumerate(skipped.messages):
        assert f"in.csv:{2 * i + 3}: column {bad[i % len(bad)][1]}" in text
    assert sum(len(batch["y"]) for batch in batches) == 400 * len(bad) + 1
    for batch in batches:
        count = len(batch["y"])
        assert batch["y"].tolist() == [1] * count
        assert batch["C"][0].tolist() == [7, 8] * count
        assert batch["w"][1].tolist() == list(range(0, 2 * count + 1, 2))
        assert batch["free"][0].tolist() == [1, 2] * count
