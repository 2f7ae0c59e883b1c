"""Tables that map keys to ids."""

from lodestar.lookup.hash_buckets import (
    IdTableWithHashBuckets,
    index_table_from_tensor,
)
from lodestar.lookup.id_table import IdTable

__all__ = ["IdTable", "IdTableWithHashBuckets", "index_table_from_tensor"]
__dir__ = __all__.copy
