"""NormDataset: HugeCTR's Norm files as a tf.data.Dataset."""

import functools
from typing import Any

import tensorflow as tf

from lodestar._checks import check_choice
from lodestar._formats import CHECKS
from lodestar._library import gen_ops
from lodestar._typing import StrPaths
from lodestar.data.record_dataset import (
    are_known,
    as_paths,
    options_of,
    record_dataset,
)
from lodestar.data.schema import SchemaLike, as_schema
from lodestar.data.shared_file_list import SharedFileList
from lodestar.hugectr.file_list import read_file_list
from lodestar.hugectr.key_records import slot_kinds
from lodestar.hugectr.norm_writer import NORM_KEY_TYPES

_AUTO = "auto"


def NormDataset(
    files: SharedFileList | StrPaths,
    schema: SchemaLike,
    batch_size: int,
    *,
    key_type: str = "uint32",
    check: str = _AUTO,
    **options: Any,
) -> tf.data.Dataset:
    """Returns batches of HugeCTR's Norm files (docs/internals/formats.md).

    The elements are those of `MultiSlotDataset`, and so are their order and how
    an iterator is saved. In the file all labels come
    first, then the values of all dense slots, then the keys of the sparse and
    one-hot slots, each in the order of `schema`. Labels and dense values are
    float32; where a slot is declared uint64 they must be whole numbers, and a
    dense slot comes as int64.

    >>> dataset = NormDataset("file_list.txt", spec, 1024)
    >>> model.fit(dataset)

    Args:
        files: One path or several, of any scheme that `tf.io.gfile` knows. A
            name that ends in `.txt` is a file list, but
            not with `open_command`; one that ends in `.gz` is decompressed. Or a
            `SharedFileList`, of files alone.
        schema: A `Schema`, the path of a schema file, or a list of `Column`s.
        batch_size: Samples a batch.
        key_type: `"uint32"`, or `"int64"` as HugeCTR's `i64_input_key=True`.
            The files do not say which; a wrong one is found by an `nnz` that
            cannot be, or in a file with checksums by a record's length.
        check: `"sum"`: files must have checksums; `"none"`: they must not;
            `"auto"`: each file says whether it has.
        **options: Those of every dataset: `drop_remainder`, `shuffle_rows`,
            `repeat`, `shard`, ...; see `ReadOptions`. With `on_error="skip"` a
            bad record costs the rest of its file where the next one cannot be
            found: behind a bad `nnz` without checksums, or a bad length.

    Raises:
        ValueError: An option is out of range, `files` is empty, a file list or
            a schema file is not valid, or no Norm file can hold the slots: sparse
            floats, dense of no fixed shape.
        tf.errors.InvalidArgumentError: While reading: a record is not as
            declared or its checksum differs ("path: record 7 at byte 1880: slot
            'C3': nnz is ...", records and bytes count from 0), the header is
            not as declared, records are missing, or bytes follow the last.
            Samples before a bad record have come first.
        tf.errors.NotFoundError: While reading: a file is missing.
        tf.errors.FailedPreconditionError: While reading, whatever `on_error`
            says: a file was written to meanwhile, or has another size than when
            the iterator was saved.
    """
    check_choice("key_type", key_type, NORM_KEY_TYPES)
    check_choice("check", check, (_AUTO, *CHECKS))
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
