"""HugeCTR's formats: Norm and Raw files, file lists, and CSR buffers."""

from lodestar.hugectr.csr_builder import CsrBuilder
from lodestar.hugectr.file_list import read_file_list, write_file_list
from lodestar.hugectr.norm_dataset import NormDataset
from lodestar.hugectr.norm_writer import NormWriter
from lodestar.hugectr.raw_dataset import RawDataset
from lodestar.hugectr.raw_writer import RawWriter
from lodestar.ragged.csr import from_csr, to_csr

__all__ = [
    "CsrBuilder",
    "NormDataset",
    "NormWriter",
    "RawDataset",
    "RawWriter",
    "from_csr",
    "read_file_list",
    "to_csr",
    "write_file_list",
]
