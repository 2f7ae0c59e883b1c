"""Data whose truth is known, to test models on."""

from lodestar.testing.click_log import (
    ClickLog,
    click_log_slots,
    generate_click_log,
)

__all__ = ["ClickLog", "click_log_slots", "generate_click_log"]
