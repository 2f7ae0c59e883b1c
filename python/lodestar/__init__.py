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
from lodestar import export as export
from lodestar import layers as layers
from lodestar import optimizers as optimizers
from lodestar.embedding import EmbeddingRows as EmbeddingRows
from lodestar.embedding import EmbeddingVariable as EmbeddingVariable
from lodestar.layers.feature import Feature as Feature
from lodestar.version import __version__

__all__ = [
    "EmbeddingRows",
    "EmbeddingVariable",
    "Feature",
    "__version__",
    "export",
    "layers",
    "optimizers",
]
