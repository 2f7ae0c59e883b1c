"""Compares NormDataset with a reader that uses `struct`."""

import gzip
import struct

import hugectr_files as reference
import numpy as np
import pytest
import tensorflow as tf

from lodestar.data import Column, Schema, SkippedRecords
from lodestar.hugectr.file_list import write_file_list as write_list
from lodestar.hugectr.norm_dataset import NormDataset

SPEC = Schema(
    [
        Column.sparse("C1"),
        Column.label("click"),
        Column.dense("I", (2,)),
        Column.sparse("C2"),
    ]
)
CHECKS = ("none", "sum")
RAM = "ram://norm_dataset_test/"


def samples(begin, end, key_type="uint32"):
    """Returns samples: I = (i, -i / 4), C1 = [i], and i % 4 large keys in C2."""
    top = 2**32 if key_type == "uint32" else -(2**60)
    return [
        ([i % 2], [i, -i / 4], [[i], [top - 1 - k for k in range(i % 4)]])
        for i in range(begin, end)
    ]


def check(batches, wanted):
    """Checks that the batches contain these samples in this order."""
    position = 0
    for features, label in batches:
        rows = wanted[position : position + len(label)]
        assert len(rows) == len(label)
        position += len(label)
        assert label.dtype == tf.float32
        assert label.numpy().tolist() == [labels for labels, _, _ in rows]
        assert features["I"].numpy().tolist() == [dense for _, dense, _ in rows]
        for slot, name in enumerate(("C1", "C2")):
            assert features[name].dtype == tf.int64
            assert features[name].to_list() == [s[slot] for _, _, s in rows]
    assert position == len(wanted)


@pytest.fixture
def files(tmp_path):
    """Writes five files of unequal size, one empty, with mixed check modes."""
    bounds = [0, 7, 8, 30, 30, 50]
    paths = []
    for number in range(5):
        path = tmp_path / f"{number}.data"
        data = reference.make_norm(
            samples(bounds[number], bounds[number + 1]),
            check=CHECKS[number % 2],
            label_dim=1,
            dense_dim=2,
            slot_num=2,
        )
        path.write_bytes(data)
        paths.append(path)
    return paths


def first(dataset):
    return [n for x, _ in dataset for n in x["C1"].values.numpy().tolist()]


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("batch_size", [1, 4, 49, 50, 51])
def test_batches_straddle_files_in_order(files, batch_size, threads):
    dataset = NormDataset(files, SPEC, batch_size, num_parallel_files=threads)
    batches = list(dataset)
    sizes = [len(label) for _, label in batches]
    assert sizes[:-1] == [batch_size] * (len(sizes) - 1)
    check(batches, samples(0, 50))


@pytest.mark.parametrize("data", [reference.NORM_NONE, reference.NORM_SUM])
def test_worked_examples(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)
    spec = Schema(
        [
            Column.label("click"),
            Column.dense("I", (2,)),
            Column.sparse("C1"),
            Column.sparse("C2"),
        ]
    )
    check(NormDataset(path, spec, 2), reference.SAMPLES)


@pytest.mark.parametrize("key_type", ["uint32", "int64"])
@pytest.mark.parametrize("mode", CHECKS)
def test_many_records(tmp_path, mode, key_type):
    path = tmp_path / "file"
    wanted = samples(0, 9_000, key_type)
    path.write_bytes(reference.make_norm(wanted, key_type, mode))
    dataset = NormDataset(path, SPEC, 2000, key_type=key_type, check=mode)
    check(dataset, wanted)


def test_one_hot_integers_and_slots_not_used(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(
        reference.make_norm(
            [
                ([3, 1], [7, -8, 0.5], [[4, 5], [2]]),
                ([-1, 0], [0, 1, 2], [[], [0]]),
            ]
        )
    )
    spec = Schema(
        [
            Column.one_hot("day", 3),
            Column.dense("n", (2,), dtype="uint64"),
            Column.dense("x"),
            Column.label("rank", binary=False),
            Column.label("click", dtype="float"),
        ]
    )
    spec = Schema([Column.sparse("C1", used=False), *spec])
    ((features, labels),) = NormDataset(path, spec, 2)
    assert set(features) == {"day", "n", "x"}
    assert features["day"].numpy().tolist() == [[0, 0, 1], [1, 0, 0]]
    assert features["n"].dtype == tf.int64
    assert features["n"].numpy().tolist() == [[7, -8], [0, 1]]
    assert features["x"].numpy().tolist() == [[0.5], [2]]
    assert labels["rank"].numpy().tolist() == [[3], [-1]]
    assert labels["click"].numpy().tolist() == [[1], [0]]


def test_in_a_function(files):
    @tf.function
    def total():
        n = tf.constant(0, tf.int64)
        for features, _ in NormDataset(files, SPEC, 8):
            n += tf.reduce_sum(features["C1"].values)
        return n

    assert total() == sum(range(50))


def test_gzip_other_schemes_and_file_lists(tmp_path):
    data = reference.make_norm(samples(0, 20), check="sum")
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(data))
    tf.io.gfile.makedirs(RAM)
    with tf.io.gfile.GFile(RAM + "file", "wb") as file:
        file.write(data)
    write_list(RAM + "list.txt", [packed, RAM + "file"])
    for files in ([packed, RAM + "file"], RAM + "list.txt"):
        check(NormDataset(files, SPEC, 16), 2 * samples(0, 20))
    with pytest.raises(ValueError, match="list.txt:2: the file"):
        tf.io.gfile.rename(RAM + "file", RAM + "other")
        write_list(tmp_path / "list.txt", [RAM + "file"])
        NormDataset(tmp_path / "list.txt", SPEC, 16)


@pytest.mark.parametrize("batch_size", [7, 16])
def test_a_saved_iterator_resumes_at_the_next_sample(
    files, tmp_path, batch_size
):
    dataset = NormDataset(files, SPEC, batch_size, prefetch=0)
    wanted = [x["C1"].to_list() for x, _ in dataset]
    for taken in range(len(wanted) + 1):
        iterator = iter(dataset)
        for _ in range(taken):
            next(iterator)
        saved = tf.train.Checkpoint(it=iterator).save(str(tmp_path / "saved"))
        again = iter(dataset)
        tf.train.Checkpoint(it=again).restore(saved).assert_consumed()
        assert [x["C1"].to_list() for x, _ in again] == wanted[taken:]


def test_shards_shuffling_and_epochs(files):
    parts = [
        first(NormDataset(files, SPEC, 4, shard=(7, index)))
        for index in range(7)
    ]
    assert sorted(sum(parts, [])) == list(range(50))
    shuffled = first(
        NormDataset(
            files,
            SPEC,
            8,
            shuffle_files=True,
            shuffle=20,
            repeat=2,
            seed=3,
        )
    )
    assert sorted(shuffled[:50]) == sorted(shuffled[50:]) == list(range(50))
    assert shuffled[:50] != shuffled[50:]


# Changes to a file of 3 samples, and their errors.
BAD = {
    "empty": (b"", "{path}: not a Norm file: it is empty"),
    "text": (
        b"1 1 2 0.5 1.0\n",
        "{path}: not a Norm file: begins with 31 20 31 20 32 20 30 2e 35 20 31 "
        "2e, expected eight zero bytes",
    ),
    "header": (
        reference.make_norm(samples(0, 3))[:50],
        "{path}: the header has 50 bytes, expected 64",
    ),
    "label_dim": (
        reference.make_norm(samples(0, 3), label_dim=2),
        "{path}: header: label_dim is 2, expected 1 for the slots",
    ),
    "slot_num": (
        reference.make_norm(samples(0, 3), slot_num=26),
        "{path}: header: slot_num is 26, expected 2",
    ),
    "records": (
        reference.make_norm(samples(0, 3), number_of_records=-5),
        "{path}: header: number_of_records is -5, expected 0 to",
    ),
    "too few": (
        reference.make_norm(samples(0, 3), number_of_records=4),
        "{path}: the file ends at byte 148 after 3 records, expected 4",
    ),
    "too many": (
        reference.make_norm(samples(0, 3), number_of_records=2),
        "{path}: found 32 bytes after the last of 2 records, at byte 116, "
        "expected the end",
    ),
    "trailing": (
        reference.make_norm(samples(0, 3), check="sum") + b"\n",
        "{path}: found 1 bytes after the last of 3 records, at byte 168, ",
    ),
    "cut": (
        reference.make_norm(samples(0, 3))[:-6],
        "{path}: record 2 at byte 116: slot 'C2': nnz is 2, expected 0 to 0 because 2 "
        "bytes are left",
    ),
    "nnz": (
        reference.make_norm(samples(0, 2), number_of_records=3)
        + struct.pack("<3fi", 1, 0, 0, -7),
        "{path}: record 2 at byte 116: slot 'C1': nnz is -7, expected 0 to "
        "16777216; check the key type",
    ),
    "checksum": (
        reference.make_norm(samples(0, 3), check="sum")[:-1] + b"\x00",
        "{path}: record 2 at byte 131: checksum is 0, expected ",
    ),
    "length": (
        reference.make_norm(samples(0, 2), check="sum", number_of_records=3)
        + struct.pack("<i3f2i1x", 7, 1, 0, 0, 0, 0),
        "{path}: record 2 at byte 131: length is 7, expected 20 to 67108864",
    ),
    "label": (
        reference.make_norm([*samples(0, 2), ([0.5], [0, 0], [[], []])]),
        "{path}: record 2 at byte 116: slot 'click': value 1 of 1 is 0.5, "
        "expected 0 or 1",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_errors_name_path_record_byte_found_and_expected(tmp_path, kind):
    path = tmp_path / "bad.data"
    data, message = BAD[kind]
    path.write_bytes(data)
    iterator = iter(NormDataset(path, SPEC, 1))
    taken = 0
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        while True:
            next(iterator)
            taken += 1
    assert message.format(path=path) in error.value.message
    if "record 2" in message:
        assert taken == 2


def test_a_wrong_key_type_is_an_error(tmp_path):
    path = tmp_path / "file"
    for mode in CHECKS:
        path.write_bytes(reference.make_norm(samples(0, 50), check=mode))
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="check the key type"
        ):
            list(NormDataset(path, SPEC, 8, key_type="int64"))


def test_the_expected_check_mode(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(reference.NORM_NONE)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="file: the header declares no checksums, expected checksums",
    ):
        list(NormDataset(path, SPEC, 8, check="sum"))


def test_skipped_records_are_counted_and_named(tmp_path):
    bad = ([7.0], [0, 0], [[999], []])
    good = samples(0, 6)
    mixed = [*good[:2], bad, *good[2:5], bad, good[5]]
    for mode in CHECKS:
        path = tmp_path / mode
        path.write_bytes(reference.make_norm(mixed, check=mode))
        skipped = SkippedRecords()
        dataset = NormDataset(path, SPEC, 4, on_error="skip", skipped=skipped)
        check(dataset, good)
        assert skipped.count == 2
        assert f"{path}: record 2 at byte " in skipped.messages[0]


def test_skipping_continues_with_the_next_file(tmp_path):
    good = tmp_path / "good"
    good.write_bytes(reference.make_norm(samples(2, 9)))
    lost = tmp_path / "lost"
    lost.write_bytes(BAD["nnz"][0] + bytes(1000))
    skipped = SkippedRecords()
    dataset = NormDataset(
        [lost, good], SPEC, 4, on_error="skip", skipped=skipped
    )
    check(dataset, samples(0, 9))
    assert skipped.count == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"key_type": "int32"}, "`key_type`='int32' is not in"),
        ({"check": "crc"}, "`check`='crc' is not in"),
        ({"batch_size": 0}, "`batch_size` must be an integer of at least 1"),
        ({"files": []}, "`files` must have at least"),
        (
            {"schema": [Column.sparse("w", dtype="float")]},
            "slot 'w' must have keys, got floats",
        ),
        (
            {"schema": [Column.sample_weight("w")]},
            "slot 'w' must be .*, got a sample weight",
        ),
        (
            {"schema": [Column.dense("I", (-1, 2))]},
            r"slot 'I' must have a fixed .* shape \[-1, 2\]",
        ),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        NormDataset(
            **{"files": "x", "schema": SPEC, "batch_size": 4, **arguments}
        )


def test_a_missing_file(tmp_path):
    with pytest.raises(tf.errors.NotFoundError, match="absent"):
        list(NormDataset(tmp_path / "absent", SPEC, 4))


def test_feeds_lod_and_csr(files):
    features, _ = next(iter(NormDataset(files, SPEC, 4, sparse="csr")))
    np.testing.assert_array_equal(
        features["csr"]["row_offsets"], [0, 1, 1, 2, 3, 4, 6, 7, 10]
    )
