"""open_dataset: detects the format of files and reads them by one schema."""

import inspect

import numpy as np
import pandas
import pytest
import tensorflow as tf

from lodestar.data import (
    Column,
    DataError,
    Schema,
    open_dataset,
    open_writer,
)
from lodestar.data.arrow.parquet_writer import ParquetWriter
from lodestar.data.files.find_format import one_format
from lodestar.data.files.formats import FORMATS
from lodestar.data.record_dataset import READ_OPTIONS
from lodestar.hugectr.norm_writer import NormWriter
from lodestar.hugectr.raw_writer import RawWriter
from lodestar.paddle import reader
from lodestar.paddle.instant_writer import InstantWriter
from lodestar.paddle.multislot_writer import MultiSlotWriter

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
    "instant": InstantWriter,
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
    assert open_dataset(path).schema == SPEC


def test_a_pattern_expands_to_its_files(tmp_path):
    for i in (2, 0, 1):
        (tmp_path / f"day-{i}.csv").write_text(f"user_id\n{i}\n")
    ids = {"categorical": ["user_id"]}
    dataset = open_dataset(tmp_path / "day-*.csv", **ids)
    assert values(((x, None) for x in dataset), "user_id") == [0, 1, 2]
    (tmp_path / "a[1].csv").write_text("user_id\n7\n")  # a name like a pattern
    dataset = open_dataset(tmp_path / "a[1].csv", **ids)
    assert values(((x, None) for x in dataset), "user_id") == [7]
    with pytest.raises(DataError, match=r"no-\*: no file matches"):
        open_dataset(tmp_path / "no-*")


def test_errors(tmp_path):
    norm, text = write(tmp_path, "norm"), write(tmp_path, "multislot")
    with pytest.raises(DataError, match="is multislot, but .* is norm"):
        open_dataset([norm, text], SPEC, 10)
    with pytest.raises(DataError, match="do not describe their columns"):
        open_dataset(norm, batch_size=10)
    with pytest.raises(
        DataError, match="`format` must be one of .*, got 'avro'"
    ):
        open_dataset(norm, SPEC, 10, format="avro")
    with pytest.raises(
        DataError, match="is norm, but `layout` is an option of"
    ):
        open_dataset(norm, SPEC, layout="int")


OPTIONS = {
    "multislot": {
        "mode": "file_instant",
        "pipe_command": ["cat"],
        "ins_id": False,
        "parse_content": False,
        "parse_logkey": False,
        "weights": None,
    },
    "instant": {},
    "norm": {"key_type": "uint32", "check": "sum"},
    "raw": {
        "num_samples": ROWS,
        "layout": "float",
        "key_type": "uint32",
        "nnz_per_slot": None,
        "slot_size_array": [ROWS, 7 * ROWS],
    },
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_of_a_format_is_reachable(tmp_path, name):
    def own(function):
        parameters = inspect.signature(function).parameters.values()
        return {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}

    found = FORMATS[name]
    assert own(found.dataset) == OPTIONS[name].keys()
    assert own(found.make) - {"header_size"} == set(found.writes)
    path = write(tmp_path, name)
    dataset = open_dataset(path, SPEC, ROWS, format=name, **OPTIONS[name])
    ((features, _),) = dataset
    np.testing.assert_array_equal(features["a"].values, np.arange(ROWS))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_path_in_a_function(tmp_path, name):
    paths = [str(write(tmp_path, name, stem)) for stem in "ab"]
    dataset = tf.data.Dataset.from_tensor_slices(paths).interleave(
        lambda path: open_dataset(path, SPEC, ROWS, format=name)
    )
    assert values(dataset, "a") == [*range(ROWS)] * 2
    for options in ({"format": name}, {"schema": SPEC}):
        with pytest.raises(
            ValueError, match="A tensor of paths needs `schema` and `format`"
        ):
            tf.data.Dataset.from_tensor_slices(paths).interleave(
                lambda path, options=options: open_dataset(path, **options)
            )
    with pytest.raises(
        ValueError, match="A tensor of paths is not an option of csv"
    ):
        tf.data.Dataset.from_tensor_slices(paths).interleave(
            lambda path: open_dataset(path, SPEC, format="csv")
        )


def test_an_option_that_no_reader_has_is_named(tmp_path):
    path = write(tmp_path, "parquet")
    with pytest.raises(
        TypeError,
        match="no argument `labels`. Did you mean 'label'. Its arguments are "
        "data, .*, split, .*drop_remainder, .*, open_command, mode, ",
    ):
        open_dataset(path, batch_size=4, labels="y")
    with pytest.raises(TypeError, match="`sed`. Did you mean 'seed'"):
        open_dataset(write(tmp_path, "multislot"), SPEC, 4, sed=1)


def test_the_defaults_are_those_of_the_readers():
    parameters = inspect.signature(open_dataset).parameters
    for name, default in READ_OPTIONS.items():
        assert parameters[name].default == default
    for form in FORMATS.values():
        for name in (*form.reads, *form.writes):
            assert name in {
                **parameters,
                **inspect.signature(open_writer).parameters,
            }


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
        assert dataset.schema["rating"].binary == is_binary
    copy = tmp_path / "copy.txt"
    with open_writer(copy, dataset.schema) as writer:
        for features, label in reader(
            open_dataset(frame, dataset.schema), batches=True
        )():
            writer.write_batch({**features, "rating": label})
    ((_, label),) = open_dataset(copy, batch_size=3)
    np.testing.assert_array_equal(label, wanted)
