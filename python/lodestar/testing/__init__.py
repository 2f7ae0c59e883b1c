"""A small data set and local clusters for tests."""

from lodestar.testing.census import census_file
from lodestar.testing.local_cluster import LocalCluster

__all__ = ["LocalCluster", "census_file"]
__dir__ = __all__.copy
