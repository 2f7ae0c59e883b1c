"""convert: CSV to MultiSlot text and its schema file."""

import gzip
import time
import warnings

import numpy as np
import pytest
from census import CENSUS
from text_ids import hash_ids

from lodestar.data import DataError, Schema
from lodestar.data.csv import csv_reader
from lodestar.data.csv.csv_table import parse_label
from lodestar.data.tool.convert import convert as convert_samples
from lodestar.data.tool.formats import FORMATS
from lodestar.data.tool.open_files import open_source
from lodestar.data.tool.output import Target, schema_path
from lodestar.data.tool.progress import Progress
from lodestar.paddle import MultiSlotDataset


def write(tmp_path, content, name="in.csv"):
    path = tmp_path / name
    if isinstance(content, str):
        content = content.encode()
    path.write_bytes(content)
    return path


def convert_csv(source, target, **options):
    table = open_source(source, format="csv", **options)
    made = Target(target, FORMATS["multislot"])
    convert_samples(table, made, progress=Progress())
    return table.spec


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
    spec = convert(tmp_path, CENSUS, "Salary=>50K")
    assert spec == Schema.load(schema_path(tmp_path / "out"))
    assert spec.names() == ["Salary", "age", "job", "hours", "country"]
    assert spec.names("dense") == ["age", "hours"]
    features, labels = read(tmp_path)
    assert labels == [0, 1, 1, 0]
    assert features["age"].numpy().tolist() == [[39], [50], [38], [28]]
    assert features["hours"].numpy().tolist() == [[40], [0], [45.5], [10]]
    assert features["job"].to_list() == ids(
        "job", "State-gov", None, "Private", "Self, inc"
    )
    us = "United-States"
    assert features["country"].to_list() == ids("country", us, us, None, None)
    assert leftovers(tmp_path) == ["out", "out.schema.yaml"]


def test_tabs_quotes_newlines_and_a_byte_order_mark(tmp_path):
    convert(tmp_path, '\ufeffy\ta\tb\r\n1\t"x\ny"\t2\r\n0\t"say ""z"""\t3\r\n')
    features, labels = read(tmp_path)
    assert labels == [1, 0]
    assert features["a"].to_list() == ids("a", "x\ny", 'say "z"')
    assert features["b"].numpy().tolist() == [[2], [3]]


def test_ids_that_look_like_numbers(tmp_path):
    text = "y,C1,C2\n1,1e3,7\n0,2e5,8\n"
    spec = convert(tmp_path, text)
    assert spec.names("dense") == ["C1", "C2"]
    spec = convert(tmp_path, text, categorical=["C1"])
    assert spec.names("dense") == ["C2"]
    assert spec.names("sparse") == ["C1"]
    features, _ = read(tmp_path)
    assert features["C1"].to_list() == ids("C1", "1e3", "2e5")


def views(rng, rows=6000):
    """Of a log of views: MovieLens's columns, as text."""
    columns = [
        rng.integers(1, 944, rows),
        np.minimum(rng.zipf(1.3, rows), 600),
        rng.integers(1, 6, rows),
        np.sort(rng.integers(874_724_710, 893_286_638, rows)),
    ]
    return "user,item,rating,time\n" + "".join(
        ",".join(map(str, row)) + "\n" for row in zip(*columns)
    )


def test_whole_numbers_that_come_back_are_ids_and_it_is_said(tmp_path, rng):
    text = views(rng)
    with pytest.warns(UserWarning) as caught:
        spec = convert(tmp_path, text, "rating=5")
    assert spec.names("sparse") == ["user", "item"]
    assert spec.names("dense") == ["time"]
    assert [str(w.message).partition(": ")[2] for w in caught] == [
        "columns user, item: whole numbers, taken for ids; name them in "
        "`numeric` to have numbers",
        "column time: whole numbers, taken for numbers; name it in "
        "`categorical` to have ids",
    ]
    first = text.split("\n")[1].split(",")
    features, _ = read(tmp_path)
    assert features["user"][0].numpy().tolist() == ids("user", first[0])[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spec = convert(
            tmp_path, text, "rating=5", numeric=["user"],
            categorical=["item", "time"],
        )  # fmt: skip
    assert spec.names("dense") == ["user"]


def test_many_columns_take_time_in_proportion(tmp_path):
    def seconds(count):
        began = time.process_time()
        names = [f"c{i}" for i in range(count)]
        cells = [("7", "x")[i % 2] for i in range(count)]
        rows = ["y," + ",".join(names), "1," + ",".join(cells), ""]
        spec = convert(tmp_path, "\n".join(rows))
        assert spec.names() == ["y", *names]
        Schema.load(schema_path(tmp_path / "out"))
        return time.process_time() - began

    seconds(10)  # what comes with the first call
    # 16 times as many; a pass over all names for each would be 70 times it.
    # Before and after, as a busy machine makes some seconds longer than others.
    few = seconds(1000)
    many = seconds(16_000)
    assert many < 35 * max(few, seconds(1000))


def test_a_column_without_values_is_an_id_slot(tmp_path):
    text = "y,a,b\n1,,1\n0,?,2\n"
    assert convert(tmp_path, text).names("sparse") == ["a"]
    features, _ = read(tmp_path)
    assert features["a"].to_list() == [[], []]
    assert convert(tmp_path, text, numeric=["a"]).names("sparse") == []


def test_other_missing_texts(tmp_path):
    spec = convert(tmp_path, "y,a\n1,NULL\n0,3\n", missing=["NULL"])
    assert spec.names("dense") == ["a"]
    assert read(tmp_path)[0]["a"].numpy().tolist() == [[0], [3]]


def test_underscores_are_no_numbers(tmp_path):
    assert convert(tmp_path, "y,a\n1,1_000\n0,3\n").names("sparse") == ["a"]


def test_a_label_column_may_hold_an_equals_sign(tmp_path):
    convert(tmp_path, "y=1,a\n1,2\n0,3\n", "y=1")
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
    (b"y,a\n", "y", "in.csv: has a header but no rows"),
    (b"y,a\n1,2\n0\n", "y", "in.csv:3: found 1 fields, wanted 2 as in the"),
    (b"y,a\n1,2\n\n0,3,4\n", "y", "in.csv:4: found 3 fields, wanted 2"),
    (
        b"y,a\n1,2\nnan,3\n",
        "y",
        "in.csv:3: column 'y': the label is 'nan', wanted a finite number",
    ),
    (
        b"y,a\n1,2\n,3\n",
        "y",
        "in.csv:3: column 'y': the label is '', wanted a finite number",
    ),
    (
        b"y,a\n1,2\nyes,3\n",
        "y",
        "the label is 'yes', wanted a number; `label`='COLUMN=POSITIVE' says",
    ),
    (
        b"y,a\n1,2\n,3\n",
        "y=1",
        "in.csv:3: column 'y': the label is '', wanted a",
    ),
    (b"y,a\n1,2\n", "z", "in.csv: unknown column 'z'; the columns are y, a"),
    (b"y,a\n1,2\n", "z=1", "in.csv: unknown column 'z'"),
    (b"y,a\nno,2\n", "y=yes", "column 'y': no label is 'yes'; found 'no'"),
    (b"y,a,a\n1,2,3\n", "y", "in.csv:1: column 'a' occurs twice in the header"),
    (b"y,,a\n1,2,3\n", "y", "in.csv:1: column 2 of the header has no name"),
    (b"y,a\n1,\x00\n", "y", "in.csv:2: not text: a NUL byte at byte 3"),
    (b"y,a\n1,\xff\n", "y", "in.csv:2: not text: byte 3 is not UTF-8"),
    (b'y,a\n1,"2\n0,3\n', "y", "in.csv:3: unexpected end of data"),
    (b"y,a\n1,2\n0,inf\n", "y", "in.csv:3: column 'a': 'inf' is not a finite"),
    (
        b"y,a\n1,2\n0,1e39\n",
        "y",
        "in.csv:3: column 'a': '1e39' is not a finite",
    ),
    (
        b"a,y\n1,>5\n2,<5\n1,>5\n2,<",
        "y=>5",
        "in.csv:5: .*label occurs in no other",
    ),
    (b"y,a\n1,2\n", "y=", "the label must be COLUMN or COLUMN=POSITIVE"),
]


@pytest.mark.parametrize("content, label, message", BAD)
def test_bad_input_is_named_and_leaves_nothing(
    tmp_path, content, label, message
):
    with pytest.raises(DataError, match=message) as error:
        convert(tmp_path, content, label)
    assert "\n" not in str(error.value)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "options, message",
    [
        ({"numeric": ["a"]}, "in.csv:2: column 'a': 'x' is not a number"),
        ({"numeric": ["b"]}, "unknown column 'b'"),
        ({"categorical": ["b"]}, "unknown column 'b'"),
        ({"categorical": ["y"]}, "column 'y' is the label"),
        ({"categorical": ["a"], "numeric": ["a"]}, "both categorical and num"),
        ({"delimiter": ";;"}, "the delimiter must be one character"),
    ],
)
def test_bad_options_are_named(tmp_path, options, message):
    with pytest.raises(DataError, match=message):
        convert(tmp_path, "y,a\n1,x\n", **options)
    assert leftovers(tmp_path) == []


def test_a_cut_last_line_is_warned_about(tmp_path):
    with pytest.warns(UserWarning, match="in.csv:3: the last line has no newl"):
        convert(tmp_path, "y,a\n1,2\n0,3")
    assert read(tmp_path)[1] == [1, 0]


def test_a_small_file_of_nothing_but_newlines_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reader, "_MAX_BLANK_LINES", 1000)
    for text in ("\n" * 2000, "y,a\n1,2\n" + " \n" * 2000):
        path = tmp_path / "in.gz"
        path.write_bytes(gzip.compress(text.encode()))
        with pytest.raises(
            DataError, match="more than 1000 blank lines in a r"
        ):
            convert_csv(path, tmp_path / "out", label="y")
    # Blank lines between rows are none too many.
    convert(tmp_path, "y,a\n" + ("1,2\n" + "\n" * 900) * 5)


def test_a_missing_file_and_unwritable_places_are_named(tmp_path):
    with pytest.raises(DataError, match="in.csv: No such file or directory"):
        convert_csv(tmp_path / "in.csv", tmp_path / "out", label="y")
    source = write(tmp_path, "y,a\n1,2\n")
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
    with pytest.raises(DataError):
        convert(tmp_path, "y,a\n1,2\ninf,3\n")
    assert (tmp_path / "out").read_text() == "older"
    assert leftovers(tmp_path) == ["out"]


def test_parse_label():
    assert parse_label("click") == ("click", None)
    assert parse_label("Salary=>50K") == ("Salary", ">50K")
    assert parse_label("a==") == ("a", "=")
