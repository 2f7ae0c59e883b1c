"""HugeCTR's file lists and CSR buffers.

`lodestar.data.open_dataset` and `open_writer` read and write its Norm, Raw and
Parquet files.
"""

from lodestar.hugectr.csr_builder import CsrBuilder
from lodestar.hugectr.file_list import read_file_list, write_file_list
from lodestar.ragged.csr import from_csr, to_csr

__all__ = [
    "CsrBuilder",
    "from_csr",
    "read_file_list",
    "to_csr",
    "write_file_list",
]
