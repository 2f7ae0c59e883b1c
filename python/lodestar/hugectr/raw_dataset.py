"""HugeCTR's Raw files as a tf.data.Dataset."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import tensorflow as tf

from lodestar._checks import check_choice, check_count
from lodestar._errors import DataError
from lodestar._formats import KeyType, Layout
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
from lodestar.hugectr.key_records import KEY_DTYPES, WORD, slot_kinds
from lodestar.hugectr.raw_writer import raw_key_types, raw_nnz
from lodestar.hugectr.slot_sizes import slot_offsets
from lodestar.schema import SchemaLike, as_schema


def RawDataset(
    files: SharedFileList | StrPaths,
    schema: SchemaLike,
    batch_size: int,
    *,
    num_samples: int | None = None,
    layout: Layout = "float",
    key_type: KeyType = "uint32",
    nnz_per_slot: int | Sequence[int] | None = None,
    slot_size_array: Sequence[int] | None = None,
    **options: Unpack[ReadArguments],
) -> tf.data.Dataset:
    """Returns batches of HugeCTR's Raw files (docs/internals/formats.md).

    `open_dataset` describes the options and errors. All samples have the same size:
    labels, then the values of dense slots, then the keys of sparse and one-hot
    slots, each in the order of `schema`. The file does not record `layout`,
    `key_type` and `nnz_per_slot`, which must match the writer's. A dense int32
    x is read as the float32 log(x + 1) and must be at least 0; a slot declared
    uint64 is read as x itself.

    Raises DataError, unless `on_error="skip"`, `open_command` or a `SharedFileList` is
    used, if the size of a file is not a multiple of a sample's, or less than
    `num_samples`. In an error while reading ("path: record 7 at byte 1120: slot
    'click': ..."), records and bytes count from 0.
    """
    spec = as_schema(schema)
    read = options_of(RawDataset, batch_size, options)
    kinds = slot_kinds(spec)
    key_types = raw_key_types(layout)
    check_choice("key_type", key_type, key_types)
    if num_samples is not None:
        check_count("num_samples", num_samples, 1)
    nnz = raw_nnz(spec, layout, nnz_per_slot)
    if read.on_error == "raise" and are_known(files, read):
        stride = (
            sum(s.num_values or 0 for s in spec if s.name not in nnz)
            * WORD.itemsize
            + sum(nnz.values()) * KEY_DTYPES[key_type].itemsize
        )
        for path in as_paths(files):
            _check_size(path, stride, num_samples)
    op: Callable[..., tf.Tensor] = functools.partial(
        gen_ops.lodestar_raw_dataset,
        slot_kinds=kinds,
        key_type=key_type,
        label_type="float" if layout == "float" else "int",
        dense_type="int" if layout.endswith("int") else "float",
        nnz_per_slot=list(nnz.values()),
        num_samples=num_samples or 0,
    )
    if slot_size_array is not None:
        keys = [slot for slot in spec if slot.name in nnz]
        offsets = slot_offsets(keys, slot_size_array)
        sizes = dict(zip(nnz, map(int, slot_size_array)))
        op = _with_limits(op, offsets, [sizes.get(s.name, 0) for s in spec])
    return record_dataset(op, files, spec, read)


def _with_limits(
    op: Callable[..., tf.Tensor], offsets: list[int], sizes: list[int]
) -> Callable[..., tf.Tensor]:
    """Returns the op with these offsets, and limits for slots with a size."""

    def limited(*, slot_limits: list[int], **arguments: Any) -> tf.Tensor:
        limits = [size or limit for size, limit in zip(sizes, slot_limits)]
        return op(slot_limits=limits, key_offsets=offsets, **arguments)

    return limited


def _check_size(path: str, stride: int, num_samples: int | None) -> None:
    """Rejects a file of the wrong size; errors of access are left to the op."""
    if path.endswith(".gz"):
        return
    try:
        size = tf.io.gfile.stat(path).length
    except tf.errors.OpError:
        return
    # The same words as in tf_ops/core/records/raw_format.cc.
    if size % stride:
        raise DataError(
            f"{path}: its size is {size} bytes, expected a multiple of the "
            f"{stride} of a sample; check the layout, the key type and the slots"
        )
    if num_samples is not None and size // stride < num_samples:
        raise DataError(
            f"{path}: its size is {size} bytes, {size // stride} samples of "
            f"{stride}, expected {num_samples} samples"
        )
