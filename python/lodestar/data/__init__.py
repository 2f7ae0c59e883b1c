"""Data sets of click logs: readers, writers, conversion, generation."""

from lodestar.data.multislot_dataset import MultiSlotDataset
from lodestar.data.slot_spec import Slot, SlotSpec

__all__ = [
    "MultiSlotDataset",
    "Slot",
    "SlotSpec",
]
