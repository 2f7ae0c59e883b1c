"""Slices of sequences."""

import tensorflow as tf

from lodestar._checks import (
    MOVED_DTYPES,
    after,
    as_vector,
    assert_none,
)
from lodestar._typing import TensorLike
from lodestar.ops import sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged import levels
from lodestar.ragged.arguments import validated
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested


@takes_keras_tensors
def slice(
    x: Nested,
    offset: TensorLike,
    length: TensorLike,
    *,
    level: int = -1,
    name: str | None = None,
) -> Nested:
    """Slices rows `[offset[b], offset[b] + length[b])` of each sequence b of a level.

    Like Paddle's `sequence_slice`.

    >>> slice(tf.ragged.constant([[1, 2, 3], [4, 5]]), [0, 1], [2, 1]).to_list()
    [[1, 2], [5]]
    >>> paragraphs = tf.ragged.constant([[[1, 2], [3]], [[4]]])
    >>> slice(paragraphs, [1, 0], [1, 1], level=0).to_list()
    [[[3]], [[4]]]

    Args:
        x: RaggedTensor or LoDTensor of floats, integers, bool or string, with
            rows `[N, ...]`.
        offset: int64 or int32 `[B]`, the first row of each sequence.
        length: int64 or int32 `[B]`. 0 gives an empty sequence.
        level: The level of the B sequences: 0 for the outermost; -1 is the last,
            of rows. In other levels, numbers count units of the next level.
        name: Name of the op.

    Returns:
        The kind of x, and its levels above `level`. Differentiable in x.

    Raises:
        TypeError: x has another type or dtype, or numbers are not integers.
        ValueError: x has no such level, or numbers are not vectors.
        tf.errors.InvalidArgumentError: A number is negative, reaches past its
            sequence, or is missing (names the index), or splits are invalid.
    """
    rows, splits = nesting.flatten("x", x, MOVED_DTYPES)
    with tf.name_scope(name or "sequence_slice"):
        level = nesting.check_level("level", level, len(splits))
        rows, splits = validated(rows, splits)
        begins, lengths = splits[level][:-1], nesting.lengths(splits[level])
        offset = _as_many("offset", offset, lengths)
        length = _as_many("length", length, lengths)
        check = assert_none(
            (offset > lengths) | (length > lengths - offset),
            lambda b: [
                *("`length[", b, "]` is ", tf.gather(length, b)),
                *(" from `offset[", b, "]`=", tf.gather(offset, b)),
                *(
                    ", but sequence ",
                    b,
                    " has length ",
                    tf.gather(lengths, b),
                    ".",
                ),
            ],
        )
        sliced = levels.offsets(after(check, length))
        moved_by = sequence_ops.sequence_expand_as(
            begins + offset - sliced[:-1], sliced
        )
        order = tf.range(sliced[-1]) + moved_by
        rows, below = nesting.take_units(rows, splits[level + 1 :], order)
        return nesting.pack_like(x, rows, (*splits[:level], sliced, *below))


def _as_many(name: str, numbers: TensorLike, lengths: tf.Tensor) -> tf.Tensor:
    """Returns a vector of a number per sequence."""
    numbers = as_vector(name, numbers)
    check = assert_none(
        tf.not_equal(tf.size(numbers), tf.size(lengths)),
        lambda _: [
            *(f"`{name}` has ", tf.size(numbers), " elements, but there are "),
            *(tf.size(lengths), " sequences."),
        ],
    )
    numbers = after(check, numbers)
    check = assert_none(
        numbers < 0,
        lambda b: [
            *(f"`{name}[", b, "]` must be at least 0, got "),
            *(tf.gather(numbers, b), "."),
        ],
    )
    return after(check, numbers)
