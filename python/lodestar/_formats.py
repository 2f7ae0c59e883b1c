"""Names of file formats, and the choices of their options.

Parsers of command lines offer them before TensorFlow is imported.
"""

# In the order in which help lists them.
FORMAT_NAMES = (
    "multislot",
    "norm",
    "raw",
    "parquet",
    "tfrecord",
    "csv",
    "tsv",
)
# How the cells of an id slot of a CSV file are read.
ID_FORMS = ("hash", "hex", "int")
# Types of the keys in Norm and Raw files.
KEY_TYPES = ("uint32", "int32", "int64")
# Checksums of Norm files.
CHECKS = ("sum", "none")
# Layouts of Raw files.
LAYOUTS = ("float", "int", "multi_hot_float", "multi_hot_int")
