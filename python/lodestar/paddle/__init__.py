"""MultiSlot text and other formats of Paddle."""

from lodestar.paddle.data_feed_desc import DataFeedDesc
from lodestar.paddle.in_memory_dataset import InMemoryDataset
from lodestar.paddle.multislot_generator import MultiSlotGenerator
from lodestar.paddle.parse_multislot import parse_multislot
from lodestar.paddle.readers import reader
from lodestar.paddle.selected_rows import SelectedRows

__all__ = [
    "DataFeedDesc",
    "InMemoryDataset",
    "MultiSlotGenerator",
    "SelectedRows",
    "parse_multislot",
    "reader",
]
