"""lodestar.data.ExampleDataset and ExampleWriter: TFRecord of tf.Example."""

import gzip

import numpy as np
import pytest
import tensorflow as tf
from example_cases import records

from lodestar import hash_ids
from lodestar._errors import describe_error
from lodestar.data import (
    Column,
    DataError,
    Schema,
    SkippedRecords,
    open_dataset,
)
from lodestar.data.example import example_records
from lodestar.data.example.example_dataset import ExampleDataset
from lodestar.data.example.example_writer import ExampleWriter
from lodestar.data.files.find_format import one_format
from lodestar.paddle.multislot_dataset import MultiSlotDataset
from lodestar.paddle.multislot_writer import MultiSlotWriter

SPEC = Schema(
    [
        Column.label("y"),
        Column.label("rating", dtype="float", binary=False),
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


def write(path, rows=ROWS, writer=ExampleWriter):
    with writer(path, SPEC) as out:
        for i in range(rows):
            ids = [2**64 - 1 - i, i][: i % 3]
            out.write(
                {
                    "y": i % 2,
                    "rating": i / 2,
                    "x": [i / 4, -i],
                    "free": [[1, 2], [3, i]],
                    "n": i,
                    "C": ids,
                    "w": [0.5] * len(ids),
                    "day": i % 7,
                    "unused": [i],
                }
            )
    return path


def flat(dataset):
    return [tf.nest.flatten(x, expand_composites=True) for x in dataset]


def order(dataset):
    return [i for x, _ in dataset for i in x["n"].numpy().ravel().tolist()]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"drop_remainder": True},
        {"sparse": "lod"},
        {"sparse": "csr"},
        {"as_columns": True},
        {"repeat": 2, "prefetch": 0},
    ],
)
def test_elements_are_those_of_multislot_text(tmp_path, options):
    files, text = [], []
    for name, rows in (("a", 9), ("b.gz", 4)):
        files.append(write(tmp_path / f"tfrecord-{name}", rows))
        text.append(write(tmp_path / f"text-{name}", rows, MultiSlotWriter))
    found = ExampleDataset(files, SPEC, 4, **options)
    wanted = MultiSlotDataset(text, SPEC, 4, **options)
    assert found.element_spec == wanted.element_spec
    for got, want in zip(flat(found), flat(wanted), strict=True):
        for a, b in zip(got, want, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def test_the_writer_s_file_is_tensorflow_s(tmp_path):
    path = write(tmp_path / "a.tfrecord.gz", 5000)
    found = tf.data.TFRecordDataset(str(path), compression_type="GZIP")
    examples = [tf.train.Example.FromString(r.numpy()) for r in found]
    assert len(examples) == 5000
    features = examples[5].features.feature
    assert features["C"].int64_list.value == [-6, 5]
    assert features["x"].float_list.value == [1.25, -5.0]
    assert sorted(features) == sorted(SPEC.names())
    with gzip.open(path) as file:
        assert len(file.read(100)) == 100


def test_bytes_are_hashed(tmp_path):
    path = records(
        tmp_path / "a.tfrecord",
        {"user": 7},
        {"city": ["Oslo", "Łódź"], "user": [8, 9]},
        {"city": b"Oslo"},
    )
    schema = [
        Column.sparse("city", encoding="hash"),
        Column.sparse("user"),
        Column.sparse("none"),
    ]
    (features,) = ExampleDataset(path, schema, 4)
    ids = hash_ids(["Oslo", "Łódź"], column="city").numpy().tolist()
    assert features["city"].to_list() == [[], ids, ids[:1]]
    assert features["user"].to_list() == [[7], [8, 9], []]
    assert features["none"].to_list() == [[], [], []]


def test_files_without_records(tmp_path):
    empty = records(tmp_path / "0.tfrecord")
    schema = [Column.sparse("city", encoding="hash")]
    with pytest.raises(DataError, match="0.tfrecord: no file of 1 has a rec"):
        ExampleDataset(empty, schema, 4)
    files = [empty, records(tmp_path / "1.tfrecord", {"city": "Oslo"})]
    (features,) = ExampleDataset(files, schema, 4)
    assert features["city"].to_list() == [
        hash_ids(["Oslo"], column="city").numpy().tolist()
    ]


def test_bad_records_before_string_features_are_known(tmp_path):
    path = records(
        tmp_path / "a.tfrecord", b"\xff\xffno proto", {"city": "Oslo"}
    )
    skipped = SkippedRecords()
    (features,) = ExampleDataset(
        path,
        [Column.sparse("city", encoding="hash")],
        4,
        on_error="skip",
        skipped=skipped,
    )
    assert features["city"].to_list() == [
        hash_ids(["Oslo"], column="city").numpy().tolist()
    ]
    assert skipped.count == 1


@pytest.mark.parametrize("options", [{}, {"drop_remainder": True}])
@pytest.mark.parametrize(
    "order", [{}, {"shuffle_rows": 9}, {"shuffle_files": True}, {"repeat": 2}]
)
def test_the_number_of_batches_is_known(tmp_path, options, order):
    files = [write(tmp_path / f"{i}.tfrecord", 7 + i) for i in range(2)]
    files.append(records(tmp_path / "empty.tfrecord"))
    dataset = ExampleDataset(files, SPEC, 4, **options, **order)
    assert len(dataset) == len(list(dataset))
    for shard in (2, 0), (2, 1), (5, 3):
        part = ExampleDataset(files, SPEC, 2, shard=shard, **options, **order)
        assert len(part) == len(list(part))


def test_the_number_of_batches_is_not_known(tmp_path, monkeypatch):
    path = write(tmp_path / "a.tfrecord", 5)
    unknown = tf.data.UNKNOWN_CARDINALITY

    def known(files, **options):
        return ExampleDataset(files, SPEC, 4, **options).cardinality()

    assert known(path) == 2
    assert known(f"file://{path}") == 2
    assert known(path, repeat=None) == tf.data.INFINITE_CARDINALITY
    assert known(path, on_error="skip") == unknown
    assert known([path, write(tmp_path / "b.tfrecord.gz", 5)]) == unknown
    data = path.read_bytes()
    for damaged in data[:-1], data + b"\0" * 3, data + b"\xff" * 16:
        (tmp_path / "damaged").write_bytes(damaged)
        assert known(tmp_path / "damaged") == unknown
        with pytest.raises(tf.errors.DataLossError):
            list(ExampleDataset(tmp_path / "damaged", SPEC, 4))
    monkeypatch.setattr(example_records, "_MOST_COUNTED_BYTES", len(data) - 1)
    assert known(path) == unknown


def test_orders(tmp_path):
    files = [write(tmp_path / f"{i}.tfrecord") for i in range(2)]
    assert order(ExampleDataset(files, SPEC, 8)) == 2 * list(range(ROWS))
    for options in (
        {"shuffle_rows": 20, "seed": 1},
        {"deterministic": False},
    ):
        found = order(ExampleDataset(files, SPEC, 8, **options))
        assert sorted(found) == sorted(2 * list(range(ROWS)))
    parts = [
        order(ExampleDataset(files[0], SPEC, 8, shard=(3, i))) for i in range(3)
    ]
    assert parts == [list(range(ROWS))[i::3] for i in range(3)]


def test_a_saved_iterator_resumes(tmp_path):
    path = write(tmp_path / "a.tfrecord")

    def opened():
        return iter(ExampleDataset(path, SPEC, 8))

    iterator = opened()
    next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "c"))
    rest = order(iterator)
    again = opened()
    tf.train.Checkpoint(iterator=again).restore(saved)
    assert order(again) == rest
    assert len(rest) == ROWS - 8


GOOD = {"y": 1, "f": [0.5, 1.0], "c": [1], "w": [0.5], "d": 3}
SLOTS = [
    Column.label("y"),
    Column.dense("f", (-1, 2)),
    Column.sparse("c"),
    Column.sparse("w", dtype="float", weights_of="c"),
    Column.one_hot("d", 7),
]
BAD = [
    ({"y": 2}, "record 1: column y: found 2, expected 0 or 1"),
    ({"y": 0.5}, "record 1, Key: y.*Data types don't match"),
    ({"y": [1, 1]}, "record 1, Key: y.*Number of int64 values"),
    ({"y": None}, "record 1, Feature: y .* is required"),
    (
        {"f": [0.5]},
        "record 1: column f: found 1 values, expected a multiple of 2, as",
    ),
    (
        {"c": [1, 2]},
        "record 1: column w: found 1 weights, expected one for each id of co",
    ),
    ({"c": b"x"}, "record 1, Key: c.*Data types don't match"),
    ({"d": 7}, "record 1: column d: found 7, expected 0 to 6"),
]


@pytest.mark.parametrize(("change", "text"), BAD)
def test_errors_name_file_and_record(tmp_path, change, text):
    bad = {k: v for k, v in {**GOOD, **change}.items() if v is not None}
    path = records(tmp_path / "a.tfrecord", GOOD, bad)
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(ExampleDataset(path, SLOTS, 4))
    said = describe_error(error.value)
    assert said.removeprefix("Name: ").startswith(f"{path}: record 1")
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        list(ExampleDataset(path, SLOTS, 4))


def test_bad_records_are_skipped(tmp_path):
    bad = [
        {k: v for k, v in {**GOOD, **change}.items() if v is not None}
        for change, _ in BAD
    ]
    path = records(
        tmp_path / "a.tfrecord", GOOD, *bad, b"\xff\xffno proto", GOOD
    )
    skipped = SkippedRecords()
    ((_, label),) = ExampleDataset(
        path, SLOTS, 4, on_error="skip", skipped=skipped
    )
    assert len(label) == 2
    assert skipped.count == len(BAD) + 1
    for number, message in enumerate(skipped.messages, 1):
        assert f"{path}: record {number}" in message


@pytest.mark.parametrize(
    "record", [b"\xff\xff\xff", b"\n\x05\n\x03\xff\xff\xff", b"text"]
)
def test_an_invalid_example_is_named(tmp_path, record):
    # Opening a dataset reads the first records.
    path = records(tmp_path / "a.tfrecord", *[GOOD] * 1100, record)
    dataset = ExampleDataset(path, SLOTS, 550)
    iterator = iter(dataset)
    next(iterator)
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(iterator)
    assert describe_error(error.value).startswith(
        f"{path}: record 1100: is not a tf.Example"
    )


def test_damaged_and_other_files(tmp_path):
    path = write(tmp_path / "a.tfrecord")
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    path.write_bytes(data)
    with pytest.raises(tf.errors.DataLossError, match="checksum is wrong"):
        list(ExampleDataset(path, SPEC, 8))
    with pytest.raises(DataError, match="missing: No such file"):
        ExampleDataset(tmp_path / "missing", SPEC, 8)
    other = records(tmp_path / "b.tfrecord", b"\xff\xffno proto")
    with pytest.raises(DataError, match="record 0: is not a tf.Example"):
        ExampleDataset(other, SPEC, 8)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"open_command": ["cat", "{path}"]}, "`open_command` is not an opt"),
        ({"batch_size": 0}, "`batch_size`"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, options, text):
    path = records(tmp_path / "a.tfrecord", GOOD)
    with pytest.raises(ValueError, match=text):
        ExampleDataset(path, SLOTS, **{"batch_size": 2, **options})


def test_the_format_is_found(tmp_path):
    path = write(tmp_path / "train-00000-of-00001")
    assert one_format([str(path)]) == "tfrecord"
    assert order(open_dataset(path, SPEC, 8)) == list(range(ROWS))


def test_inside_a_function(tmp_path):
    path = str(write(tmp_path / "a.tfrecord"))

    @tf.function
    def total():
        result = tf.constant(0, tf.int64)
        for features, _ in ExampleDataset(path, SPEC, 8):
            result += tf.reduce_sum(features["n"])
        return result

    assert total().numpy() == sum(range(ROWS))
