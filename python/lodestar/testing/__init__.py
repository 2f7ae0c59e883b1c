"""Data, stock tables and clusters to test models on."""

from lodestar.testing.census import census_file
from lodestar.testing.click_log import (
    ClickLog,
    click_log_schema,
    generate_click_log,
)
from lodestar.testing.dense_table import DenseTable, vocabulary
from lodestar.testing.local_cluster import LocalCluster

__all__ = [
    "ClickLog",
    "DenseTable",
    "LocalCluster",
    "census_file",
    "click_log_schema",
    "generate_click_log",
    "vocabulary",
]
