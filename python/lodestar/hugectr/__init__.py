"""HugeCTR's CSR buffers.

`lodestar.data.open_dataset` and `open_writer` read and write Norm, Raw and
Parquet files. `open_dataset` also takes a file list.
"""

# First, because its readers import modules of this package.
import lodestar.data  # noqa: F401, I001
from lodestar.hugectr.csr_builder import CsrBuilder
from lodestar.ragged.csr import from_csr, to_csr

__all__ = [
    "CsrBuilder",
    "from_csr",
    "to_csr",
]
__dir__ = __all__.copy
