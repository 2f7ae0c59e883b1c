"""Models for serving."""

from lodestar.export.saved_model import saved_model as saved_model
from lodestar.export.stock_saved_model import (
    stock_saved_model as stock_saved_model,
)

__all__ = [
    "saved_model",
    "stock_saved_model",
]
