"""lodestar.data.ParquetWriter: pyarrow and open_dataset read its files."""

import gc
import json

import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from hypothesis import strategies

from lodestar.data import Column, Schema, open_dataset
from lodestar.data.arrow.parquet_writer import ParquetWriter
from lodestar.hugectr.parquet_metadata import read_metadata

SPEC = Schema(
    [
        Column.sparse("C1"),
        Column.label("click"),
        Column.dense("I", (2,)),
        Column.one_hot("day", 7),
        Column.dense("x", ()),
        Column.sparse("w", dtype="float"),
        Column.dense("n", (1,), dtype="uint64"),
        Column.dense("free", (-1,)),
    ]
)


def columns(rng, rows):
    counts = rng.integers(0, 4, rows)
    splits = np.concatenate([[0], np.cumsum(counts)])
    return {
        "C1": (rng.integers(-(2**63), 2**63 - 1, splits[-1]), splits),
        "click": rng.integers(0, 2, rows),
        "I": rng.normal(size=(rows, 2)).astype(np.float32),
        "day": rng.integers(0, 7, rows),
        "x": rng.normal(size=rows).astype(np.float32),
        "w": (rng.normal(size=splits[-1]).astype(np.float32), splits),
        "n": rng.integers(0, 2**63 - 1, rows),
        "free": rng.normal(size=(rows, 3)).astype(np.float32),
    }


def without_free_dim(spec):
    return Schema([slot for slot in spec if slot.name != "free"])


@pytest.mark.parametrize("row_group_size", [1, 7, 100, 1000])
def test_written_files_are_read_back(tmp_path, rng, row_group_size):
    spec = without_free_dim(SPEC)
    parts = [columns(rng, rows) for rows in (60, 1, 39)]
    path = tmp_path / "a.parquet"
    with ParquetWriter(path, spec, row_group_size=row_group_size) as writer:
        for part in parts:
            part.pop("free")
            writer.write_batch(part)
        assert writer.num_samples == 100
    file = pq.ParquetFile(path)
    groups = [
        file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)
    ]
    assert set(groups[:-1]) <= {row_group_size}
    ((features, label),) = open_dataset(path, spec, 100)
    for name in ("I", "n", "x"):
        want = np.concatenate([part[name] for part in parts])
        np.testing.assert_array_equal(
            np.squeeze(features[name]), np.squeeze(want)
        )
    for name in ("C1", "w"):
        want = np.concatenate([part[name][0] for part in parts])
        np.testing.assert_array_equal(features[name].values, want)
        lengths = [np.diff(part[name][1]) for part in parts]
        np.testing.assert_array_equal(
            features[name].row_lengths(), np.concatenate(lengths)
        )
    clicks = np.concatenate([part["click"] for part in parts])
    np.testing.assert_array_equal(label.numpy()[:, 0], clicks)
    days = np.concatenate([part["day"] for part in parts])
    np.testing.assert_array_equal(np.argmax(features["day"], 1), days)


def test_types_and_metadata(tmp_path, rng):
    path = tmp_path / "a.parquet"
    with ParquetWriter(path, SPEC) as writer:
        writer.write_batch(columns(rng, 5))
    schema = pq.read_schema(path)
    assert schema.names == SPEC.names()
    assert [str(field.type) for field in schema] == [
        "list<element: int64 not null>",
        "float",
        "fixed_size_list<element: float not null>[2]",
        "int64",
        "float",
        "list<element: float not null>",
        "int64",
        "list<element: float not null>",
    ]
    assert json.loads((tmp_path / "_metadata.json").read_text()) == {
        "file_stats": [{"file_name": "a.parquet", "num_rows": 5}],
        "labels": [{"col_name": "click", "index": 1}],
        "conts": [
            {"col_name": "I", "index": 2},
            {"col_name": "x", "index": 4},
        ],
        "cats": [
            {"col_name": "C1", "index": 0},
            {"col_name": "day", "index": 3},
        ],
    }
    dataset = open_dataset(path, batch_size=8)
    assert list(dataset.element_spec[0]) == ["I", "x", "C1", "day"]


def test_a_flipped_bit_is_noticed(tmp_path, rng):
    path = tmp_path / "a.parquet"
    spec = Schema([Column.dense("x", ())])
    with ParquetWriter(path, spec, compression="none") as writer:
        writer.write_batch({"x": rng.normal(size=1000).astype(np.float32)})
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="row group 0: column 'x': cannot"
    ):
        list(open_dataset(path, spec, 8))


def test_a_directory_gets_one_file_after_another(tmp_path):
    spec = Schema([Column.sparse("C")])
    for i in range(3):
        with ParquetWriter(tmp_path / "new", spec) as writer:
            writer.write({"C": [i]})
    names = [f"part-0000{i}.parquet" for i in range(3)]
    found = read_metadata(str(tmp_path / "new" / "_metadata.json"))
    assert list(found.num_rows) == names
    (features,) = open_dataset(tmp_path / "new", batch_size=8)
    assert features["C"].to_list() == [[0], [1], [2]]


def test_two_writers_of_a_directory(tmp_path):
    spec = Schema([Column.sparse("C")])
    with ParquetWriter(tmp_path, spec) as first:
        with ParquetWriter(tmp_path, spec) as second:
            first.write({"C": [1]})
            second.write({"C": [2]})
    (features,) = open_dataset(tmp_path, spec, 8)
    assert sorted(features["C"].to_list()) == [[1], [2]]


def test_metadata_that_changes_meanwhile(tmp_path):
    with pytest.raises(ValueError, match="lists other columns"):
        with ParquetWriter(
            tmp_path / "a.parquet", [Column.sparse("C")]
        ) as late:
            late.write({"C": [1]})
            with ParquetWriter(tmp_path, [Column.sparse("D")]) as writer:
                writer.write({"D": [1]})
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["_metadata.json", "part-00000.parquet"]


@pytest.mark.parametrize("value", [2**63, -(2**63), -1, 2**24])
def test_labels_at_the_ends_of_int64(tmp_path, value):
    path = tmp_path / "a.parquet"
    spec = Schema([Column.label("y", binary=False)])
    with ParquetWriter(path, spec) as writer:
        writer.write({"y": value})
        for inexact in (2**63 - 1, 2**64 - 1 - 2**24):
            with pytest.raises(ValueError, match="sample 2: slot 'y' must be"):
                writer.write({"y": inexact})
    (columns,) = open_dataset(path, spec, 8, as_columns=True)
    assert columns["y"].numpy().tolist() == [[(value + 2**63) % 2**64 - 2**63]]


def test_a_scheme_of_tensorflow_file_systems():
    spec = Schema([Column.sparse("C")])
    with ParquetWriter("ram://parquet_writer/a.parquet", spec) as writer:
        writer.write({"C": [1]})
    (features,) = open_dataset("ram://parquet_writer", batch_size=8)
    assert features["C"].to_list() == [[1]]


def test_metadata_for_other_columns_is_left_alone(tmp_path):
    with ParquetWriter(tmp_path, [Column.sparse("C")]) as writer:
        writer.write({"C": [1]})
    before = (tmp_path / "_metadata.json").read_bytes()
    with pytest.raises(
        ValueError, match="lists other columns .*cats 0 C, expected"
    ):
        ParquetWriter(tmp_path, [Column.sparse("D")])
    assert (tmp_path / "_metadata.json").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2


def test_a_failure_leaves_no_files(tmp_path):
    path = tmp_path / "a.parquet"
    spec = Schema([Column.label("y", binary=False), Column.sparse("C")])
    with pytest.raises(
        ValueError, match="sample 2: slot 'y' must be an integer.* 16777217"
    ):
        with ParquetWriter(path, spec, row_group_size=1) as writer:
            writer.write({"y": 1, "C": [1]})
            writer.write({"y": 2**24 + 1, "C": [1]})
    del writer  # which ends pyarrow's writer as well
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="no samples were written"):
        with ParquetWriter(path, spec):
            pass
    assert list(tmp_path.iterdir()) == []


def test_options_are_checked(tmp_path):
    spec = Schema([Column.sparse("C")])
    with pytest.raises(ValueError, match="`row_group_size` must be an integer"):
        ParquetWriter(tmp_path / "a.parquet", spec, row_group_size=0)
    for name in ("rar", "lzo", "bz2", 3):
        with pytest.raises(
            ValueError, match=f"`compression`={name!r} is not supported"
        ):
            ParquetWriter(tmp_path / "a.parquet", spec, compression=name)
    assert list(tmp_path.iterdir()) == []


IDS = strategies.lists(
    strategies.lists(strategies.integers(-(2**63), 2**63 - 1), max_size=4),
    min_size=1,
    max_size=40,
)


@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(
    ids=IDS,
    row_group_size=strategies.integers(1, 45),
    batch_size=strategies.integers(1, 45),
)
def test_any_ids_round_trip(tmp_path_factory, ids, row_group_size, batch_size):
    spec = Schema([Column.sparse("C"), Column.dense("n", (), dtype="uint64")])
    path = tmp_path_factory.mktemp("any") / "a.parquet"
    ragged = tf.ragged.constant(ids, dtype=tf.int64, ragged_rank=1)
    with ParquetWriter(path, spec, row_group_size=row_group_size) as writer:
        writer.write_batch({"C": ragged, "n": np.arange(len(ids))})
    got = []
    for features in open_dataset(path, spec, batch_size):
        got += features["C"].to_list()
    assert got == ids
    assert pa.array(ids, pa.list_(pa.int64())).equals(
        pq.read_table(path)
        .column("C")
        .combine_chunks()
        .cast(pa.list_(pa.int64()))
    )
