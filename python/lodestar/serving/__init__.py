"""Served models that follow training."""

from lodestar.serving.live_model import LiveModel

__all__ = [
    "LiveModel",
]
