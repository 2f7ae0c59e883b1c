"""RawDataset: HugeCTR's Raw files as a tf.data.Dataset."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from lodestar._checks import check_choice, check_count
from lodestar._errors import DataError
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
from lodestar.hugectr.key_records import KEY_DTYPES, WORD, slot_kinds
from lodestar.hugectr.raw_writer import raw_key_types, raw_nnz
from lodestar.hugectr.slot_sizes import slot_offsets


def RawDataset(
    files: SharedFileList | StrPaths,
    schema: SchemaLike,
    batch_size: int,
    *,
    num_samples: int | None = None,
    layout: str = "float",
    key_type: str = "uint32",
    nnz_per_slot: int | Sequence[int] | None = None,
    slot_size_array: Sequence[int] | None = None,
    **options: Any,
) -> tf.data.Dataset:
    """Returns batches of HugeCTR's Raw files (docs/internals/formats.md).

    The elements are those of `MultiSlotDataset`, and so are their order and how
    an iterator is saved. Every sample takes as many
    bytes: all labels come first, then the values of all dense slots, then the
    keys of the sparse and one-hot slots, each in the order of `schema`. Nothing
    in the file says so; `layout`, `key_type` and `nnz_per_slot` mean what they
    do in `RawWriter`.

    A dense int32 x is read as log(x + 1) in float32, and must be 0 or more; by
    a slot declared uint64 as x itself.

    >>> dataset = RawDataset("clicks.raw", spec, 1024, layout="int")
    >>> model.fit(dataset)

    Args:
        files: One path or several, of any scheme that `tf.io.gfile` knows; a
            name that ends in `.gz` is decompressed. Or a `SharedFileList`.
        schema: A `Schema`, the path of a schema file, or a list of `Column`s.
        batch_size: Samples a batch.
        num_samples: The samples to read of each file, from its beginning; it
            must have as many or more. None for all.
        layout: `"float"`, `"int"`, `"multi_hot_float"` or `"multi_hot_int"`.
        key_type: `"uint32"`, or as `layout` allows `"int32"` or `"int64"`.
        nnz_per_slot: With a multi-hot layout: the keys of every sparse and
            one-hot slot, in order, or one number for all; None is 1.
        slot_size_array: For each sparse slot one more than its largest key.
            Keys are checked, and the sizes of the slots before are added.
        **options: Those of every dataset: `drop_remainder`, `shuffle_rows`,
            `repeat`, `shard`, ...; see `ReadOptions`.

    Raises:
        ValueError: An option is out of range, `files` is empty, a schema file is
            not valid, or no Raw file can hold the slots: sparse floats, dense
            of no fixed shape. With the class `DataError`, unless
            `on_error="skip"`, `open_command` or a `SharedFileList`: a file's size
            is not a multiple of a sample's, or less than that of `num_samples`.
        tf.errors.InvalidArgumentError: While reading: a value is not as
            declared ("path: record 7 at byte 1120: slot 'click': ...", records
            and bytes count from 0), or the size of a file that was not checked
            before, or is compressed, is not as above. Samples before a bad record
            have come first.
        tf.errors.NotFoundError: While reading: a file is missing.
        tf.errors.FailedPreconditionError: While reading, whatever `on_error`
            says: a file was written to meanwhile, or has another size than when
            the iterator was saved.
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
    """The op with these offsets, and these limits where a slot has a size."""

    def limited(*, slot_limits: list[int], **arguments: Any) -> tf.Tensor:
        limits = [size or limit for size, limit in zip(sizes, slot_limits)]
        return op(slot_limits=limits, key_offsets=offsets, **arguments)

    return limited


def _check_size(path: str, stride: int, num_samples: int | None) -> None:
    """Refuses a file before garbage is read of it; others see reading fail."""
    if path.endswith(".gz"):
        return
    try:
        size = tf.io.gfile.stat(path).length
    except tf.errors.OpError:
        return
    if size % stride:
        raise DataError(
            f"{path}: its size is {size} bytes, wanted a multiple of the "
            f"{stride} of a sample; check the layout, the key type and the slots"
        )
    if num_samples is not None and size // stride < num_samples:
        raise DataError(
            f"{path}: its size is {size} bytes, {size // stride} samples of "
            f"{stride}, wanted {num_samples} samples"
        )
