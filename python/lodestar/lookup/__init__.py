"""Tables of keys to ids."""

from lodestar.lookup.hasher_spec import HasherSpec
from lodestar.lookup.id_table import IdTable
from lodestar.lookup.id_table_with_hash_buckets import IdTableWithHashBuckets

__all__ = ["HasherSpec", "IdTable", "IdTableWithHashBuckets"]
