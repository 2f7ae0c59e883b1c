"""Lodestar: sparse features for TensorFlow 2 and Keras 3."""

from lodestar import _library as _library
from lodestar import layers, lookup, sequence
from lodestar.ragged import LoDTensor
from lodestar.version import __version__

__all__ = [
    "LoDTensor",
    "__version__",
    "layers",
    "lookup",
    "sequence",
]
