"""Lodestar: sparse features for TensorFlow 2 and Keras 3."""

from lodestar import _library as _library
from lodestar import (
    callbacks,
    data,
    export,
    layers,
    lookup,
    optimizers,
    sequence,
)
from lodestar.embedding import EmbeddingRows, EmbeddingVariable
from lodestar.layers.feature import Feature
from lodestar.ragged import LoDTensor
from lodestar.version import __version__

__all__ = [
    "EmbeddingRows",
    "EmbeddingVariable",
    "Feature",
    "LoDTensor",
    "__version__",
    "callbacks",
    "data",
    "export",
    "layers",
    "lookup",
    "optimizers",
    "sequence",
]
