"""The errors of lodestar.sequence.slice."""

import pytest
import tensorflow as tf

import lodestar


@pytest.mark.parametrize(
    "offset, length, message",
    [
        (
            [0, 0, 3],
            [1, 0, 2],
            r"`length\[2\]` is 2 from `offset\[2\]`=3, but sequence 2 has "
            "length 4",
        ),
        ([0, 1, 0], [1, 0, 2], r"`length\[1\]` is 0 from `offset\[1\]`=1"),
        ([0, 0, 2**62], [0, 0, 2**62], r"`length\[2\]` is 4611686018427387904"),
        ([0, -1, 0], [0, 0, 0], r"`offset\[1\]` must be at least 0, got -1"),
        ([0, 0, 0], [0, 0, -5], r"`length\[2\]` must be at least 0, got -5"),
        (
            [0, 0],
            [0, 0, 0],
            "`offset` has 2 elements, but there are 3 sequences",
        ),
        (
            [0] * 3,
            [0] * 4,
            "`length` has 4 elements, but there are 3 sequences",
        ),
    ],
)
def test_parts_outside_of_their_sequence_are_named(offset, length, message):
    x = tf.RaggedTensor.from_row_lengths(tf.ones([6, 2]), [2, 0, 4])
    offset = tf.Variable(offset, shape=[None], dtype=tf.int64)
    length = tf.Variable(length, shape=[None], dtype=tf.int64)
    call = tf.function(lambda x: lodestar.sequence.slice(x, offset, length))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        call(x)


def test_invalid_arguments_are_refused():
    x = tf.ragged.constant([[1.0]])
    with pytest.raises(
        TypeError, match="`offset` has dtype float32, but must be"
    ):
        lodestar.sequence.slice(x, [0.5], [1])
    with pytest.raises(ValueError, match=r"`length` must have rank 1, got"):
        lodestar.sequence.slice(x, [0], 1)
