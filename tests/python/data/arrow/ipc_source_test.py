"""lodestar.data.arrow.ipc_source: Arrow IPC files and streams."""

import pyarrow as pa
import pyarrow.feather
import pytest
from row_cases import SPEC, read, table, write

from lodestar.data import open_dataset
from lodestar.data.arrow.ipc_source import IpcSource


@pytest.mark.parametrize("suffix", ["arrow", "arrows"])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_files_and_streams(tmp_path, suffix, compression):
    options = pa.ipc.IpcWriteOptions(compression=compression)
    path = write(tmp_path / f"a.{suffix}", table(0, 20), 6, options=options)
    source = IpcSource(str(path))
    assert source.num_rows == 20
    assert source.num_bytes == path.stat().st_size
    if suffix == "arrow":
        assert source.row_groups == (6, 6, 6, 2)
    assert sum(read(open_dataset(path, SPEC, 8)), []) == list(range(20))


def test_feather(tmp_path):
    path = tmp_path / "a.feather"
    pyarrow.feather.write_feather(table(0, 20), path)
    assert sum(read(open_dataset(path, SPEC, 8)), []) == list(range(20))
