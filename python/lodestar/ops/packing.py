"""Tensors packed into one, to be sent in one message."""

import math
from collections.abc import Sequence

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


def specs_of(parts: Sequence[Sequence[tf.Tensor]]) -> list[list[tf.TensorSpec]]:
    """Returns the specs of the tensors of each part."""
    return [[tf.TensorSpec(x.shape, x.dtype) for x in part] for part in parts]


def words(specs: Sequence[tf.TensorSpec], counts: tf.Tensor) -> tf.Tensor:
    """Returns the width of parts, int64 `[parts]`.

    Args:
        specs: The K tensors of each part, `[count, ...]`.
        counts: Their first dimensions, int64 `[parts, K]`.
    """
    sizes = [math.prod(spec.shape[1:]) * spec.dtype.size for spec in specs]
    of_tensors = (counts * tf.constant(sizes, tf.int64) + 7) // 8
    return len(sizes) + tf.reduce_sum(of_tensors, 1)
