"""Models for serving."""

from lodestar.export.saved_model import saved_model as saved_model

__all__ = [
    "saved_model",
]
