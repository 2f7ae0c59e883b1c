"""open_dataset and ExampleWriter: TFRecord files of tf.Examples."""

import gzip

import pytest
import tensorflow as tf
from example_cases import open_examples, records
from row_cases import set_block_bytes

from lodestar import hash_ids
from lodestar._errors import describe_error
from lodestar.data import (
    Column,
    DataError,
    Schema,
    SkippedRecords,
)
from lodestar.data.arrow.example_writer import ExampleWriter

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


def write(path, rows=ROWS):
    with ExampleWriter(path, SPEC) as out:
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


def order(dataset):
    return [i for x, _ in dataset for i in x["n"].numpy().ravel().tolist()]


def test_the_writer_s_file_is_tensorflow_s(tmp_path):
    path = write(tmp_path / "a.tfrecord.gz", 1100)
    found = tf.data.TFRecordDataset(str(path), compression_type="GZIP")
    examples = [tf.train.Example.FromString(r.numpy()) for r in found]
    assert len(examples) == 1100
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
    (features,) = open_examples(path, schema, 4)
    ids = hash_ids(["Oslo", "Łódź"], column="city").numpy().tolist()
    assert features["city"].to_list() == [[], ids, ids[:1]]
    assert features["user"].to_list() == [[7], [8, 9], []]
    assert features["none"].to_list() == [[], [], []]


def test_numbers_of_batches_of_other_files(tmp_path):
    path = write(tmp_path / "a.tfrecord", 5)
    unknown = tf.data.UNKNOWN_CARDINALITY

    def known(files, **options):
        return open_examples(files, SPEC, 4, **options).cardinality()

    assert known(path) == 2
    assert known(f"file://{path}") == 2
    assert known(path, repeat=None) == tf.data.INFINITE_CARDINALITY
    assert known(path, on_error="skip") == unknown
    assert known([path, write(tmp_path / "b.tfrecord.gz", 5)]) == 3
    data = path.read_bytes()
    for damaged in data[:-1], data + b"\0" * 3, data + b"\xff" * 16:
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(DataError, match="damaged: record [45] at byte"):
            known(tmp_path / "damaged")


def test_a_saved_iterator_resumes_within_a_compressed_file(
    tmp_path, monkeypatch
):
    set_block_bytes(monkeypatch, 1)
    rows = 2500  # several blocks
    path = write(tmp_path / "a.tfrecord.gz", rows)

    def opened():
        return iter(open_examples(path, SPEC, 500, shuffle=20, seed=1))

    iterator = opened()
    first = order([next(iterator)])
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "c"))
    rest = order(iterator)
    again = opened()
    tf.train.Checkpoint(iterator=again).restore(saved)
    assert order(again) == rest
    assert sorted(first + rest) == list(range(rows))


GOOD = {"y": 1, "f": [0.5, 1.0], "c": [1], "w": [0.5], "d": 3}
SLOTS = [
    Column.label("y"),
    Column.dense("f", (-1, 2)),
    Column.sparse("c"),
    Column.sparse("w", dtype="float", weights_of="c"),
    Column.one_hot("d", 7),
]
BAD = [
    ({"y": 2}, "column 'y': found 2, expected 0 or 1"),
    (
        {"y": 0.5},
        "column 'y': found a float_list, expected an int64_list as in",
    ),
    ({"y": [1, 1]}, "column 'y': found 2 values, expected 1"),
    ({"y": None}, "column 'y': found a missing value, which it must not have"),
    ({"f": [0.5]}, "column 'f': found 1 values, expected a multiple of 2"),
    ({"c": [1, 2]}, "column 'w': found 1 weights, expected 2, one for each va"),
    ({"c": b"x"}, "column 'c': found a bytes_list, expected an int64_list as"),
    ({"d": 7}, "column 'd': found 7, expected an integer in [0, 6]"),
    ({"d": [1, 2]}, "column 'd': found 2 values, expected 1"),
]


@pytest.mark.parametrize(("change", "text"), BAD)
def test_errors_name_file_and_record(tmp_path, change, text):
    bad = {k: v for k, v in {**GOOD, **change}.items() if v is not None}
    path = records(tmp_path / "a.tfrecord", GOOD, bad)
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(open_examples(path, SLOTS, 4))
    said = describe_error(error.value)
    assert said.startswith(f"{path}: record 1: {text}")


def test_bad_records_are_skipped(tmp_path):
    bad = [
        {k: v for k, v in {**GOOD, **change}.items() if v is not None}
        for change, _ in BAD
    ]
    path = records(
        tmp_path / "a.tfrecord", GOOD, *bad, b"\xff\xffno proto", GOOD
    )
    skipped = SkippedRecords()
    ((_, label),) = open_examples(
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
    path = records(tmp_path / "a.tfrecord", *[GOOD] * 1100, record)
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(open_examples(path, SLOTS, 550))
    assert describe_error(error.value).startswith(
        f"{path}: record 1100: is not a tf.Example"
    )


def test_damaged_and_other_files(tmp_path):
    path = write(tmp_path / "a.tfrecord")
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    path.write_bytes(data)
    text = r"a.tfrecord: record 49: at byte \d+: its checksum is wrong"
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        list(open_examples(path, SPEC, 8))
    skipped = SkippedRecords()
    dataset = open_examples(path, SPEC, 8, on_error="skip", skipped=skipped)
    assert order(dataset) == list(range(49))
    assert skipped.count == 1
    with pytest.raises(DataError, match="missing: No such file"):
        open_examples(tmp_path / "missing", SPEC, 8)
    other = records(tmp_path / "b.tfrecord", b"\xff\xffno proto")
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="record 0: is not a tf.Example"
    ):
        list(open_examples(other, SPEC, 8))
