"""Paddle's file formats, datasets and training by threads."""

# First, because its readers import modules of this package.
import lodestar.data  # noqa: F401, I001
from lodestar.paddle.data_feed_desc import DataFeedDesc
from lodestar.paddle.in_memory_dataset import InMemoryDataset
from lodestar.paddle.multislot_generator import MultiSlotGenerator
from lodestar.paddle.parse_multislot import parse_multislot
from lodestar.paddle.readers import reader
from lodestar.paddle.selected_rows import SelectedRows
from lodestar.paddle.train_from_dataset import train_from_dataset

__all__ = [
    "DataFeedDesc",
    "InMemoryDataset",
    "MultiSlotGenerator",
    "SelectedRows",
    "parse_multislot",
    "reader",
    "train_from_dataset",
]
__dir__ = __all__.copy
