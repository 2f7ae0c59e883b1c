"""Errors of served models."""

from lodestar.snapshot.errors import SnapshotError


class OtherModelError(SnapshotError):
    """A snapshot does not fit the model, so trying again is useless."""
