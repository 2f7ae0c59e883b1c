"""Models for serving."""

from lodestar.export.compare import MismatchError as MismatchError
from lodestar.export.compare import OutputDifference as OutputDifference
from lodestar.export.saved_model import saved_model as saved_model
from lodestar.export.stock_saved_model import (
    stock_saved_model as stock_saved_model,
)
from lodestar.export.verify import Verification as Verification
from lodestar.export.verify import verify as verify

__all__ = [
    "MismatchError",
    "OutputDifference",
    "Verification",
    "saved_model",
    "stock_saved_model",
    "verify",
]
