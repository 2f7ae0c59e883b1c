"""Lodestar: sparse features for TensorFlow 2 and Keras 3."""

from lodestar import _library as _library
from lodestar.embedding import EmbeddingRows as EmbeddingRows
from lodestar.embedding import EmbeddingVariable as EmbeddingVariable
from lodestar.version import __version__

__all__ = [
    "EmbeddingRows",
    "EmbeddingVariable",
    "__version__",
]
