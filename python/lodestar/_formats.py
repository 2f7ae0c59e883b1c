"""Names of file formats, and the choices of their options.

The command line shows them before TensorFlow is imported.
"""

# In the order of the help text.
FORMAT_NAMES = (
    "multislot",
    "instant",
    "norm",
    "raw",
    "parquet",
    "arrow",
    "tfrecord",
    "csv",
    "tsv",
    "jsonl",
)
# Formats that can be written.
WRITTEN_NAMES = tuple(
    name for name in FORMAT_NAMES if name not in ("arrow", "jsonl")
)
# Types of the keys in Norm and Raw files.
KEY_TYPES = ("uint32", "int32", "int64")
# Checksums of Norm files.
CHECKS = ("sum", "none")
# Layouts of Raw files.
LAYOUTS = ("float", "int", "multi_hot_float", "multi_hot_int")
