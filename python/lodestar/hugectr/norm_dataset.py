"""HugeCTR's Norm files as a tf.data.Dataset."""

import functools
from typing import Unpack, get_args

import tensorflow as tf

from lodestar._checks import check_choice
from lodestar._formats import NormKeyType, ReadChecks
from lodestar._library import gen_ops
from lodestar._typing import StrPaths
from lodestar.data.record_dataset import (
    ReadArguments,
    are_known,
    as_paths,
    options_of,
    record_dataset,
)
from lodestar.data.shared_file_list import SharedFileList
from lodestar.hugectr.file_list import read_file_list
from lodestar.hugectr.key_records import slot_kinds
from lodestar.schema import SchemaLike, as_schema


def NormDataset(
    files: SharedFileList | StrPaths,
    schema: SchemaLike,
    batch_size: int,
    *,
    key_type: NormKeyType = "uint32",
    check: ReadChecks = "auto",
    **options: Unpack[ReadArguments],
) -> tf.data.Dataset:
    """Returns batches of HugeCTR's Norm files (docs/internals/formats.md).

    `open_dataset` describes the options and errors. A sample has labels, then the
    values of dense slots, then the keys of sparse and one-hot slots, each in the
    order of `schema`. Labels and dense values are float32; if a slot is declared
    uint64 they must be whole numbers, and a dense slot is read as int64. A path
    that ends in `.txt` is a file list, except with `open_command` or in a
    `SharedFileList`.

    The files do not record `key_type` (`"int64"` is HugeCTR's
    `i64_input_key=True`). A wrong one causes an invalid `nnz` or, in a file with
    checksums, an invalid length of a record. With `on_error="skip"`, an invalid
    record costs the rest of its file if the next one cannot be found: after an
    invalid `nnz` without checksums, or an invalid length. In an error while reading
    ("path: record 7 at byte 1880: slot 'C3': nnz is ..."), records and bytes count
    from 0.
    """
    check_choice("key_type", key_type, get_args(NormKeyType))
    check_choice("check", check, get_args(ReadChecks))
    spec = as_schema(schema)
    read = options_of(NormDataset, batch_size, options)
    op = functools.partial(
        gen_ops.lodestar_norm_dataset,
        slot_kinds=slot_kinds(spec),
        key_type=key_type,
        check=check,
    )
    if are_known(files, read):
        paths = as_paths(files)
        files = []
        for path in paths:
            files += read_file_list(path) if path.endswith(".txt") else [path]
    return record_dataset(op, files, spec, read)
