"""lodestar.data.arrow.parquet_file: valid, damaged, changed and remote files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from row_cases import SPEC, read, table, write

from lodestar._errors import describe_error
from lodestar.data import Column, DataError, SkippedRecords, open_dataset
from lodestar.data.arrow.parquet_file import (
    read_footer,
)
from lodestar.data.arrow.row_source import read_rows
from lodestar.data.binding import bind
from lodestar.data.schema.schema import NA_VALUES

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
    file = read_footer(str(path))
    assert file.row_groups == (6, 6, 6, 2) and file.num_rows == 20
    assert file.schema.names == table(0, 0).schema.names
    assert file.num_bytes == path.stat().st_size
    assert file.where(2, 3) == "row 15 (row group 2, its row 3)"


def test_the_columns_of_a_row_group(tmp_path):
    data = pa.table(
        {"a": [{"b": i, "c": str(i)} for i in range(9)], "b.c": range(9)}
    )
    path = write(tmp_path / "a.parquet", data, row_group_size=4)
    file = read_footer(str(path))
    columns = [Column.sparse(name) for name in ("b.c", "a.c", "a.b")]
    rows = read_rows(file, 2, bind(columns), ())
    assert [c.tolist() for c in rows.columns.values()] == [[[8]]] * 3


def test_a_scheme_of_tensorflow_file_systems(tmp_path):
    paths = [
        write(tmp_path / f"{i}.parquet", table(6 * i, 6 * i + 6), 4)
        for i in range(3)
    ]
    for path in paths:
        to = f"ram://parquet/{path.name}"
        tf.io.gfile.copy(str(path), to, overwrite=True)
    dataset = open_dataset("ram://parquet", SPEC, 8)
    assert sum(read(dataset), []) == list(range(18))
    names = [f"file://{path}" for path in paths]
    assert sum(read(open_dataset(names, SPEC, 8)), []) == list(range(18))


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


@pytest.mark.parametrize("size", [8, 100, -1, -9])
def test_truncated_files(small, size):
    data = small.read_bytes()[:size]
    cut = small.parent / "cut.parquet"
    cut.write_bytes(data)
    assert first_error(cut).startswith(f"{cut}: not a whole Parquet file: ")
    assert "no file of 1 can be read" in first_error(cut, on_error="skip")
    skipped = SkippedRecords()
    (features,) = open_dataset(
        [cut, small], SMALL, 8, on_error="skip", skipped=skipped
    )
    assert features["C"].to_list() == [[1], [2]]
    assert skipped.count == 1
    assert skipped.messages[0].startswith(f"{cut}: not a whole Parquet file: ")


@pytest.mark.parametrize("size", [0, 3])
def test_a_truncated_file_may_hide_its_format(small, size):
    cut = small.parent / "cut.parquet"
    cut.write_bytes(small.read_bytes()[:size])
    assert first_error(cut).startswith(f"{cut}: ")
    assert first_error(cut, format="parquet").startswith(
        f"{cut}: not a whole Parquet file: "
    )


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


def test_a_file_that_changes_while_it_is_read(tmp_path):
    for on_error in ("raise", "skip"):
        path = write(tmp_path / "a.parquet", table(0, 30), row_group_size=2)
        dataset = open_dataset(
            path, SPEC, 2, prefetch=0, num_parallel_files=1, on_error=on_error
        )
        iterator = iter(dataset)
        next(iterator)
        write(path, table(0, 31), row_group_size=2)
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="changed while it was read"
        ):
            list(iterator)


def test_a_file_that_shrinks_after_a_checkpoint(tmp_path):
    path = write(tmp_path / "a.parquet", table(0, 30))
    iterator = iter(open_dataset(path, SPEC, 8, on_error="skip"))
    next(iterator), next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
    write(path, table(0, 10))
    again = iter(open_dataset(path, SPEC, 8, on_error="skip"))
    tf.train.Checkpoint(iterator=again).restore(saved)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="had .* when the iterator was saved",
    ):
        list(again)


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


def test_skipped_rows_without_a_log(tmp_path):
    path = write(tmp_path / "a.parquet", pa.table({"x": ["1", "a", "3"]}))
    (features,) = open_dataset(path, [Column.sparse("x")], 8, on_error="skip")
    assert features["x"].to_list() == [[1], [3]]


@pytest.mark.parametrize("options", [{}, {"write_page_checksum": True}])
def test_mutated_files_raise_or_are_read(tmp_path, rng, options):
    """Nothing crashes, and with checksums only the written numbers are read."""
    data = table(0, 40)
    path = write(tmp_path / "a.parquet", data, row_group_size=15, **options)
    whole = path.read_bytes()
    good = read_footer(str(path))
    bindings = bind(SPEC)
    want = [
        read_rows(good, group, bindings, NA_VALUES)
        for group in range(len(good.row_groups))
    ]
    paths = []
    for i in range(150):
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
        paths.append(tmp_path / f"{i}.parquet")
        paths[-1].write_bytes(mutated)
    refused = 0
    for path in map(str, paths):
        try:
            found = read_footer(path)
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
            assert str(error).startswith(path)
    assert refused > 50
