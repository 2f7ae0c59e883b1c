"""lodestar.data.arrow.ipc_source: Arrow IPC files and streams."""

import pyarrow as pa
import pyarrow.feather
import pytest
import tensorflow as tf
from row_cases import SPEC, read, table, write

from lodestar.data import Column, DataError, SkippedRecords, open_dataset
from lodestar.data.arrow.ipc_source import open_ipc

SUFFIXES = ["arrow", "arrows"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_files_and_streams(tmp_path, suffix, compression):
    options = pa.ipc.IpcWriteOptions(compression=compression)
    path = write(tmp_path / f"a.{suffix}", table(0, 20), 6, options=options)
    source = open_ipc(str(path))
    assert source.num_rows == 20
    assert source.num_bytes == path.stat().st_size
    if suffix == "arrow":
        assert source.row_groups == (6, 6, 6, 2)
    assert sum(read(open_dataset(path, SPEC, 8)), []) == list(range(20))


def test_feather(tmp_path):
    path = tmp_path / "a.feather"
    pyarrow.feather.write_feather(table(0, 20), path)
    assert sum(read(open_dataset(path, SPEC, 8)), []) == list(range(20))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_other_file_systems(tmp_path, suffix):
    path = write(tmp_path / f"a.{suffix}", table(0, 20), 6)
    to = f"ram://ipc/a.{suffix}"
    tf.io.gfile.copy(str(path), to, overwrite=True)
    assert sum(read(open_dataset(to, SPEC, 8)), []) == list(range(20))
    dataset = open_dataset(f"file://{path}", SPEC, 8)
    assert sum(read(dataset), []) == list(range(20))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_dictionaries(tmp_path, suffix):
    words = pa.chunked_array(
        [pa.array(["7", "8", "7"]).dictionary_encode()] * 2
    )
    path = write(tmp_path / f"a.{suffix}", pa.table({"C": words}), 2)
    (features,) = open_dataset(path, [Column.sparse("C")], 8)
    assert features["C"].to_list() == [[7], [8], [7]] * 2


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_partitions(tmp_path, suffix):
    (tmp_path / "day=7").mkdir()
    path = write(tmp_path / f"day=7/a.{suffix}", pa.table({"C": [1, 2]}))
    schema = [Column.sparse("day"), Column.sparse("C")]
    (features,) = open_dataset(path, schema, 8)
    assert features["day"].to_list() == [[7], [7]]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("size", [8, 100, 400, -20])
def test_truncated_files(tmp_path, suffix, size):
    good = write(tmp_path / f"good.{suffix}", table(0, 20), 6)
    cut = tmp_path / f"cut.{suffix}"
    cut.write_bytes(good.read_bytes()[:size])
    with pytest.raises(DataError, match=f"cut.{suffix}: not a whole Arrow IPC"):
        open_dataset(cut, SPEC, 8)
    skipped = SkippedRecords()
    dataset = open_dataset(
        [cut, good], SPEC, 8, on_error="skip", skipped=skipped
    )
    assert sum(read(dataset), []) == list(range(20))
    assert skipped.count == 1


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_mutated_files_raise_or_are_read(tmp_path, rng, suffix):
    """Corrupt files, such as offsets out of range, do not crash the process."""
    whole = write(tmp_path / f"a.{suffix}", table(0, 40), 15).read_bytes()
    path = tmp_path / f"b.{suffix}"
    raised = 0
    for _ in range(30):
        mutated = bytearray(whole)
        for at in rng.integers(8, len(mutated), 2):
            mutated[at] = rng.integers(256)
        path.write_bytes(mutated)
        try:
            for _ in open_dataset(path, SPEC, 8, format="arrow", prefetch=0):
                pass
        except (DataError, tf.errors.InvalidArgumentError) as error:
            raised += 1
            assert str(path) in str(error)
    assert raised > 5


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_changes_while_it_is_read(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr("lodestar.data.arrow.table_source._GROUP_ROWS", 2)
    path = write(tmp_path / f"a.{suffix}", table(0, 40), 2)
    iterator = iter(
        open_dataset(path, SPEC, 2, prefetch=0, num_parallel_files=1)
    )
    next(iterator)
    with open(path, "ab") as file:
        file.write(b"more")
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="changed while it was read"
    ):
        list(iterator)
