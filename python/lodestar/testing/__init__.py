"""Data whose truth is known, and stock tables, to test models on."""

from lodestar.testing.click_log import (
    ClickLog,
    click_log_slots,
    generate_click_log,
)
from lodestar.testing.dense_table import DenseTable, vocabulary

__all__ = [
    "ClickLog",
    "DenseTable",
    "click_log_slots",
    "generate_click_log",
    "vocabulary",
]
