"""Models for serving."""

from lodestar.export.compare import MismatchError, OutputDifference
from lodestar.export.saved_model import saved_model
from lodestar.export.stock_saved_model import stock_saved_model
from lodestar.export.verify import Verification, verify

__all__ = [
    "MismatchError",
    "OutputDifference",
    "Verification",
    "saved_model",
    "stock_saved_model",
    "verify",
]
