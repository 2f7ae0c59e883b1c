"""lodestar.data.arrow.parquet_file: valid, damaged, changed and remote files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from row_cases import SPEC, read, table, write

from lodestar._errors import describe_error
from lodestar.data import Column, DataError, SkippedRecords, open_dataset
from lodestar.data.arrow.ipc_source import IpcSource
from lodestar.data.arrow.parquet_file import ParquetFile
from lodestar.data.arrow.row_source import read_rows
from lodestar.data.binding import bind
from lodestar.schema.schema import NA_VALUES

SMALL = [Column.dense("x"), Column.sparse("C")]


@pytest.fixture
def small(tmp_path):
    data = pa.table({"x": pa.array([1, 2], pa.float32()), "C": [1, 2]})
    return write(tmp_path / "a.parquet", data)


def first_error(path, schema=None, **options):
    """Returns the one-line error that reading all of the file raises."""
    with pytest.raises((DataError, tf.errors.OpError)) as error:
        list(open_dataset(path, schema, 8, **options))
    text = describe_error(error.value)
    assert "\n" not in text and "Traceback" not in text
    return text


def test_a_footer(tmp_path):
    path = write(tmp_path / "a.parquet", table(0, 20), row_group_size=6)
    file = ParquetFile(str(path))
    assert file.row_groups == (6, 6, 6, 2) and file.num_rows == 20
    assert file.schema.names == table(0, 0).schema.names
    assert file.num_bytes == path.stat().st_size
    assert file.where(2, 3) == "row 15 (row group 2, its row 3)"


def test_the_columns_of_a_row_group(tmp_path):
    data = pa.table(
        {"a": [{"b": i, "c": str(i)} for i in range(9)], "b.c": range(9)}
    )
    path = write(tmp_path / "a.parquet", data, row_group_size=4)
    file = ParquetFile(str(path))
    columns = [Column.sparse(name) for name in ("b.c", "a.c", "a.b")]
    rows = read_rows(file, 2, bind(columns), ())
    assert [c.tolist() for c in rows.columns.values()] == [[[8]]] * 3


def test_files_that_are_missing(small, tmp_path):
    missing = tmp_path / "missing.parquet"
    for on_error in ("raise", "skip"):
        with pytest.raises(FileNotFoundError) as error:
            open_dataset(
                [small, missing], SMALL, 8, format="parquet", on_error=on_error
            )
        assert describe_error(error.value) == (
            f"{missing}: No such file or directory"
        )
        # Also when the format is detected.
        with pytest.raises(DataError) as error:
            open_dataset([small, missing], SMALL, 8, on_error=on_error)
        assert str(error.value) == f"{missing}: No such file or directory"
    with pytest.raises(FileNotFoundError):
        open_dataset("ram://nowhere/a.parquet", SMALL, 8, format="parquet")
    (tmp_path / "empty").mkdir()
    assert "is a folder without files of data" in first_error(
        tmp_path / "empty"
    )
    with pytest.raises(ValueError, match="at least one path"):
        open_dataset([], SMALL, 8)


def test_a_row_group_that_cannot_be_decoded(tmp_path):
    path = write(
        tmp_path / "a.parquet",
        table(0, 30),
        row_group_size=10,
        write_page_checksum=True,
        compression="none",
    )
    column = pq.ParquetFile(path).metadata.row_group(1).column(3)
    assert column.path_in_schema.startswith("C1")
    data = bytearray(path.read_bytes())
    data[column.dictionary_page_offset + 100] ^= 0xFF
    path.write_bytes(data)
    assert first_error(path, SPEC).startswith(
        f"{path}: row group 1: column 'C1': cannot be read: "
    )
    skipped = SkippedRecords()
    dataset = open_dataset(path, SPEC, 8, on_error="skip", skipped=skipped)
    assert sum(read(dataset), []) == [*range(10), *range(20, 30)]
    assert skipped.count == 10


def test_a_bad_row_is_named_or_skipped(tmp_path):
    rows = [["1"], ["2"], ["3"]] * 7
    rows[12] = ["2", "a"]
    data = pa.table({"x": rows})
    path = write(tmp_path / "a.parquet", data, row_group_size=5)
    schema = [Column.sparse("x")]
    message = (
        f"{path}: row 12 (row group 2, its row 2): column 'x': found 'a', "
        "expected an integer of 64 bits"
    )
    assert first_error(path, schema) == (
        f"{message}; `on_error='skip'` leaves such rows out"
    )
    # Batches of earlier row groups are returned first.
    iterator = iter(open_dataset(path, schema, 5))
    next(iterator), next(iterator)
    with pytest.raises(tf.errors.InvalidArgumentError):
        next(iterator)
    for options in ({}, {"shuffle": 7}):
        skipped = SkippedRecords()
        dataset = open_dataset(
            path, schema, 1, on_error="skip", skipped=skipped, **options
        )
        assert sum(1 for _ in dataset) == 20
        assert skipped.messages == [message]


@pytest.mark.parametrize(
    ("suffix", "options"),
    [
        ("parquet", {}),
        ("parquet", {"write_page_checksum": True}),
        ("arrow", {}),
        ("arrows", {}),
    ],
)
def test_mutated_files_raise_or_are_read(tmp_path, rng, suffix, options):
    """Nothing crashes, and with checksums only the written numbers are read."""
    open_one = ParquetFile if suffix == "parquet" else IpcSource
    path = write(tmp_path / f"a.{suffix}", table(0, 40), 15, **options)
    whole = path.read_bytes()
    good = open_one(str(path))
    bindings = bind(SPEC)
    want = [
        read_rows(good, group, bindings, NA_VALUES)
        for group in range(len(good.row_groups))
    ]
    changed = tmp_path / f"b.{suffix}"
    refused = 0
    for i in range(90):
        mutated = bytearray(whole)
        kind = i % 3
        if kind == 0:
            for _ in range(rng.integers(1, 4)):
                mutated[rng.integers(len(mutated))] = rng.integers(256)
        elif kind == 1:
            at = rng.integers(len(mutated))
            del mutated[at : at + rng.integers(1, 30)]
        else:
            at, to = rng.integers(len(mutated), size=2)
            mutated[at : at + 8] = mutated[to : to + 8]
        changed.write_bytes(mutated)
        try:
            found = open_one(str(changed))
            found.check_names(SPEC.names())
            for group in range(len(found.row_groups)):
                rows = read_rows(found, group, bindings, NA_VALUES)
                for i, column in rows.columns.items():
                    values = getattr(column, "values", column)
                    assert np.asarray(values).dtype in (np.float32, np.int64)
                    if options and found.row_groups == good.row_groups:
                        expected = want[group].columns[i]
                        expected = getattr(expected, "values", expected)
                        np.testing.assert_array_equal(values, expected)
        except DataError as error:
            refused += 1
            assert str(error).startswith(str(changed))
    assert refused > 20
