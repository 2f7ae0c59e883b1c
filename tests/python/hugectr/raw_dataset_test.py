"""Compares RawDataset with a reader that uses `struct`."""

import gzip

import hugectr_files as reference
import numpy as np
import pytest
import tensorflow as tf

from lodestar.data import Column, Schema
from lodestar.hugectr.raw_dataset import RawDataset

SPEC = Schema(
    [
        Column.sparse("C1"),
        Column.label("click"),
        Column.dense("I", (2,)),
        Column.sparse("C2"),
    ]
)
# Layout, key type, keys of C1 and C2.
VARIANTS = [
    ("float", "uint32", [1, 1]),
    ("float", "int32", [1, 1]),
    ("int", "uint32", [1, 1]),
    ("int", "int32", [1, 1]),
    ("multi_hot_float", "uint32", [2, 3]),
    ("multi_hot_float", "int64", [1, 4]),
    ("multi_hot_int", "uint32", [3, 1]),
    ("multi_hot_int", "int64", [2, 2]),
]


def samples(begin, end, layout="float", key_type="uint32", nnz=(1, 1)):
    """Returns samples: C1 starts with i, and C2 has the largest keys."""
    top = {"uint32": 2**32 - 1, "int32": -1, "int64": -(2**60)}[key_type]
    scale = 1 if layout.endswith("int") else 0.5
    return [
        (
            [i % 2],
            [i * scale, 7 * i],
            [[i + k for k in range(nnz[0])], [top - k for k in range(nnz[1])]],
        )
        for i in range(begin, end)
    ]


def check(batches, wanted, layout="float"):
    position = 0
    for features, label in batches:
        rows = wanted[position : position + len(label)]
        assert len(rows) == len(label)
        position += len(label)
        assert label.numpy().tolist() == [labels for labels, _, _ in rows]
        dense = np.array([d for _, d, _ in rows], np.float32)
        if layout.endswith("int"):
            dense = np.log(dense + np.float32(1))
        np.testing.assert_allclose(features["I"].numpy(), dense, rtol=2e-7)
        for slot, name in enumerate(("C1", "C2")):
            assert features[name].dtype == tf.int64
            assert features[name].to_list() == [s[slot] for _, _, s in rows]
    assert position == len(wanted)


def options(layout, key_type, nnz):
    multi_hot = layout.startswith("multi_hot")
    return {
        "layout": layout,
        "key_type": key_type,
        "nnz_per_slot": nnz if multi_hot else None,
    }


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("layout, key_type, nnz", VARIANTS)
def test_every_variant(tmp_path, layout, key_type, nnz, threads):
    paths = []
    for number, (begin, end) in enumerate([(0, 1), (1, 4000), (4000, 4003)]):
        path = tmp_path / str(number)
        part = samples(begin, end, layout, key_type, nnz)
        path.write_bytes(reference.make_raw(part, layout, key_type))
        paths.append(path)
    dataset = RawDataset(
        paths,
        SPEC,
        1000,
        num_parallel_files=threads,
        **options(layout, key_type, nnz),
    )
    check(dataset, samples(0, 4003, layout, key_type, nnz), layout)


def test_a_uint64_slot_is_not_the_logarithm(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(reference.make_raw([([1], [9, -4], [[2]])], "int"))
    spec = [
        Column.label("click"),
        Column.dense("n", (2,), dtype="uint64"),
        Column.one_hot("day", 3),
    ]
    ((features, _),) = RawDataset(path, spec, 1, layout="int")
    assert features["n"].numpy().tolist() == [[9, -4]]
    assert features["day"].numpy().tolist() == [[0, 0, 1]]


def test_num_samples(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(reference.make_raw(samples(0, 30_000), "float"))
    for count in (7, 27_001):
        dataset = RawDataset(path, SPEC, 9_000, num_samples=count)
        check(dataset, samples(0, count))


def test_slot_sizes_shift_keys_and_limit_them(tmp_path):
    path = tmp_path / "file"
    keys = [[3], [7]], [[0], [299]]
    path.write_bytes(
        reference.make_raw([([1], [0, 0], schema) for schema in keys], "float")
    )
    dataset = RawDataset(path, SPEC, 2, slot_size_array=[10_000, 300])
    ((features, _),) = dataset
    assert features["C1"].to_list() == [[3], [0]]
    assert features["C2"].to_list() == [[10_007], [10_299]]
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="record 1 at byte 20: slot 'C2': value 1 of 1 is 299, expected an "
        r"integer in \[0, 299\)",
    ):
        list(RawDataset(path, SPEC, 2, slot_size_array=[10_000, 299]))


def test_integers_that_a_float_label_does_not_hold(tmp_path):
    path = tmp_path / "file"
    spec = [Column.label("y", dtype="float", binary=False), Column.sparse("C1")]
    labels = [2**24, -(2**31), 2**24 + 1]
    path.write_bytes(
        reference.make_raw([([y], [], [[5]]) for y in labels], "int")
    )
    iterator = iter(RawDataset(path, spec, 1, layout="int"))
    for wanted in labels[:2]:
        assert next(iterator)[1].numpy().tolist() == [[wanted]]
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="record 2 at byte 16: slot 'y': value 1 of 1 is 16777217, expected "
        "an integer that float32 holds",
    ):
        next(iterator)


@pytest.mark.parametrize(
    "click", [Column.label("click"), Column.label("click", dtype="float")]
)
def test_integers_read_as_floats_are_an_error(tmp_path, click):
    # As a float, 1 is subnormal, and the reader threads flush it to 0.
    path = tmp_path / "file"
    path.write_bytes(reference.make_raw(samples(0, 9, "int"), "int"))
    others = [slot for slot in SPEC if slot.kind != "label"]
    spec = Schema([click, *others])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="record 1 .* is the int32 1 in a float's place, expected 0 or 1",
    ):
        list(RawDataset(path, spec, 4))


def test_sizes_are_checked_before_reading(tmp_path):
    path = tmp_path / "file"
    data = reference.make_raw(samples(0, 9), "float")
    path.write_bytes(data + b"abc")
    message = f"{path}: its size is 183 bytes, expected a multiple of the 20"
    with pytest.raises(ValueError) as error:
        RawDataset(path, SPEC, 4)
    assert message in str(error.value)
    path.write_bytes(data)
    with pytest.raises(
        ValueError, match="180 bytes, 9 samples of 20, expected 10 samples"
    ):
        RawDataset(path, SPEC, 4, num_samples=10)


def test_sizes_of_compressed_files_are_checked_at_their_end(tmp_path):
    path = tmp_path / "file.gz"
    data = reference.make_raw(samples(0, 9), "float")
    cases = [
        (data + b"abc", None, "its size is 183 bytes, expected a multiple of"),
        (data, 10, "180 bytes, 9 samples of 20, expected 10 samples"),
        (b"", None, "the file has no records"),
    ]
    for content, num_samples, message in cases:
        path.write_bytes(gzip.compress(content))
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            list(RawDataset(path, SPEC, 4, num_samples=num_samples))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"layout": "double"}, "`layout`='double' is not in"),
        ({"key_type": "int64"}, "`key_type`='int64' is not in"),
        ({"nnz_per_slot": [1, 1]}, "`layout`='float' has 1 key per slot"),
        ({"num_samples": 0}, "`num_samples` must be an integer of at least 1"),
        ({"batch_size": 0}, "`batch_size` must be an integer of at least 1"),
        (
            {"slot_size_array": [4]},
            "`slot_size_array` must have a size for each",
        ),
        ({"slot_size_array": [4, 0]}, "must have positive integers"),
        ({"slot_size_array": [2**62] * 2}, "must be less than 2"),
        (
            {"schema": [Column.one_hot("day", 7)], "slot_size_array": [7]},
            "'day' is a one-hot slot, which has its own",
        ),
        (
            {"schema": [Column.sparse("w", dtype="float")]},
            "slot 'w' must have keys, got floats",
        ),
        (
            {"schema": [Column.sample_weight("w")]},
            "slot 'w' must be .*, got a sample weight",
        ),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        RawDataset(
            **{"files": "x", "schema": SPEC, "batch_size": 4, **arguments}
        )
