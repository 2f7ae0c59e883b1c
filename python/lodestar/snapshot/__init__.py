"""Snapshots of tables and models, full and of changes only.

A folder of snapshots holds versions, each in a folder of its own that is there
whole or not at all; docs/snapshot.md describes them.
"""

from typing import Any

from lodestar.snapshot.compaction import CompactReport, compact
from lodestar.snapshot.errors import (
    CorruptSnapshotError,
    SnapshotError,
    SnapshotLockedError,
)
from lodestar.snapshot.info import SnapshotInfo, list_snapshots
from lodestar.snapshot.model import restore_model, save_model
from lodestar.snapshot.restoring import RestoreReport, load_dense, restore
from lodestar.snapshot.resumable_dataset import ResumableDataset
from lodestar.snapshot.saving import PendingSnapshot, save
from lodestar.snapshot.verifying import VerifyReport, verify

__all__ = [
    "CompactReport",
    "CorruptSnapshotError",
    "PendingSnapshot",
    "RestoreReport",
    "ResumableDataset",
    "SnapshotError",
    "SnapshotInfo",
    "SnapshotLockedError",
    "VerifyReport",
    "compact",
    "load_dense",
    "restore",
    "restore_model",
    "save",
    "save_model",
    "verify",
]


def __getattr__(name: str) -> Any:
    # `list` is public, and hides the builtin neither here nor where all public
    # names are imported.
    if name == "list":
        return list_snapshots
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), "list"]
