"""Tables that map keys to ids."""

from lodestar.lookup.id_table import IdTable

__all__ = ["IdTable"]
