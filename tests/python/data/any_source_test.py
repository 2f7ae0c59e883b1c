"""Any values in any source: equal batches or an error, never other values."""

import csv
import io
import json

import hypothesis
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from text_ids import hash_ids

from lodestar.data import Column, DataError, open_dataset
from lodestar.schema.schema import NA_VALUES

REFUSED = (DataError, tf.errors.InvalidArgumentError)
EDGES = [
    edge + i
    for edge in (0, 2**8, 2**11, 2**24, 2**31, 2**53, 2**63, 2**64, -(2**63))
    for i in (-2, -1, 0, 1, 2)
    if -(2**63) <= edge + i < 2**64
]
INTEGERS = st.sampled_from(EDGES) | st.integers(-(2**63), 2**63 - 1)
# TensorFlow's threads flush numbers that are subnormal in float32 to zero.
FLOATS = (
    st.floats(allow_nan=False)
    | st.sampled_from(EDGES).map(float)
    | st.floats(-1e6, 1e6)
).filter(lambda v: v == 0 or abs(v) >= 2.0**-126)
WORDS = st.sampled_from(
    [
        *("", " ", "a", "7", "007", "7.0", "+7", "-0", "1e3", "0x7", "0.5"),
        *("NA", "None", "\\N", "true", "True", "no", '"', '"a"', 'a"b', "'"),
        *("a,b", "a\tb", "a\nb", "a\r\nb", "a|b", "a;b", "[1]", "['a']"),
        *("é", "\ufeff", "9007199254740993", "18446744073709551616"),
    ]
)
TEXTS = WORDS | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    max_size=6,
)


def rows_of(values):
    return st.lists(st.none() | values, min_size=1, max_size=6)


def lists_of(values):
    return rows_of(st.lists(values, max_size=3))


def frame(values):
    """Returns a table that holds exactly these values, or None."""
    try:
        return pa.table({"x": values, "n": range(len(values))})
    except (pa.ArrowInvalid, OverflowError):
        pass
    try:
        unsigned = pa.array(values, pa.uint64())
    except (pa.ArrowInvalid, OverflowError, TypeError):
        return None
    return pa.table({"x": unsigned, "n": range(len(values))})


def written(values, write, **options):
    """Returns CSV text; `write` maps a value to a cell."""
    text = io.StringIO()
    writer = csv.writer(text, **options)
    writer.writerow(["x", "n"])
    for i, value in enumerate(values):
        writer.writerow(["" if value is None else write(value), i])
    return text.getvalue()


def feature(values):
    values = [] if values is None else values
    values = values if isinstance(values, list) else [values]
    if all(isinstance(v, int) for v in values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    if all(isinstance(v, float) for v in values):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    values = [v.encode() for v in values]
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def sources(folder, values):
    """Yields (name, data, options) of each source that can hold the values."""
    is_list = any(isinstance(v, list) for v in values)
    table = frame(values)
    if table is not None:
        yield "pyarrow", table, {}
        yield "polars", polars.from_arrow(table), {}
        pq.write_table(table, folder / "a.parquet", row_group_size=2)
        yield "parquet", folder / "a.parquet", {}
        with pa.ipc.new_file(folder / "a.arrow", table.schema) as writer:
            writer.write_table(table, 3)
        yield "arrow", folder / "a.arrow", {}
    data = pandas.DataFrame({"x": pandas.Series(values, dtype=object)})
    yield "objects", data, {}
    if not is_list:
        plain = pandas.DataFrame({"x": values})
        plain["n"] = range(len(values))
        # If a value is missing, pandas itself rounds large integers.
        kept = [v for v in values if v is not None]
        if list(plain["x"].dropna()) == kept:
            yield "pandas", plain, {}
            if table is not None:
                plain.to_csv(folder / "pandas.csv", index=False)
                options = {"header": True, "quote": '"', "delimiter": ","}
                yield "pandas.csv", folder / "pandas.csv", options
    write = json.dumps if is_list else str
    if any(isinstance(v, float) for v in values):
        write = repr
    for name, delimiter, quoting in (
        ("a.csv", ",", csv.QUOTE_MINIMAL),
        ("all.csv", ",", csv.QUOTE_ALL),
        ("a.tsv", "\t", csv.QUOTE_MINIMAL),
    ):
        text = written(values, write, delimiter=delimiter, quoting=quoting)
        (folder / name).write_text(text, newline="")
        options = {"header": True, "quote": '"', "delimiter": delimiter}
        yield name, folder / name, options
    lines = [
        json.dumps({"x": v, "n": i}, ensure_ascii=bool(i % 2))
        for i, v in enumerate(values)
    ]
    (folder / "a.jsonl").write_text("\n".join(lines))
    yield "jsonl", folder / "a.jsonl", {"format": "jsonl"}
    try:
        examples = [feature(v) for v in values]
    except ValueError:  # an integer beyond int64
        return
    with tf.io.TFRecordWriter(str(folder / "a.tfrecord")) as writer:
        for i, found in enumerate(examples):
            features = {"x": found, "n": feature(i)}
            example = tf.train.Example(
                features=tf.train.Features(feature=features)
            )
            writer.write(example.SerializeToString())
    # A tf.Example stores float32.
    if not any(isinstance(v, float) for v in values):
        yield "tfrecord", folder / "a.tfrecord", {}


def read(data, column, options):
    """Returns the values of each row; None if they are refused."""
    found = []
    try:
        for batch in open_dataset(data, [column], 4, **options):
            x = batch["x"]
            is_ragged = isinstance(x, tf.RaggedTensor)
            found += x.to_list() if is_ragged else x.numpy().tolist()
    except REFUSED:
        return None
    return found


def check(made, values, column, wanted):
    """Checks all sources; `wanted` are the rows, None where one is refused."""
    accepted = 0
    for name, data, options in made:
        read_as = column
        if column.separator and not name.endswith(("csv", "tsv")):
            read_as = Column.sparse("x", encoding=column.encoding)
        found = read(data, read_as, options)
        if found is None:
            continue
        accepted += 1
        assert None not in wanted, (name, values, found)
        np.testing.assert_array_equal(
            np.array(sum(found, []), object),
            np.array(sum(wanted, []), object),
            err_msg=f"{name}: {values}",
        )
        assert list(map(len, found)) == list(map(len, wanted)), name
    return accepted


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("any")


MANY = hypothesis.settings(max_examples=2, deadline=None, database=None)


def bits(i):
    return i if i < 2**63 else i - 2**64


@MANY
@hypothesis.given(rows_of(INTEGERS))
@hypothesis.example([7, None, 8])
@hypothesis.example([2**53 + 1, 1])
@hypothesis.example([2**64 - 1, None])
def test_integers(folder, values):
    made = list(sources(folder, values))
    ids = [[] if v is None else [bits(v)] for v in values]
    assert check(made, values, Column.sparse("x"), ids)
    hashed = [
        [] if v is None else hash_ids("x", [str(v)]).tolist() for v in values
    ]
    column = Column.sparse("x", encoding="hash")
    assert check(made, values, column, hashed)
    numbers = [
        [0.0]
        if v is None
        else [float(np.float32(v))]
        if int(np.float32(v)) == v
        else None
        for v in values
    ]
    accepted = check(made, values, Column.dense("x"), numbers)
    assert (
        accepted or None in numbers or any(abs(v or 0) >= 2**53 for v in values)
    )


@MANY
@hypothesis.given(rows_of(FLOATS))
@hypothesis.example([20200715.0, None])
@hypothesis.example([2.0**53, 0.5])
@hypothesis.example([1e300])
def test_floats(folder, values):
    made = list(sources(folder, values))

    def narrow(v):
        with np.errstate(over="ignore"):
            found = float(np.float32(v))
        return found if abs(v) < 2**24 or found == v else None

    numbers = [[0.0] if v is None else [narrow(v)] for v in values]
    numbers = [None if row == [None] else row for row in numbers]
    check(made, values, Column.dense("x"), numbers)
    # Text shows whether a large float is exact, a float does not.
    ids = [
        []
        if v is None
        else [bits(int(v))]
        if v.is_integer() and -(2**63) <= v < 2**64
        else None
        for v in values
    ]
    check(made, values, Column.sparse("x"), ids)


@MANY
@hypothesis.given(rows_of(TEXTS))
@hypothesis.example(["007", "7", "7.0"])
@hypothesis.example(['"heroes', "a", '"low'])
def test_strings(folder, values):
    made = list(sources(folder, values))

    def one(text):
        text = None if text is None else text.strip(" \t\n\r\v\f")
        if text is None or text in NA_VALUES:
            return []
        return hash_ids("x", [text]).tolist()

    column = Column.sparse("x", encoding="hash", strings_only=True)
    check(made, values, column, [one(v) for v in values])
    label = Column.label(
        "x", positive="yes", negative=["no", "True"], optional=True
    )
    known = {"yes": 1.0, "no": 0.0, "True": 0.0}
    for value in values:
        data = pa.table({"x": pa.array([value], pa.string()), "z": [0.5]})
        try:
            ((_, y, weight),) = open_dataset(
                data, [label, Column.dense("z")], 1
            )
        except REFUSED:
            assert one(value) and value.strip() not in known
            continue
        text = (value or "").strip(" \t\n\r\v\f")
        assert weight.numpy().tolist() == [float(text in known)]
        assert y.numpy().tolist() == [[known.get(text, 0.0)]]


@MANY
@hypothesis.given(lists_of(INTEGERS))
@hypothesis.example([[1], None, [2**64 - 1, 2]])
def test_lists_of_integers(folder, values):
    made = list(sources(folder, values))
    ids = [list(map(bits, v or [])) for v in values]
    column = Column.sparse("x", separator="json")
    check(made, values, column, ids)


@MANY
@hypothesis.given(lists_of(TEXTS))
def test_lists_of_strings(folder, values):
    made = list(sources(folder, values))

    def many(texts):
        stripped = [t.strip(" \t\n\r\v\f") for t in texts or []]
        kept = [t for t in stripped if t not in NA_VALUES]
        return hash_ids("x", kept).tolist() if kept else []

    column = Column.sparse(
        "x", separator="json", encoding="hash", strings_only=True
    )
    check(made, values, column, list(map(many, values)))
