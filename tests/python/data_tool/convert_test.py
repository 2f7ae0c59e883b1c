"""convert: CSV to MultiSlot text and its schema file."""

import re
import time

import pytest
import tensorflow as tf
from census import CENSUS
from text_ids import hash_ids

from lodestar._data_tool.convert import convert as convert_samples
from lodestar._data_tool.output import Target
from lodestar._data_tool.progress import Progress
from lodestar._data_tool.sources import Source
from lodestar._errors import describe_error
from lodestar.data import DataError, Schema
from lodestar.data.files.formats import FORMATS
from lodestar.data.files.schema_beside import schema_path
from lodestar.paddle.multislot_dataset import MultiSlotDataset


def write(tmp_path, content, name="in.csv"):
    path = tmp_path / name
    if isinstance(content, str):
        content = content.encode()
    path.write_bytes(content)
    return path


def convert_csv(source, target, **options):
    table = Source(FORMATS["csv"], [str(source)], None, **options)
    made = Target(target, FORMATS["multislot"])
    convert_samples(table, made, progress=Progress())
    return Schema.load(schema_path(target))


def convert(tmp_path, content, label="y", **options):
    return convert_csv(
        write(tmp_path, content), tmp_path / "out", label=label, **options
    )


def read(tmp_path):
    out = tmp_path / "out"
    ((features, label),) = MultiSlotDataset(out, schema_path(out), 10_000)
    return features, label.numpy()[:, 0].tolist()


def ids(column, *values):
    return [[] if v is None else hash_ids(column, [v]).tolist() for v in values]


def leftovers(tmp_path):
    return sorted(p.name for p in tmp_path.iterdir() if p.name != "in.csv")


def test_census(tmp_path):
    spec = convert(tmp_path, CENSUS, "Salary=>50K", numeric=["age"])
    assert spec.names() == ["Salary", "age", "job", "hours", "country"]
    assert spec.names("dense") == ["age", "hours"]
    assert spec["job"].encoding == "int"  # ids are written
    # A string other than the positive one means 0, even one like it.
    features, labels = read(tmp_path)
    assert labels == [0, 1, 0, 0]
    assert features["age"].numpy().tolist() == [[39], [50], [38], [28]]
    assert features["hours"].numpy().tolist() == [[40], [0], [45.5], [10]]
    assert features["job"].to_list() == ids(
        "job", "State-gov", None, "Private", "Self, inc"
    )
    us = "United-States"
    assert features["country"].to_list() == ids("country", us, us, None, None)
    assert leftovers(tmp_path) == ["out", "out.schema.yaml"]


def test_many_columns_take_time_in_proportion(tmp_path):
    def seconds(count):
        began = time.process_time()
        names = [f"c{i}" for i in range(count)]
        cells = [("7.5", "x")[i % 2] for i in range(count)]
        rows = ["y," + ",".join(names), "1," + ",".join(cells), ""]
        spec = convert(tmp_path, "\n".join(rows))
        assert spec.names() == ["y", *names]
        Schema.load(schema_path(tmp_path / "out"))
        return time.process_time() - began

    seconds(10)  # warm-up
    # 8 times the columns; a search over all names for each would take 20 times
    # as long. Measured twice, because a busy machine delays some runs.
    few = seconds(100)
    many = seconds(800)
    assert many < 14 * max(few, seconds(100))


BAD = [
    (b"", "y", "in.csv: the file is empty"),
    (b"y,a\n", "y", "in.csv: has no rows, which would"),
    (b"y,a\n1,\xff\n", "y", "in.csv: line 2: found the byte 0xff, which is no"),
    (b"y,a\n1,2.5\n0\n", "y", "in.csv: line 3: found 1 fields, expected 2"),
    (b"y,a\n1,2.5\n,3\n", "y", "line 3: column 'y': found a missing value"),
    (b"y,a\n1,2.5\nyes,3\n", "y", "found text .*'yes'.*, expected numbers"),
    (b"y,a\n1,2.5\n0,1e39\n", "y", "'a': 2 .* float32 does not hold 1e39"),
]


@pytest.mark.parametrize("content, label, message", BAD)
def test_bad_input_is_named_and_leaves_nothing(
    tmp_path, content, label, message
):
    with pytest.raises((DataError, tf.errors.OpError)) as error:
        convert(tmp_path, content, label)
    text = describe_error(error.value)
    assert re.search(message, text), text
    assert "\n" not in text
    assert leftovers(tmp_path) == []


def test_an_older_output_survives_an_error(tmp_path):
    (tmp_path / "out").write_text("older")
    with pytest.raises((DataError, tf.errors.OpError)):
        convert(tmp_path, "y,a\n1,2.5\nx,3\n")
    assert (tmp_path / "out").read_text() == "older"
    assert leftovers(tmp_path) == ["out"]
