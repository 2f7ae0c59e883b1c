"""What users of Paddle know: MultiSlot text, its readers, and training by threads."""

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
from lodestar.paddle.train_from_dataset import train_from_dataset

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
    "train_from_dataset",
]
