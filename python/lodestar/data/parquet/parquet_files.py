"""Parquet files: opening them, their footers, and lists of them."""

import concurrent.futures
import dataclasses
import os
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from lodestar._errors import DataError, describe_error
from lodestar._files import list_folder
from lodestar._optional import import_optional
from lodestar.data.parquet.parquet_metadata import METADATA_NAME, read_metadata
from lodestar.data.paths import as_input
from lodestar.hugectr.file_list import read_file_list

SUFFIX = ".parquet"
_LIST_SUFFIX = ".txt"
_FOOTER_THREADS = 8


@dataclasses.dataclass(frozen=True)
class ParquetFile:
    """A Parquet file, known by its footer.

    Attributes:
        path: Where it is.
        footer: A `pyarrow.parquet.FileMetaData`.
        schema: A `pyarrow.Schema`.
        row_groups: The rows of each row group.
        opened: Result of `tf.io.gfile.stat` before the footer was read.
    """

    path: str
    footer: Any
    schema: Any
    row_groups: tuple[int, ...]
    opened: Any

    @property
    def num_bytes(self) -> int:
        """Its size when the footer was read."""
        return self.opened.length

    @property
    def num_rows(self) -> int:
        """Rows of all row groups."""
        return sum(self.row_groups)


class _GFileReader(tf.io.gfile.GFile):
    """What pyarrow asks of a Python file, over a GFile."""

    closed = False

    def __init__(self, path: str):
        super().__init__(path, "rb")
        self._end = self.size()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> None:
        if whence == os.SEEK_SET:
            # A file system may refuse what is beyond the end.
            offset = min(offset, self._end)
        super().seek(offset, whence)


def open_parquet(path: str, footer: Any = None) -> Any:
    """Opens a `pyarrow.parquet.ParquetFile`; checks the CRCs of its pages.

    A local file is read by pyarrow itself, others through `tf.io.gfile`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    local = as_input(path).removeprefix("file://")
    if "://" in local:
        source = pa.PythonFile(_GFileReader(path), mode="r")
    else:
        source = pa.OSFile(local)
    return pq.ParquetFile(
        source, metadata=footer, page_checksum_verification=True
    )


def read_footer(path: str) -> ParquetFile:
    """Reads the footer of a Parquet file.

    Raises:
        DataError: It is no Parquet file, or was cut short.
        tf.errors.OpError: It is missing or cannot be read.
    """
    import_optional("pyarrow", "ParquetDataset")
    try:
        opened = tf.io.gfile.stat(as_input(path))
        with open_parquet(path) as file:
            footer = file.metadata
            groups = tuple(
                footer.row_group(i).num_rows
                for i in range(footer.num_row_groups)
            )
            schema = file.schema_arrow
    except FileNotFoundError as error:
        raise tf.errors.NotFoundError(
            None, None, f"{path}; No such file or directory"
        ) from error
    except (DataError, tf.errors.OpError):
        raise
    except Exception as error:
        # pyarrow raises whatever its decoders meet, OverflowError included.
        raise DataError(
            f"{path}: not a whole Parquet file: {one_line(error)}"
        ) from error
    if min(groups, default=0) < 0 or sum(groups) != footer.num_rows:
        raise DataError(
            f"{path}: the footer counts {footer.num_rows} rows, its row groups "
            f"{list(groups)}"
        )
    return ParquetFile(path, footer, schema, groups, opened)


def read_footers(paths: list[str]) -> list[ParquetFile | Exception]:
    """The footer of each file, or the error that reading it met."""

    def read(path: str) -> ParquetFile | Exception:
        try:
            return read_footer(path)
        except (DataError, tf.errors.OpError) as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        return list(pool.map(read, paths))


def expand(paths: Iterable[str]) -> list[str]:
    """Puts the files of directories, and of file lists, in their place.

    A directory's are those of its `_metadata.json`, or all that end so.
    """
    found = []
    for path in paths:
        if path.endswith(_LIST_SUFFIX):
            found += read_file_list(path)
            continue
        if not tf.io.gfile.isdir(path):
            found.append(path)
            continue
        metadata = read_metadata(os.path.join(path, METADATA_NAME))
        if metadata is not None:
            names = list(metadata.num_rows)
        else:
            names = [n for n in list_folder(path) if n.endswith(SUFFIX)]
            if not names:
                raise DataError(
                    f"{path}: has neither {METADATA_NAME} nor a file that ends "
                    f"in {SUFFIX}"
                )
        found += [os.path.join(path, name) for name in names]
    return found


def one_line(error: BaseException) -> str:
    """The message of an error of pyarrow on one line, never empty."""
    return describe_error(error).rstrip(".")
