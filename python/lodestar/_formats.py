"""Names of file formats, and the choices of their options.

The command line shows them before TensorFlow is imported.
"""

from typing import Literal, TypeAlias, get_args

# Formats that can be written, in the order of the help text.
WrittenFormat: TypeAlias = Literal[
    "multislot", "instant", "norm", "raw", "parquet", "tfrecord", "csv", "tsv"
]
WRITTEN_NAMES: tuple[WrittenFormat, ...] = get_args(WrittenFormat)
FormatName: TypeAlias = Literal[WrittenFormat, "arrow", "jsonl"]
FORMAT_NAMES: tuple[FormatName, ...] = get_args(FormatName)
# Types of the keys in Norm and in Norm and Raw files.
NormKeyType: TypeAlias = Literal["uint32", "int64"]
KeyType: TypeAlias = Literal["uint32", "int32", "int64"]
KEY_TYPES: tuple[KeyType, ...] = get_args(KeyType)
# Checksums of Norm files; "auto" finds out whether a file has them.
Checks: TypeAlias = Literal["sum", "none"]
CHECKS: tuple[Checks, ...] = get_args(Checks)
ReadChecks: TypeAlias = Literal["auto", Checks]
# Layouts of Raw files.
Layout: TypeAlias = Literal["float", "int", "multi_hot_float", "multi_hot_int"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
# Readers of MultiSlot files.
MultiSlotMode: TypeAlias = Literal["queue", "file_instant", "in_memory"]
# Form of the sparse columns of a batch.
SparseForm: TypeAlias = Literal["ragged", "lod", "csr"]
# What to do with a bad record or a missing file.
OnError: TypeAlias = Literal["raise", "skip"]
