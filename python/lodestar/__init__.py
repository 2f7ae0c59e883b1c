"""Lodestar: sparse features for TensorFlow 2 and Keras 3."""

from lodestar import _library as _library
from lodestar.version import __version__

__all__ = [
    "__version__",
]
