"""Nested sequences of variable length, and what they are converted to."""

from lodestar.ragged.batching import batch
from lodestar.ragged.csr import to_csr
from lodestar.ragged.csr_builder import CsrBuilder
from lodestar.ragged.lod_tensor import LoDTensor
from lodestar.ragged.selected_rows import SelectedRows

__all__ = ["CsrBuilder", "LoDTensor", "SelectedRows", "batch", "to_csr"]
