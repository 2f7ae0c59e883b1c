"""Full and incremental snapshots of models and tables.

A snapshot folder has one subfolder per version, which appears atomically.
docs/training.md describes snapshots.
"""

from lodestar.snapshot.compaction import compact
from lodestar.snapshot.copying import copy
from lodestar.snapshot.errors import CorruptSnapshotError, SnapshotError
from lodestar.snapshot.info import versions
from lodestar.snapshot.model import restore, save
from lodestar.snapshot.resumable_dataset import ResumableDataset
from lodestar.snapshot.save_interval import SaveInterval
from lodestar.snapshot.verifying import verify

__all__ = [
    "CorruptSnapshotError",
    "ResumableDataset",
    "SaveInterval",
    "SnapshotError",
    "compact",
    "copy",
    "restore",
    "save",
    "verify",
    "versions",
]
__dir__ = __all__.copy
