"""A data set and clusters to test models on."""

from lodestar.testing.census import census_file
from lodestar.testing.local_cluster import LocalCluster

__all__ = ["LocalCluster", "census_file"]
