"""Compressed sparse rows, of one feature slot or of several in one buffer.

HugeCTR's readers keep one CSR for all slots of a batch: `row_offsets` has
slots x batch + 1 numbers, and sample b's ids of slot s are the row
b * slots + s ("sample_major") or, where a slot's samples stand together,
s * batch + b ("slot_major").
"""

from collections.abc import Sequence

import tensorflow as tf

from lodestar._checks import after, as_vector, check_least
from lodestar._typing import TensorLike
from lodestar.ragged.arguments import as_values, check_rows_like, validated
from lodestar.ragged.lod_tensor import LoDTensor

_ORDERS = ("sample_major", "slot_major")


def _check_order(order: str) -> None:
    if order not in _ORDERS:
        raise ValueError(
            f"`order` is {order!r}, wanted 'sample_major' or 'slot_major'"
        )


def _transpose(
    values: tf.Tensor, offsets: tf.Tensor, columns: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads units, rows of a matrix of that many columns, column by column."""

    def transpose(x: tf.Tensor) -> tf.Tensor:
        # Without columns there are no units either.
        num_rows = tf.size(x, out_type=tf.int64) // tf.maximum(columns, 1)
        shape = tf.stack([num_rows, columns])
        return tf.reshape(tf.transpose(tf.reshape(x, shape)), [-1])

    begins, ends = transpose(offsets[:-1]), transpose(offsets[1:])
    rows = tf.ragged.range(begins, ends)
    return tf.gather(values, rows.flat_values), rows.row_splits


def from_csr(
    row_offsets: TensorLike,
    values: TensorLike,
    num_slots: int = 1,
    order: str = "sample_major",
) -> list[LoDTensor]:
    """Splits one CSR into one LoDTensor for each feature slot.

    Args:
        row_offsets: int64 or int32 `[num_slots * batch + 1]`.
        values: `[N, ...]`.
        num_slots: Number of feature slots in the CSR.
        order: `"sample_major"`: row `b * num_slots + s` holds slot s of sample
            b, as in HugeCTR's readers. `"slot_major"`: row `s * batch + b`.

    Returns:
        A LoDTensor of one level for each slot. A single slot shares the buffers
        of the arguments.

    Raises:
        ValueError: `order` is unknown or `num_slots` is below 1.
        tf.errors.InvalidArgumentError: The offsets do not cover the values, or
            the number of rows is not a multiple of `num_slots` (ValueError where
            that is known while tracing).
    """
    _check_order(order)
    check_least("num_slots", num_slots, 1)
    values = as_values(values)
    offsets = as_vector("row_offsets", row_offsets)
    _, (offsets,) = validated(values, [offsets])
    if num_slots == 1:
        return [LoDTensor(values, (offsets,))]
    units = tf.size(offsets, out_type=tf.int64) - 1
    static = offsets.shape[0]
    message = "`row_offsets` has {} rows, wanted a multiple of `num_slots`=" + (
        str(num_slots)
    )
    if static is not None and (static - 1) % num_slots:
        raise ValueError(message.format(static - 1))
    check = tf.debugging.assert_equal(
        units % num_slots,
        tf.constant(0, tf.int64),
        message.format("a number of"),
    )
    offsets = after(check, offsets)
    batch = units // num_slots
    if order == "sample_major":
        values, offsets = _transpose(
            values, offsets, tf.constant(num_slots, tf.int64)
        )
    slots = []
    for s in range(num_slots):
        level = offsets[s * batch : (s + 1) * batch + 1]
        slots.append(
            LoDTensor(values[level[0] : level[-1]], (level - level[0],))
        )
    return slots


def to_csr(
    slots: Sequence[LoDTensor],
    order: str = "sample_major",
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Puts the rows of several LoDTensors, one a feature slot, into one CSR.

    The inverse of `from_csr`.

    Args:
        slots: LoDTensors of one level each and as many units, the samples of a
            batch. Their values have one dtype and shape of row.
        order: "sample_major", all slots of a sample side by side, as HugeCTR's
            readers have them; or "slot_major", all samples of a slot.
        name: A name for the ops.

    Returns:
        row_offsets: int64 `[slots * batch + 1]`.
        values: `[N, ...]`, N the rows of all slots.

    Raises:
        ValueError: another order, no slot, a slot that has not one level or
            other rows.
        TypeError: one is no LoDTensor; slots of different dtypes.
        tf.errors.InvalidArgumentError: slots with different numbers of units
            (ValueError where that is known while tracing).
    """
    _check_order(order)
    slots = list(slots)
    if not slots:
        raise ValueError("`slots` is empty, wanted one LoDTensor or more")
    for s, slot in enumerate(slots):
        if not isinstance(slot, LoDTensor):
            raise TypeError(
                f"`slots[{s}]` must be a LoDTensor, found {type(slot)}"
            )
        if len(slot.lod) != 1:
            raise ValueError(
                f"`slots[{s}]` has {len(slot.lod)} levels, wanted one"
            )
        check_rows_like(
            f"slots[{s}]", slot.values, "`slots[0]`", slots[0].values
        )
    if len(slots) == 1:
        return slots[0].lod[0], slots[0].values
    with tf.name_scope(name or "to_csr"):
        units = tf.size(slots[0].lod[0])
        lengths = []
        for s, slot in enumerate(slots):
            check = tf.debugging.assert_equal(
                tf.size(slot.lod[0]),
                units,
                f"`slots[{s}]` and `slots[0]` have different numbers of units",
            )
            level = after(check, slot.lod[0])
            lengths.append(level[1:] - level[:-1])
        offsets = tf.concat([[0], tf.cumsum(tf.concat(lengths, 0))], 0)
        values = tf.concat([slot.values for slot in slots], 0)
        if order == "sample_major":
            values, offsets = _transpose(
                values, offsets, tf.cast(units - 1, tf.int64)
            )
        return offsets, values
