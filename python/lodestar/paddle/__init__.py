"""MultiSlot text and other formats of Paddle: readers, writers, generators."""

from lodestar.paddle.data_feed_desc import DataFeedDesc
from lodestar.paddle.in_memory_dataset import InMemoryDataset, MergeCounts
from lodestar.paddle.multislot_dataset import MultiSlotDataset
from lodestar.paddle.multislot_generator import (
    MultiSlotGenerator,
    MultiSlotStringGenerator,
)
from lodestar.paddle.multislot_writer import MultiSlotWriter
from lodestar.paddle.parse_multislot import parse_multislot
from lodestar.paddle.readers import batch_reader, sample_reader
from lodestar.paddle.selected_rows import SelectedRows

__all__ = [
    "DataFeedDesc",
    "InMemoryDataset",
    "MergeCounts",
    "MultiSlotDataset",
    "MultiSlotGenerator",
    "MultiSlotStringGenerator",
    "MultiSlotWriter",
    "SelectedRows",
    "batch_reader",
    "parse_multislot",
    "sample_reader",
]
