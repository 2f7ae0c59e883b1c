"""Compressed sparse rows (CSR) of one or several feature slots in one buffer.

HugeCTR's readers keep one CSR for all slots of a batch. `row_offsets` has
slots * batch + 1 numbers. The ids of slot s of sample b are row b * slots + s
("sample_major") or row s * batch + b ("slot_major").
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import tensorflow as tf

from lodestar._checks import after, as_vector, check_count
from lodestar._typing import TensorLike
from lodestar.ragged.arguments import as_values, check_rows_like, validated
from lodestar.ragged.lod_tensor import LoDTensor

CsrOrder: TypeAlias = Literal["sample_major", "slot_major"]


def _check_order(order: CsrOrder) -> None:
    if order not in get_args(CsrOrder):
        raise ValueError(
            f"`order` must be 'sample_major' or 'slot_major', got {order!r}."
        )


def _transpose(
    values: tf.Tensor, offsets: tf.Tensor, columns: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads the units of a matrix with that many columns column by column."""

    def transpose(x: tf.Tensor) -> tf.Tensor:
        # Without columns there are no units.
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
    order: CsrOrder = "sample_major",
) -> list[LoDTensor]:
    """Splits one CSR into a LoDTensor per feature slot.

    Args:
        row_offsets: int64 or int32 `[num_slots * batch + 1]`.
        values: `[N, ...]`.
        num_slots: Number of feature slots in the CSR.
        order: With `"sample_major"`, row `b * num_slots + s` holds slot s of
            sample b, as in HugeCTR's readers. With `"slot_major"`, row
            `s * batch + b` does.

    Returns:
        A list of LoDTensors with one level. A single slot shares the buffers of
        the arguments.

    Raises:
        ValueError: `order` is unknown or `num_slots` is below 1.
        tf.errors.InvalidArgumentError: The offsets do not cover the values, or
            the number of rows is not a multiple of `num_slots` (ValueError if
            known while tracing).
    """
    _check_order(order)
    check_count("num_slots", num_slots, 1)
    values = as_values(values)
    offsets = as_vector("row_offsets", row_offsets)
    _, (offsets,) = validated(values, [offsets])
    if num_slots == 1:
        return [LoDTensor(values, (offsets,))]
    units = tf.size(offsets, out_type=tf.int64) - 1
    static = offsets.shape[0]
    message = f"`row_offsets` must have a multiple of {num_slots} rows"
    if static is not None and (static - 1) % num_slots:
        raise ValueError(f"{message}, got {static - 1}.")
    check = tf.debugging.assert_equal(
        units % num_slots, tf.constant(0, tf.int64), f"{message}."
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
    order: CsrOrder = "sample_major",
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Combines LoDTensors, one per feature slot, to one CSR.

    The inverse of `from_csr`.

    Args:
        slots: LoDTensors with one level and equally many units, the samples of
            a batch. Their values have one dtype and row shape.
        order: "sample_major", all slots of a sample together, as in HugeCTR's
            readers; or "slot_major", all samples of a slot together.
        name: Name of the ops.

    Returns:
        row_offsets: int64 `[slots * batch + 1]`.
        values: `[N, ...]`, N the rows of all slots.

    Raises:
        ValueError: `order` is unknown, there is no slot, or a slot does not have
            one level or has other rows.
        TypeError: A slot is not a LoDTensor, or dtypes differ.
        tf.errors.InvalidArgumentError: The numbers of units differ (ValueError
            if known while tracing).
    """
    _check_order(order)
    slots = list(slots)
    if not slots:
        raise ValueError("`slots` must have at least one LoDTensor, got [].")
    for s, slot in enumerate(slots):
        if not isinstance(slot, LoDTensor):
            raise TypeError(
                f"`slots[{s}]` must be a LoDTensor, got {type(slot)}."
            )
        if len(slot.lod) != 1:
            raise ValueError(
                f"`slots[{s}]` must have one level, got {len(slot.lod)}."
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
