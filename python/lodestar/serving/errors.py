"""Why a snapshot is not served."""

from lodestar.snapshot.errors import SnapshotError


class OtherModelError(SnapshotError):
    """It does not fit the model: to try again is of no use."""
