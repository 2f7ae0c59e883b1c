"""Samples are equal after conversion between any two formats that can hold them."""

import os

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from lodestar._data_tool.convert import Target, convert
from lodestar._data_tool.progress import Progress
from lodestar._data_tool.sources import Source
from lodestar._formats import WRITTEN_NAMES
from lodestar.data import Column, Schema
from lodestar.data.files.formats import FORMATS
from lodestar.data.sample_columns import cut, flat, lengths, num_rows

NAMES = [name for name in FORMATS if name in WRITTEN_NAMES]
# Each format is read and written, next to itself and to two others.
PAIRS = [
    (first, NAMES[(i + step) % len(NAMES)])
    for i, first in enumerate(NAMES)
    for step in (0, 1, 3)
]
SUFFIX = {"parquet": ".parquet"}
KEYS = {"norm": {"key_type": "int64"}, "raw": {"layout": "multi_hot_float"}}
# Examples per pair; a Parquet dataset takes long to create.
EXAMPLES = {False: 6, True: 2}
FLOATS = st.floats(width=32, allow_subnormal=True)
WORDS = st.integers(0, 2**64 - 1)


def held(bits):
    """Draws integers that float32, as a label in a batch, holds."""
    numbers = st.floats(-(2.0**bits), 2.0**bits, width=32, exclude_max=True)
    return st.integers(-(2**24), 2**24) | numbers.map(int)


@st.composite
def schema(draw, of):
    """Draws a slot that the formats `of` can hold."""
    binary = {"norm", "raw"} & of
    kinds = ["label", "dense", "ids", "one_hot"]
    if not binary:
        kinds += ["floats", "integers"]
    if not binary and "instant" not in of:
        kinds += ["free"]
    kind = draw(st.sampled_from(kinds))
    used = draw(st.booleans())
    shape = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    match kind:
        case "label":
            dtypes = ["uint64"] if "raw" in of else ["uint64", "float"]
            return lambda name: Column.label(
                name,
                dtype=draw(st.sampled_from(dtypes)),
                binary=draw(st.booleans()),
            )
        case "dense":
            return lambda name: Column.dense(name, shape, used=used)
        case "integers":
            return lambda name: Column.dense(
                name, shape, dtype="uint64", used=used
            )
        case "free":
            return lambda name: Column.dense(name, (-1, 2), used=used)
        case "ids":
            return lambda name: Column.sparse(name, used=used)
        case "floats":
            return lambda name: Column.sparse(name, dtype="float", used=used)
        case _:
            return lambda name: Column.one_hot(name, 5, used=used)


def values(draw, slot, count, of):
    if slot.kind == "one_hot":
        elements = st.integers(0, 4)
    elif slot.kind == "label" and slot.binary:
        elements = st.integers(0, 1)
    elif slot.dtype == "float":
        elements = FLOATS
        if {"csv", "parquet", "tfrecord", "tsv"} & of:
            # NaN is a missing value, and labels are finite.
            elements = st.floats(
                width=32,
                allow_subnormal=True,
                allow_nan=False,
                allow_infinity=slot.kind != "label",
            )
    elif slot.kind == "label":
        elements = held(31 if "raw" in of else 63)
    elif "raw" in of:
        elements = st.integers(0, 2**32 - 1)
    else:
        elements = WORDS
    found = draw(st.lists(elements, min_size=count, max_size=count))
    if slot.dtype == "float":
        return np.array(found, np.float32)
    if slot.kind == "label":
        return np.array(found, np.int64)
    return np.array(found, np.uint64).view(np.int64)


@st.composite
def samples(draw, of):
    """Draws a Schema and columns that all of these formats can hold."""
    made = draw(st.lists(schema(of), min_size=1, max_size=6))
    spec = [make(f"s{i}") for i, make in enumerate(made)]
    # At least one slot is used; another pair has weights.
    spec.append(Column.label("y"))
    if not {"norm", "raw"} & of and draw(st.booleans()):
        spec.append(Column.sparse("ids"))
        spec.append(Column.sparse("w", dtype="float", weights_of="ids"))
    spec = Schema(spec)
    rows = draw(st.integers(1, 5))
    columns = {}
    counts = None
    for slot in spec:
        if slot.num_values is not None:
            column = values(draw, slot, rows * slot.num_values, of)
            shape = slot.shape if slot.kind == "dense" else (1,)
            columns[slot.name] = column.reshape(rows, *shape)
            continue
        if slot.weights_of is None:
            few = st.integers(1 if "instant" in of else 0, 3)
            if "raw" in of:
                few = st.just(1)
            counts = draw(st.lists(few, min_size=rows, max_size=rows))
        counts = np.array(counts)
        splits = np.concatenate([[0], np.cumsum(counts * slot.multiple)])
        columns[slot.name] = (values(draw, slot, int(splits[-1]), of), splits)
    return spec, columns


def options(name):
    return KEYS.get(name, {})


def read(name, path, spec):
    """Returns the samples of a file as dicts of slot name to values."""
    source = Source(FORMATS[name], [path], spec, **options(name))
    found = []
    for columns in source.batches(path):
        found += listed(source.spec, columns)
    return found


def listed(spec, columns):
    """Returns samples as dicts of values that compare bit by bit."""
    rows = []
    for row in range(num_rows(columns)):
        sample = {}
        for slot in spec:
            part = cut(columns, row, row + 1)[slot.name]
            (count,) = lengths(part)
            sample[slot.name] = count, bits(slot, flat(part))
        rows.append(sample)
    return rows


def bits(slot, found):
    if slot.dtype == "float":
        # Zeros of both signs differ; all NaN are equal.
        words = np.asarray(found, np.float32).view(np.uint32)
        return np.where(np.isnan(found), 1, words).tolist()
    return np.asarray(found).astype(np.int64).tolist()


@pytest.mark.parametrize("first, second", PAIRS, ids=lambda name: name)
def test_through_two_formats(first, second, tmp_path_factory):
    @hypothesis.settings(
        max_examples=EXAMPLES["parquet" in (first, second)],
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(samples({first, second}))
    def check(made):
        spec, columns = made
        folder = tmp_path_factory.mktemp("files")
        a = str(folder / "a") + SUFFIX.get(first, "")
        (folder / "b").mkdir()
        b = str(folder / "b" / "b") + SUFFIX.get(second, "")
        with FORMATS[first].make(a, spec, **options(first)) as writer:
            writer.write_batch(columns)
        assert read(first, a, spec) == listed(spec, columns)
        source = Source(FORMATS[first], [a], spec, **options(first))
        with Progress() as progress:
            count = convert(
                source,
                Target(b, FORMATS[second], options(second)),
                progress=progress,
            )
        assert count == num_rows(columns)
        found = Schema.load(b + ".schema.yaml")
        assert found == spec
        assert read(second, b, found) == listed(spec, columns)

    check()


INEXACT = [
    (Column.label("z", binary=False), np.array([2**24, 2**24 + 1])),
    (Column.label("z", binary=False), np.array([1, 2**63], np.uint64)),
    (Column.label("z", dtype="float", binary=False), [0, 2**24 + 1]),
    (Column.dense("z"), np.array([2.0**24, 2.0**24 + 1])),
    (Column.dense("z"), np.array([0.1, 1e39])),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("slot, column", INEXACT)
def test_numbers_that_float32_does_not_hold_are_refused(
    tmp_path, name, slot, column
):
    path = str(tmp_path / "out") + SUFFIX.get(name, "")
    with pytest.raises(ValueError, match="sample 2: slot 'z' must be "):
        with FORMATS[name].make(
            path, Schema([slot]), **options(name)
        ) as writer:
            writer.write_batch({"z": column})
    assert os.listdir(tmp_path) == []


def test_an_empty_row_of_one_csv_column_is_refused(tmp_path):
    spec = Schema([Column.sparse("c")])
    with pytest.raises(ValueError, match="sample 2: slot 'c' is empty"):
        with FORMATS["csv"].make(str(tmp_path / "out"), spec) as writer:
            writer.write_batch({"c": ([7], [0, 1, 1])})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "names, message",
    [
        (["a_0", "a"], "slot 'a': two columns would be called 'a_0'"),
        ([" b"], "slot ' b': no column can have a name with"),
        (["c\0"], "no column can have a name with a NUL"),
    ],
)
def test_names_that_csv_cannot_have(tmp_path, names, message):
    spec = Schema(
        [Column.dense(name, (2,) if name == "a" else (1,)) for name in names]
    )
    with pytest.raises(ValueError, match=message):
        FORMATS["csv"].make(str(tmp_path / "out"), spec)
    assert os.listdir(tmp_path) == []
