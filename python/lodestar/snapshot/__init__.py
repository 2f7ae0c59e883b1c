"""Snapshots of models and tables: full, or incremental as deltas.

A folder of snapshots has one subfolder per version, which appears atomically.
docs/snapshot.md describes them.
"""

from lodestar.snapshot.compaction import compact
from lodestar.snapshot.errors import CorruptSnapshotError, SnapshotError
from lodestar.snapshot.info import versions
from lodestar.snapshot.model import restore, save
from lodestar.snapshot.resumable_dataset import ResumableDataset
from lodestar.snapshot.verifying import verify

__all__ = [
    "CorruptSnapshotError",
    "ResumableDataset",
    "SnapshotError",
    "compact",
    "restore",
    "save",
    "verify",
    "versions",
]
