"""convert: CSV to MultiSlot text and its schema file."""

import re
import time

import numpy as np
import pytest
import tensorflow as tf
from census import CENSUS
from text_ids import hash_ids

from lodestar._data_tool.convert import convert as convert_samples
from lodestar._data_tool.output import Target
from lodestar._data_tool.progress import Progress
from lodestar._data_tool.sources import open_source
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
    table = open_source(FORMATS["csv"], [str(source)], None, **options)
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


def test_tabs_quotes_newlines_and_a_byte_order_mark(tmp_path):
    convert(
        tmp_path, '\ufeffy\ta\tb\r\n1\t"x\ny"\t2.5\r\n0\t"say ""z"""\t3\r\n'
    )
    features, labels = read(tmp_path)
    assert labels == [1, 0]
    assert features["a"].to_list() == ids("a", "x\ny", 'say "z"')
    assert features["b"].numpy().tolist() == [[2.5], [3]]


def test_ids_that_look_like_numbers(tmp_path):
    text = "y,C1,C2\n1,1e3,7.5\n0,2e5,8\n"
    assert convert(tmp_path, text).names("dense") == ["C1", "C2"]
    spec = convert(tmp_path, text, categorical=["C1"])
    assert spec.names("dense") == ["C2"]
    assert spec.names("sparse") == ["C1"]
    features, _ = read(tmp_path)
    assert features["C1"].to_list() == ids("C1", "1e3", "2e5")


def test_ids_are_written(tmp_path):
    spec = convert(tmp_path, "y,city\n1,Oslo\n0,\n")
    assert spec["city"].encoding == "int"
    features, _ = read(tmp_path)
    assert features["city"].to_list() == ids("city", "Oslo", None)


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
    # 16 times the columns; a search over all names for each would take 70 times
    # as long. Measured twice, because a busy machine delays some runs.
    few = seconds(1000)
    many = seconds(16_000)
    assert many < 35 * max(few, seconds(1000))


def test_other_missing_strings(tmp_path):
    spec = convert(tmp_path, "y,a\n1,-\n0,3.5\n", na_values=["-"])
    assert spec.names("dense") == ["a"]
    assert read(tmp_path)[0]["a"].numpy().tolist() == [[0], [3.5]]


def test_a_label_column_may_hold_an_equals_sign(tmp_path):
    convert(tmp_path, "y=1,a\n1,2.5\n0,3\n", "y=1")
    assert read(tmp_path)[1] == [1, 0]


def test_many_rows(tmp_path, rng):
    rows = 10_000
    y, a, c = (
        rng.integers(0, 2, rows),
        rng.normal(size=rows),
        rng.integers(0, 99, rows),
    )
    text = "c,y,a\n" + "".join(
        f"id{k},{i},{v!r}\n" for k, i, v in zip(c, y, a.tolist(), strict=True)
    )
    convert(tmp_path, text)
    features, labels = read(tmp_path)
    assert labels == y.tolist()
    np.testing.assert_array_equal(
        features["a"].numpy()[:, 0], a.astype(np.float32)
    )
    np.testing.assert_array_equal(
        features["c"].values, hash_ids("c", [f"id{k}" for k in c])
    )


BAD = [
    (b"", "y", "in.csv: the file is empty"),
    (b"\n\n", "y", "in.csv: the file is empty"),
    (b"y,a\n", "y", "in.csv: has no rows, which would"),
    (b"y,a\n1,2.5\n0\n", "y", "in.csv: line 3: found 1 fields, expected 2"),
    (b"y,a\n1,2.5\n\n0,3,4\n", "y", "line 4: found 3 fields, expected 2"),
    (b"y,a\n1,2.5\nnan,3\n", "y", "line 3: column 'y': found a missing value"),
    (b"y,a\n1,2.5\n,3\n", "y", "line 3: column 'y': found a missing value"),
    (b"y,a\n2,2.5\ninf,3\n", "y", "line 3: column 'y': found inf, expected"),
    (b"y,a\n1,2.5\nyes,3\n", "y", "found text .*'yes'.*, expected numbers"),
    (
        b"y,a\n1,2.5\n,3\n0,4\n",
        "y=1",
        "line 3: column 'y': found a missing value",
    ),
    (b"y,a\n1,2.5\n", "z", "in.csv: has no column 'z'; its columns are y, a"),
    (b"y,a\n1,2.5\n", "z=1", "in.csv: has no column 'z'"),
    (b"y,a\nno,2.5\n", "y=yes", "column 'y': no label is 'yes'; found 'no'"),
    (b"y,a,a\n1,2,3\n", "y", "in.csv: has 2 columns named 'a'"),
    (b"y,a\n1,\x00\n", "y", "in.csv: line 2: is not text: found a NUL byte"),
    (b"y,a\n1,\xff\n", "y", "in.csv: line 2: found the byte 0xff, which is no"),
    (
        b'y,a\n1,"2\n0,3\n',
        "y",
        "in.csv: line 2: the quote of a field is not cl",
    ),
    (b"y,a\n1,2.5\n0,1e39\n", "y", "'a': 2 .* float32 does not hold 1e39"),
    (b"y,a\n1,2.5\n", "y=", "`label` must be COLUMN or COLUMN=POSITIVE"),
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


@pytest.mark.parametrize(
    "options, message",
    [
        ({"numeric": ["a"]}, "line 2: column 'a': found 'x', expected a float"),
        ({"numeric": ["b"]}, "has no column 'b'"),
        ({"categorical": ["b"]}, "has no column 'b'"),
        ({"categorical": ["y"]}, "'y' is declared twice, in `label` and `ca"),
        ({"categorical": ["a"], "numeric": ["a"]}, "twice, in `cat"),
        ({"delimiter": '"'}, "`delimiter` must be a string without quotes"),
    ],
)
def test_bad_options_are_named(tmp_path, options, message):
    with pytest.raises((DataError, tf.errors.OpError)) as error:
        convert(tmp_path, "y,a\n1,x\n", **options)
    assert re.search(message, describe_error(error.value))
    assert leftovers(tmp_path) == []


def test_a_cut_last_line_is_warned_about(tmp_path):
    with pytest.warns(UserWarning, match="in.csv: the last line does not end"):
        convert(tmp_path, "y,a\n1,2.5\n0,3")
    assert read(tmp_path)[1] == [1, 0]


def test_a_missing_file_and_unwritable_places_are_named(tmp_path):
    with pytest.raises(DataError, match="in.csv: No such file or directory"):
        convert_csv(tmp_path / "in.csv", tmp_path / "out", label="y")
    source = write(tmp_path, "y,a\n1,2.5\n")
    for target, message in [
        (
            tmp_path / "no" / "out",
            "no/out: cannot be written: No such file or directory",
        ),
        (tmp_path, "cannot be written: it is a folder"),
        (source, "is both input and output"),
    ]:
        with pytest.raises(DataError, match=message):
            convert_csv(source, target, label="y")
    assert leftovers(tmp_path) == []


def test_an_older_output_survives_an_error(tmp_path):
    (tmp_path / "out").write_text("older")
    with pytest.raises((DataError, tf.errors.OpError)):
        convert(tmp_path, "y,a\n1,2.5\nx,3\n")
    assert (tmp_path / "out").read_text() == "older"
    assert leftovers(tmp_path) == ["out"]
