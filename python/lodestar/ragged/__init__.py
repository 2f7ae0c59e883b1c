"""Nested sequences of variable length, and conversions."""

from lodestar.ragged.lod_tensor import LoDTensor
from lodestar.ragged.sparse_csr import csr_to_sparse, sparse_to_csr

__all__ = ["LoDTensor", "csr_to_sparse", "sparse_to_csr"]
__dir__ = __all__.copy
