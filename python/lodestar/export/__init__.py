"""Exports models as SavedModels for serving."""

from lodestar.export.save import save
from lodestar.export.save_plain import save_plain
from lodestar.export.verify import verify

__all__ = ["save", "save_plain", "verify"]
__dir__ = __all__.copy
