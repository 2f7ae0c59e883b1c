"""RawWriter: exact bytes in every layout, and errors."""

import numpy as np
import pytest
import tensorflow as tf
from hugectr_files import make_raw, read_raw

from lodestar.data import Column, Schema
from lodestar.hugectr import raw_writer
from lodestar.hugectr.raw_writer import RawWriter

SPEC = Schema(
    [
        Column.label("y"),
        Column.dense("d", (2,)),
        Column.sparse("a"),
        Column.sparse("b"),
    ]
)
LAYOUTS = [
    ("float", "uint32"),
    ("float", "int32"),
    ("int", "uint32"),
    ("int", "int32"),
    ("multi_hot_float", "uint32"),
    ("multi_hot_float", "int64"),
    ("multi_hot_int", "uint32"),
    ("multi_hot_int", "int64"),
]
INT = "log\\(x \\+ 1\\) of a whole number x from 0 to 2147483647; a uint64 slot"


def written(tmp_path, spec, columns, **options):
    with RawWriter(tmp_path / "file", spec, **options) as writer:
        writer.write_batch(columns)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    return (tmp_path / "file").read_bytes()


def test_worked_example_of_int(tmp_path):
    spec = [*SPEC, Column.sparse("c")]
    sample = {"y": 1, "d": np.log1p([0, 9]), "a": 5, "b": 70000, "c": 2**32 - 1}
    with RawWriter(tmp_path / "file", spec, layout="int") as writer:
        writer.write(sample)
    assert (tmp_path / "file").read_bytes() == bytes.fromhex(
        "01000000 00000000 09000000 05000000 70110100 ffffffff"
    )


def test_worked_example_of_multi_hot(tmp_path):
    columns = {
        "y": [1],
        "d": [[0.0, 9.5]],
        "a": ([5, 6], [0, 2]),
        "b": ([1], [0, 1]),
    }
    data = written(
        tmp_path, SPEC, columns, layout="multi_hot_float", nnz_per_slot=[2, 1]
    )
    assert data == bytes.fromhex(
        "01000000 00000000 00001841 05000000 06000000 01000000"
    )


@pytest.mark.parametrize("layout, key_type", LAYOUTS)
def test_a_batch_equals_the_reference(
    tmp_path, rng, monkeypatch, layout, key_type
):
    rows = 250
    monkeypatch.setattr(raw_writer, "_BLOCK_WORDS", 100 * 20)
    spec = Schema(  # not in the order of a record
        [
            Column.sparse("a"),
            Column.dense("d", (3,)),
            Column.label("y"),
            Column.one_hot("o", 9),
            Column.dense("n", (2, 2), dtype="uint64"),
            Column.sparse("b"),
            Column.label("z", dtype="float", binary=False),
        ]
    )
    multi = layout.startswith("multi_hot")
    nnz = [3, 1, 2] if multi else [1, 1, 1]
    low, high = {
        "uint32": (0, 2**32),
        "int32": (-(2**31), 2**31),
        "int64": (-(2**63), 2**63 - 1),
    }[key_type]
    stored = {
        "y": rng.integers(0, 2, rows),
        "z": rng.integers(-(2**24), 2**24, rows),
        "d": rng.integers(-1, 900_000, (rows, 3)),
        "n": rng.integers(-(2**24), 2**24, (rows, 4)),
        "a": rng.integers(low, high, (rows, nnz[0])),
        "o": rng.integers(0, 9, (rows, 1)),
        "b": rng.integers(low, high, (rows, nnz[2])),
    }
    dense = stored["d"].astype(np.float32)
    if layout.endswith("int"):
        with np.errstate(divide="ignore"):
            dense = np.log(dense + np.float32(1))
    columns = {
        "y": stored["y"],
        "z": stored["z"].astype(np.float32),
        "d": dense,
        "n": stored["n"].reshape(rows, 2, 2),
        "a": tf.RaggedTensor.from_tensor(stored["a"]),
        "o": stored["o"],
        "b": (stored["b"].reshape(-1), np.arange(rows + 1) * nnz[2]),
    }
    data = written(
        tmp_path,
        spec,
        columns,
        layout=layout,
        key_type=key_type,
        nnz_per_slot=nnz if multi else None,
    )
    number = float if layout == "float" else int
    lists = {name: column.tolist() for name, column in stored.items()}
    samples = [
        (
            [number(lists["y"][i]), number(lists["z"][i])],
            lists["d"][i] + lists["n"][i],
            [lists["a"][i], lists["o"][i], lists["b"][i]],
        )
        for i in range(rows)
    ]
    assert data == make_raw(samples, layout, key_type)
    assert read_raw(data, layout, key_type, 2, 7, nnz) == samples


def test_logarithms_round_trip_within_rounding(tmp_path, rng):
    x = np.concatenate([rng.integers(0, 2**31, 50_000), [2**31 - 1, 0, 1]])
    logs = np.log(x.astype(np.float32) + np.float32(1))
    spec = [Column.dense("d")]
    data = written(tmp_path, spec, {"d": logs}, layout="int")
    back = np.frombuffer(data, "<i4")
    again = np.log(back.astype(np.float32) + np.float32(1))
    np.testing.assert_array_max_ulp(again, logs, 2)


@pytest.mark.parametrize(
    "options, change, message",
    [
        ({}, {"a": [1, 2]}, "slot 'a' must have 1 keys, got 2"),
        ({}, {"a": []}, "slot 'a' must have 1 keys, got 0"),
        ({}, {"a": -1}, "slot 'a' must be a key .* 4294967295, got -1"),
        (
            {"key_type": "int32"},
            {"b": 2**31},
            "slot 'b' must be a key from -2147483648 to 2147483647",
        ),
        ({"layout": "int"}, {"d": [0, 0.5]}, "slot 'd' must be " + INT),
        ({"layout": "int"}, {"d": [0, 9]}, "slot 'd' must be " + INT),
        (
            {"layout": "int"},
            {"d": [0, 30]},
            "slot 'd' must be " + INT + ".*got 30",
        ),
        (
            {"layout": "int"},
            {"d": [0, 1e30]},
            "slot 'd' must be .* got 1e[+]30",
        ),
        ({"layout": "int"}, {"d": [0, np.nan]}, "slot 'd' must be .* got nan"),
        (
            {"layout": "int"},
            {"d": [0, -np.inf]},
            "slot 'd' must be .* got -inf",
        ),
        ({"layout": "int"}, {"d": [0, np.inf]}, "slot 'd' must be .* got inf"),
        ({"layout": "int"}, {"d": [0, -1]}, "slot 'd' must be .* got -1"),
    ],
)
def test_unsupported_columns_are_named(tmp_path, options, change, message):
    good = {"y": 1, "d": [0.0, 0.0], "a": 1, "b": 2}
    with RawWriter(tmp_path / "file", SPEC, **options) as writer:
        writer.write(good)
        with pytest.raises(ValueError, match="file: sample 2: " + message):
            writer.write({**good, **change})
    assert len((tmp_path / "file").read_bytes()) == 20


@pytest.mark.parametrize(
    "slot, value, message",
    [
        (
            Column.label("y", dtype="float", binary=False),
            0.5,
            "slot 'y' must be a whole number from -2147483648 to 2147483647",
        ),
        (
            Column.label("y", dtype="float", binary=False),
            np.nan,
            "slot 'y' must be a whole number from",
        ),
        (
            Column.label("y", binary=False),
            2**31,
            "slot 'y' must be a whole number from",
        ),
        (
            Column.dense("n", (), dtype="uint64"),
            -(2**31) - 1,
            "slot 'n' must be a whole number from",
        ),
    ],
)
def test_numbers_beyond_int32_are_named(tmp_path, slot, value, message):
    with RawWriter(tmp_path / "file", [slot], layout="int") as writer:
        writer.write({slot.name: 1})
        with pytest.raises(ValueError, match="sample 2: " + message):
            writer.write({slot.name: value})
    assert (tmp_path / "file").read_bytes() == bytes.fromhex("01000000")


def test_a_row_of_another_hotness_is_named_and_not_written(tmp_path):
    options = {"layout": "multi_hot_int", "nnz_per_slot": 2}
    with RawWriter(
        tmp_path / "file", [Column.sparse("a")], **options
    ) as writer:
        writer.write({"a": [1, 2]})
        with pytest.raises(
            ValueError, match="sample 4: slot 'a' must have 2 keys, got 3"
        ):
            writer.write_batch({"a": (np.arange(7), [0, 2, 4, 7])})
    data = (tmp_path / "file").read_bytes()
    assert data == bytes.fromhex("01000000 02000000")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"layout": "raw"}, "`layout`='raw' is not in"),
        ({"key_type": "int64"}, "`key_type`='int64' is not in .*int32"),
        (
            {"layout": "multi_hot_int", "key_type": "int32"},
            "`key_type`='int32' is not in .*int64",
        ),
        ({"nnz_per_slot": 1}, "`layout`='float' has 1 key per slot"),
        (
            {"layout": "multi_hot_int", "nnz_per_slot": [1, 2]},
            "`nnz_per_slot` must have 3 numbers, .* got 2",
        ),
        (
            {"layout": "multi_hot_int", "nnz_per_slot": [1, 0, 1]},
            "`nnz_per_slot` of slot 'b' must be a whole .* got 0",
        ),
        (
            {"layout": "multi_hot_int", "nnz_per_slot": [1.0, 1, 1]},
            "`nnz_per_slot` of slot 'a' must be a whole .* got 1.0",
        ),
        (
            {"layout": "multi_hot_int", "nnz_per_slot": 2},
            "`nnz_per_slot` of the one-hot slot 'o' must be 1, got 2",
        ),
    ],
)
def test_options_that_do_not_fit(tmp_path, options, message):
    spec = [Column.sparse("a"), Column.sparse("b"), Column.one_hot("o", 3)]
    with pytest.raises(ValueError, match=message):
        RawWriter(tmp_path / "file", spec, **options)
    assert list(tmp_path.iterdir()) == []
