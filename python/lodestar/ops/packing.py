"""Tensors packed into one, to be sent in one message."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from lodestar._library import gen_ops


def pack(
    parts: Sequence[Sequence[tf.Tensor]], width: tf.Tensor | int = 0
) -> tf.Tensor:
    """Packs the tensors of each part into a row; returns int64 `[parts, width]`.

    Parts have equal numbers of tensors. `width` defaults to `words` of the largest
    part.
    """
    return gen_ops.lodestar_pack_tensors(
        [tensor for part in parts for tensor in part],
        tf.cast(width, tf.int64),
        num_parts=len(parts),
    )


def unpack(
    packed: tf.Tensor, parts: Sequence[Sequence[tf.TensorSpec]]
) -> list[list[tf.Tensor]]:
    """Returns the tensors that `pack` packed.

    The first dimension of a spec may be unknown.
    """
    specs = [spec for part in parts for spec in part]
    tensors = gen_ops.lodestar_unpack_tensors(
        packed,
        T=[spec.dtype for spec in specs],
        output_shapes=[spec.shape for spec in specs],
        num_parts=len(parts),
    )
    size = len(parts[0])
    return [
        list(tensors[first : first + size])
        for first in range(0, len(specs), size)
    ]


# Bytes of a row from which its copies cost more than a message, as measured.
_WIDE = 512


class Parcel(NamedTuple):
    """Tensors on their way to another process, in as few messages as is cheap.

    Tensors share a message, because a message costs more than copies of most tensors.
    Wide rows of a table have their own.

    Attributes:
        packed: Tensors that `pack` has packed; None without any.
        specs: Their specs.
        rows: The other tensors, by index.
    """

    packed: tf.Tensor | None
    specs: list[tf.TensorSpec]
    rows: dict[int, tf.Tensor]

    @classmethod
    def of(cls, tensors: Sequence[tf.Tensor]) -> "Parcel":
        """Packs tensors with known dimensions apart from the first."""
        rows = {i: x for i, x in enumerate(tensors) if _are_wide_rows(x)}
        if len(rows) > 1:
            rows = {}
        others = [x for i, x in enumerate(tensors) if i not in rows]
        return cls(
            pack([others]) if others else None,
            [tf.TensorSpec(x.shape, x.dtype) for x in others],
            rows,
        )

    def unpack(self) -> list[tf.Tensor]:
        """Returns the tensors, on the device in scope."""
        others: list[tf.Tensor] = []
        if self.packed is not None:
            (others,) = unpack(self.packed, [self.specs])
        tensors = iter(others)
        # Onto the device in scope. TensorFlow may remove an identity, and then sends
        # rows in each branch of a cond.
        rows = {i: tf.ensure_shape(x, x.shape) for i, x in self.rows.items()}
        return [
            rows[i] if i in rows else next(tensors)
            for i in range(len(self.specs) + len(rows))
        ]


def _are_wide_rows(tensor: tf.Tensor) -> bool:
    shape = tensor.shape
    return (
        shape.rank > 1
        and shape[0] is None
        and math.prod(shape[1:]) * tensor.dtype.size >= _WIDE
    )


def words(specs: Sequence[tf.TensorSpec], counts: tf.Tensor) -> tf.Tensor:
    """Returns the width of parts, int64 `[parts]`.

    Args:
        specs: The K tensors of each part, `[count, ...]`.
        counts: Their first dimensions, int64 `[parts, K]`.
    """
    sizes = [math.prod(spec.shape[1:]) * spec.dtype.size for spec in specs]
    of_tensors = (counts * tf.constant(sizes, tf.int64) + 7) // 8
    return len(sizes) + tf.reduce_sum(of_tensors, 1)
