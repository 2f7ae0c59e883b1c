"""Serves models: live updates, metrics and warm-up."""

from lodestar.serving.live_model import LiveModel
from lodestar.serving.open_metrics import openmetrics
from lodestar.serving.warm_up import write_warm_up

__all__ = ["LiveModel", "openmetrics", "write_warm_up"]
__dir__ = __all__.copy
