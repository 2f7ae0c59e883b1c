"""NormWriter: exact bytes, checks, and no partial files."""

import numpy as np
import pytest
import tensorflow as tf
from hugectr_files import (
    NORM_NONE,
    NORM_SUM,
    SAMPLES,
    make_norm,
    norm_sample,
    read_norm,
)

from lodestar.data import Column, Schema
from lodestar.hugectr import norm_writer
from lodestar.hugectr.norm_writer import NormWriter

SPEC = Schema(
    [
        Column.label("y"),
        Column.dense("d", (2,)),
        Column.sparse("a"),
        Column.sparse("b"),
    ]
)
SAMPLE = {"y": 1, "d": [0.5, -2.0], "a": 7, "b": [300, 301]}
BYTES = {"none": NORM_NONE, "sum": NORM_SUM}
# Not in the order of a record.
MIXED = Schema(
    [
        Column.sparse("a"),
        Column.dense("d", (2, 2)),
        Column.label("y"),
        Column.one_hot("o", 9),
        Column.label("z", dtype="float", binary=False),
        Column.dense("n", (), dtype="uint64"),
        Column.sparse("b", used=False),
    ]
)


def written(tmp_path, spec, columns, **options):
    with NormWriter(tmp_path / "file", spec, **options) as writer:
        writer.write_batch(columns)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    return (tmp_path / "file").read_bytes()


@pytest.mark.parametrize("check", ["none", "sum"])
def test_worked_example(tmp_path, check):
    options = {} if check == "sum" else {"check": check}  # the default
    with NormWriter(tmp_path / "file", SPEC, **options) as writer:
        writer.write(SAMPLE)
        writer.write({"y": 0, "d": [3.0, 0.25], "a": [8]})
        assert writer.num_samples == 2
    data = (tmp_path / "file").read_bytes()
    assert data == BYTES[check]
    assert data == make_norm(SAMPLES, check=check)
    assert read_norm(data).samples == SAMPLES


def test_worked_example_of_int64_keys(tmp_path):
    spec = Schema([Column.label("y"), Column.sparse("a"), Column.sparse("b")])
    columns = {"y": [1], "a": ([7], [0, 1]), "b": ([300, -1], [0, 2])}
    data = written(tmp_path, spec, columns, key_type="int64", check="none")
    assert data[64:] == bytes.fromhex(
        "0000803f 01000000 0700000000000000 02000000 2c01000000000000"
    ) + bytes([0xFF] * 8)
    assert len(data) == 64 + 36


def random_columns(rng, rows, top):
    def ragged():
        counts = rng.integers(0, 5, rows) * (rng.random(rows) < 0.7)
        return tf.RaggedTensor.from_row_lengths(
            rng.integers(0, top, counts.sum()), counts
        )

    return {
        "a": ragged(),
        "d": rng.normal(size=(rows, 2, 2)).astype(np.float32),
        "y": rng.integers(0, 2, (rows, 1)),
        "o": rng.integers(0, 9, rows),
        "z": rng.normal(size=rows).astype(np.float32),
        "n": rng.integers(-(2**24), 2**24, rows),
        "b": ragged(),
    }


@pytest.mark.parametrize(
    "key_type, check, rows",
    [
        ("uint32", "none", 7),
        ("uint32", "sum", 5000),  # more than a block
        ("int64", "none", 5000),
        ("int64", "sum", 1),
    ],
)
def test_a_batch_equals_the_reference(tmp_path, rng, key_type, check, rows):
    columns = random_columns(
        rng, rows, 2**32 if key_type == "uint32" else 2**62
    )
    data = written(tmp_path, MIXED, columns, key_type=key_type, check=check)
    keys = [columns[name].to_list() for name in "ab"]
    samples = [
        (
            [float(columns["y"][i, 0]), float(columns["z"][i])],
            [*map(float, columns["d"][i].flat), float(columns["n"][i])],
            [keys[0][i], [int(columns["o"][i])], keys[1][i]],
        )
        for i in range(rows)
    ]
    norm = read_norm(data, key_type)
    assert norm == (check, 2, 5, 3, samples)
    assert data == make_norm(samples, key_type, check)


@pytest.mark.parametrize(
    "spec, columns, want",
    [
        (
            [Column.label("y")],
            {"y": [1, 0]},
            [([1.0], [], []), ([0.0], [], [])],
        ),
        ([Column.dense("d")], {"d": [3.0]}, [([], [3.0], [])]),
        (
            [Column.sparse("a")],
            {"a": ([1], [0, 0, 1])},
            [([], [], [[]]), ([], [], [[1]])],
        ),
        ([Column.sparse("a")], {"a": ([], [0, 0])}, [([], [], [[]])]),
    ],
    ids=["labels", "dense", "keys", "no_keys"],
)
@pytest.mark.parametrize(
    "key_type, check", [("uint32", "sum"), ("int64", "none")]
)
def test_records_of_one_part(tmp_path, spec, columns, want, key_type, check):
    data = written(tmp_path, spec, columns, key_type=key_type, check=check)
    assert read_norm(data, key_type).samples == want


def test_the_ends_of_the_key_types(tmp_path):
    spec = [Column.sparse("a")]
    for key_type, keys in (
        ("uint32", [0, 2**32 - 1]),
        ("int64", [-(2**63), 2**63 - 1]),
    ):
        data = written(tmp_path, spec, {"a": (keys, [0, 2])}, key_type=key_type)
        assert read_norm(data, key_type).samples == [([], [], [keys])]
    # The same bits as an unsigned key.
    keys = np.uint64([2**64 - 1])
    data = written(tmp_path, spec, {"a": (keys, [0, 1])}, key_type="int64")
    assert read_norm(data, "int64").samples == [([], [], [[-1]])]


@pytest.mark.parametrize("key", [-1, 2**32, 2**64 - 1, -(2**63)])
def test_a_key_that_does_not_fit_is_named(tmp_path, key):
    with NormWriter(tmp_path / "file", SPEC) as writer:
        writer.write(SAMPLE)
        with pytest.raises(
            ValueError,
            match=r"file: sample 4: slot 'b' must be a key from 0 to "
            "4294967295; the key type int64 supports all",
        ):
            values = np.array([1, 2, key % 2**64], np.uint64).view(np.int64)
            columns = {
                "y": [1, 1, 1],
                "d": np.zeros((3, 2)),
                "b": (values, [0, 1, 1, 3]),
            }
            writer.write_batch(columns)
        writer.write({"y": 0, "d": [3.0, 0.25], "a": [8]})
    assert (tmp_path / "file").read_bytes() == NORM_SUM


def test_a_record_too_long_is_named(tmp_path, monkeypatch):
    payload = norm_sample(SAMPLES[0])
    with NormWriter(tmp_path / "file", SPEC) as writer:
        writer.write(SAMPLE)
        monkeypatch.setattr(norm_writer, "_MAX_RECORD", len(payload))
        writer.write(SAMPLE)
        with pytest.raises(
            ValueError,
            match="file: sample 3: must have at most 32 bytes, got 36",
        ):
            writer.write({**SAMPLE, "a": [7, 8]})
        assert writer.num_samples == 2


@pytest.mark.parametrize(
    "schema, options, message",
    [
        ([Column.label("y")], {"check": "crc"}, "`check`='crc' is not in"),
        (
            [Column.label("y")],
            {"key_type": "int32"},
            "`key_type`='int32' is not",
        ),
        (
            [Column.sparse("w", dtype="float")],
            {},
            "file: slot 'w' must have keys, got floats",
        ),
        (
            [Column.sample_weight("w")],
            {},
            "file: slot 'w' must be .*, got a sample weight",
        ),
        (
            [Column.dense("d", (-1, 2))],
            {},
            r"file: slot 'd' must have a fixed .* shape \[-1, 2\]",
        ),
    ],
)
def test_options_and_slots_that_do_not_fit(tmp_path, schema, options, message):
    with pytest.raises(ValueError, match=message):
        NormWriter(tmp_path / "file", schema, **options)
    assert list(tmp_path.iterdir()) == []
