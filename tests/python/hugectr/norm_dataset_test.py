"""Compares NormDataset with a reader that uses `struct`."""

import struct

import hugectr_files as reference
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


def test_file_lists(tmp_path):
    paths = []
    for mode, data in (
        ("none", samples(0, 7)),
        ("sum", []),
        ("sum", samples(7, 20)),
    ):
        paths.append(tmp_path / str(len(paths)))
        header = {"label_dim": 1, "dense_dim": 2, "slot_num": 2}
        paths[-1].write_bytes(reference.make_norm(data, check=mode, **header))
    tf.io.gfile.makedirs(RAM)
    write_list(RAM + "list.txt", paths)
    check(NormDataset(RAM + "list.txt", SPEC, 16), samples(0, 20))
    write_list(tmp_path / "list.txt", paths)
    paths[1].unlink()
    with pytest.raises(ValueError, match="list.txt:3: the file"):
        NormDataset(tmp_path / "list.txt", SPEC, 16)


# Changes to a file of 3 samples, and their errors. The other errors are in
# tests/core/records/norm_format_test.cc.
BAD = {
    "text": (b"1 1 2 0.5 1.0\n", "{path}: not a Norm file: begins with 31 20"),
    "label_dim": (
        reference.make_norm(samples(0, 3), label_dim=2),
        "{path}: header: label_dim is 2, expected 1 for the slots",
    ),
    "too few": (
        reference.make_norm(samples(0, 3), number_of_records=4),
        "{path}: the file ends at byte 148 after 3 records, expected 4",
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
