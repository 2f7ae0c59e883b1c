"""Tables of keys to ids."""

from lodestar.lookup.hasher_spec import HasherSpec
from lodestar.lookup.id_table import IdTable, IdTableWithHashBuckets

__all__ = ["HasherSpec", "IdTable", "IdTableWithHashBuckets"]
