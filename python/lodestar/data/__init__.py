"""Data sets of samples: schemas, readers of every format, writers."""

from lodestar._errors import DataError
from lodestar.data.file_list_server import FileListServer
from lodestar.data.files_by_day import files_by_day
from lodestar.data.open_dataset import open_dataset
from lodestar.data.open_writer import open_writer
from lodestar.data.shared_file_list import SharedFileList
from lodestar.data.skipped_records import SkippedRecords
from lodestar.schema import Column, Schema

__all__ = [
    "Column",
    "DataError",
    "FileListServer",
    "Schema",
    "SharedFileList",
    "SkippedRecords",
    "files_by_day",
    "open_dataset",
    "open_writer",
]
__dir__ = __all__.copy
