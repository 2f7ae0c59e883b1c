"""Data sets of click logs: readers, writers, conversion.

The generator of click logs is in `lodestar.testing`, and `exact_auc` in
`lodestar.metrics`; their names are here, too, where they once were.
"""

from lodestar._commands.data_parser import add_read_arguments
from lodestar._errors import DataError, describe_error
from lodestar.data.csv.csv_dataset import CsvDataset
from lodestar.data.csv.csv_table import parse_label
from lodestar.data.csv.csv_writer import CsvWriter
from lodestar.data.csv.hashing import hash_ids, hash_ids_tensor
from lodestar.data.data_feed_desc import DataFeedDesc
from lodestar.data.example.example_dataset import ExampleDataset
from lodestar.data.example.example_writer import ExampleWriter
from lodestar.data.file_list_server import FileListServer
from lodestar.data.files_by_day import files_by_day
from lodestar.data.hugectr.file_list import read_file_list, write_file_list
from lodestar.data.hugectr.norm_dataset import NormDataset
from lodestar.data.hugectr.norm_writer import NormWriter
from lodestar.data.hugectr.raw_dataset import RawDataset
from lodestar.data.hugectr.raw_writer import RawWriter
from lodestar.data.multislot.in_memory_dataset import (
    InMemoryDataset,
    MergeCounts,
)
from lodestar.data.multislot.multislot_dataset import MultiSlotDataset
from lodestar.data.multislot.multislot_generator import (
    MultiSlotGenerator,
    MultiSlotStringGenerator,
)
from lodestar.data.multislot.multislot_writer import MultiSlotWriter
from lodestar.data.multislot.parse_multislot import parse_multislot
from lodestar.data.parquet.parquet_dataset import ParquetDataset
from lodestar.data.parquet.parquet_writer import ParquetWriter
from lodestar.data.readers import batch_reader, sample_reader
from lodestar.data.record_dataset import ReadOptions
from lodestar.data.sample_writer import SampleWriter
from lodestar.data.schema import Column, Schema
from lodestar.data.shared_file_list import SharedFileList
from lodestar.data.skipped_records import SkippedRecords
from lodestar.data.source import Source
from lodestar.data.table.table_dataset import TableDataset
from lodestar.data.tool.convert_csv import convert_csv
from lodestar.data.tool.file_dataset import FileDataset
from lodestar.data.tool.find_format import expand_inputs, one_format
from lodestar.data.tool.open_files import open_dataset, open_source
from lodestar.data.tool.output import schema_path
from lodestar.data.tool.prepare_files import (
    OtherFilesError,
    PreparedFiles,
    prepare_files,
    prepare_once,
    read_files,
)
from lodestar.data.tool.split_samples import split_samples
from lodestar.data.tool.tool_options import given_options
from lodestar.metrics.exact_auc import exact_auc
from lodestar.testing.click_log import (
    ClickLog,
    click_log_schema,
    generate_click_log,
)

__all__ = [
    "ClickLog",
    "Column",
    "CsvDataset",
    "CsvWriter",
    "DataError",
    "DataFeedDesc",
    "ExampleDataset",
    "ExampleWriter",
    "FileDataset",
    "FileListServer",
    "InMemoryDataset",
    "MergeCounts",
    "MultiSlotDataset",
    "MultiSlotGenerator",
    "MultiSlotStringGenerator",
    "MultiSlotWriter",
    "NormDataset",
    "NormWriter",
    "OtherFilesError",
    "ParquetDataset",
    "ParquetWriter",
    "PreparedFiles",
    "RawDataset",
    "RawWriter",
    "ReadOptions",
    "SampleWriter",
    "SharedFileList",
    "SkippedRecords",
    "Schema",
    "Source",
    "TableDataset",
    "add_read_arguments",
    "batch_reader",
    "click_log_schema",
    "convert_csv",
    "describe_error",
    "exact_auc",
    "expand_inputs",
    "files_by_day",
    "generate_click_log",
    "given_options",
    "hash_ids",
    "hash_ids_tensor",
    "one_format",
    "open_dataset",
    "open_source",
    "parse_label",
    "parse_multislot",
    "prepare_files",
    "prepare_once",
    "read_file_list",
    "read_files",
    "sample_reader",
    "schema_path",
    "split_samples",
    "write_file_list",
]
