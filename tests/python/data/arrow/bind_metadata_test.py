"""lodestar.hugectr.bind_metadata: columns in the order of `_metadata.json`."""

import pyarrow as pa
import pytest
from row_cases import write, write_metadata

from lodestar.data import Column, DataError, Schema, open_dataset

FLOATS = pa.list_(pa.float32())


@pytest.fixture
def example(tmp_path):
    """Writes files whose JSON lists C2 before C1, and whose columns are reversed."""
    path = tmp_path / "0.parquet"
    write(
        path,
        pa.table(
            {
                "label": pa.array([1, 0], pa.float32()),
                "I1": pa.array([0.5, 2.0], pa.float32()),
                "C1": pa.array([[4], []], pa.list_(pa.int64())),
                "C2": pa.array([9, 8], pa.int64()),
            }
        ),
    )
    write_metadata(
        tmp_path,
        {"0.parquet": 2},
        labels=[("label", 0)],
        conts=[("I1", 1)],
        cats=[("C2", 3), ("C1", 2)],
    )
    return path


def test_worked_example_of_the_format(example):
    dataset = open_dataset(
        example, batch_size=8, slot_size_array=[10, 20], sparse="csr"
    )
    ((features, label),) = dataset
    assert label.numpy().tolist() == [[1.0], [0.0]]
    assert features["I1"].numpy().tolist() == [[0.5], [2.0]]
    assert features["csr"]["row_offsets"].numpy().tolist() == [0, 1, 2, 2, 3]
    assert features["csr"]["values"].numpy().tolist() == [4, 19, 18]


def test_columns_are_sorted_by_index(example):
    dataset = open_dataset(example.parent, batch_size=8)
    assert list(dataset.element_spec[0]) == ["I1", "C1", "C2"]
    ((features, _),) = dataset
    assert features["C1"].to_list() == [[4], []]
    assert features["C2"].to_list() == [[9], [8]]
    assert dataset.schema["C1"].why == "`cats` of _metadata.json"


def test_wide_columns(tmp_path):
    data = pa.table(
        {
            "y": pa.array([[1, 2], [3, 4]], FLOATS),
            "x": pa.array([[1, 2, 3], [4, 5, 6]], FLOATS),
            "unlisted": pa.array(["a", None]),
            "fixed": pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2)),
        }
    )
    write(tmp_path / "a.parquet", data)
    write_metadata(
        tmp_path,
        {"a.parquet": 2},
        labels=[("y", 0)],
        conts=[("other", 1), ("fixed", 3)],
    )
    dataset = open_dataset(tmp_path, batch_size=8)
    ((features, label),) = dataset
    assert label["y_0"].numpy().tolist() == [[1.0], [3.0]]
    assert label["y_1"].numpy().tolist() == [[2.0], [4.0]]
    assert features["x"].numpy().tolist() == [[1, 2, 3], [4, 5, 6]]
    assert features["fixed"].numpy().tolist() == [[1, 2], [3, 4]]
    assert dataset.schema.names() == ["y_0", "y_1", "x", "fixed"]


def test_a_column_after_nested_ones_is_found(tmp_path):
    data = pa.table(
        {
            "nested": pa.array([{"a": 1, "b": [2, 3]}] * 2),
            "words": pa.array(["a", "b"]).dictionary_encode(),
            "x": pa.array([[1, 2], [3, 4]], FLOATS),
        }
    )
    write(tmp_path / "a.parquet", data)
    write_metadata(tmp_path, {"a.parquet": 2}, conts=[("x", 2)])
    (features,) = open_dataset(tmp_path, batch_size=8)
    assert features["x"].shape == (2, 2)


def test_a_schema_selects_columns_by_name(example):
    spec = Schema([Column.sparse("C2"), Column.dense("I1", ())])
    (features,) = open_dataset(example, spec, 8)
    assert list(features) == ["C2", "I1"]
    assert features["I1"].numpy().tolist() == [0.5, 2.0]


def test_columns_in_other_places(tmp_path):
    data = pa.table({"C": [1], "D": [2]})
    write(tmp_path / "0.parquet", data)
    write(tmp_path / "1.parquet", data.select(["D", "C"]))
    stats = {"0.parquet": 1, "1.parquet": 1}
    write_metadata(tmp_path, stats, cats=[("C", 0)])
    with pytest.raises(DataError) as error:
        open_dataset(tmp_path, batch_size=8)
    assert str(error.value) == (
        f"{tmp_path}/1.parquet: column 0 must be 'C', as in "
        f"{tmp_path}/0.parquet, got 'D'."
    )
    # A schema can consist of names.
    (features,) = open_dataset(tmp_path, [Column.sparse("C")], 8)
    assert features["C"].to_list() == [[1], [1]]


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (
            pa.array([[1, 2], [3]], FLOATS),
            "must have equally many values in all 2 rows, got 3 values.",
        ),
        (
            pa.array([[], []], pa.list_(pa.float32(), 0)),
            "must have at least one value per row, got "
            "fixed_size_list<element: float>[0].",
        ),
    ],
    ids=str,
)
def test_rows_of_no_fixed_width(tmp_path, array, text):
    write(tmp_path / "a.parquet", pa.table({"x": array}))
    write_metadata(tmp_path, {"a.parquet": 2}, conts=[("x", 0)])
    with pytest.raises(DataError) as error:
        open_dataset(tmp_path, batch_size=8)
    assert str(error.value) == f"{tmp_path}/a.parquet: column 'x' {text}"


def test_rows_of_another_width_than_the_first_file(tmp_path):
    for name, rows in (("0", [[1, 2]]), ("1", [[1, 2, 3]])):
        data = pa.table({"x": pa.array(rows, FLOATS)})
        write(tmp_path / f"{name}.parquet", data)
    stats = {"0.parquet": 1, "1.parquet": 1}
    write_metadata(tmp_path, stats, conts=[("x", 0)])
    with pytest.raises(Exception, match="1.parquet: row 0 .*found 3 values"):
        list(open_dataset(tmp_path, batch_size=8))


def test_each_directory_counts_its_own_rows(tmp_path):
    for name, rows in (("a", 2), ("b", 3)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "0.parquet", pa.table({"C": range(rows)}))
        write_metadata(tmp_path / name, {"0.parquet": rows}, cats=[("C", 0)])
    (features,) = open_dataset([tmp_path / "a", tmp_path / "b"], batch_size=8)
    assert features["C"].to_list() == [[0], [1], [0], [1], [2]]
    write_metadata(tmp_path / "b", {"0.parquet": 2}, cats=[("C", 0)])
    with pytest.raises(
        ValueError, match="b/0.parquet: found 3 rows, expected 2"
    ):
        open_dataset([tmp_path / "a", tmp_path / "b"], batch_size=8)
