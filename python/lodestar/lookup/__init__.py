"""Tables of keys to ids."""

from lodestar.lookup.hasher_spec import (
    FastHashSpec,
    HasherSpec,
    LegacyHashSpec,
    StrongHashSpec,
)
from lodestar.lookup.id_table import IdTable
from lodestar.lookup.id_table_with_hash_buckets import IdTableWithHashBuckets
from lodestar.lookup.index_table import (
    index_table_from_file,
    index_table_from_tensor,
)

__all__ = [
    "FastHashSpec",
    "HasherSpec",
    "IdTable",
    "IdTableWithHashBuckets",
    "LegacyHashSpec",
    "StrongHashSpec",
    "index_table_from_file",
    "index_table_from_tensor",
]
