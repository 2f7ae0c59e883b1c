"""lodestar.sequence.concat against NumPy, its gradients and its errors."""

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.ragged import LoDTensor


def test_the_documented_example():
    x = LoDTensor.from_offsets([1, 2, 3, 4, 5], [[0, 3, 5]])
    y = LoDTensor.from_offsets([6, 7, 8, 9], [[0, 2, 4]])
    z = lodestar.sequence.concat([x, y])
    assert isinstance(z, LoDTensor)
    assert z.values.numpy().tolist() == [1, 2, 3, 6, 7, 4, 5, 8, 9]
    assert z.lod[0].numpy().tolist() == [0, 5, 9]
    # The result has the type of the first argument.
    z = lodestar.sequence.concat([x.to_ragged(), y])
    assert z.to_list() == [[1, 2, 3, 6, 7], [4, 5, 8, 9]]


def test_two_levels_join_the_last_and_keep_the_first():
    x = tf.ragged.constant([[[1], [2, 3]], [], [[4]]])
    y = tf.ragged.constant([[[], [5]], [], [[6, 7]]])
    assert lodestar.sequence.concat([x, y]).to_list() == [
        [[1], [2, 3, 5]],
        [],
        [[4, 6, 7]],
    ]
    y = tf.ragged.constant([[[], [5]], [[6, 7]], []], ragged_rank=2)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`xs\[1\].lod\[0\]\[2\]` must be 2 as in `xs\[0\]`, got 3",
    ):
        lodestar.sequence.concat([x, y])


def test_unknown_dimensions_and_int32_splits_in_a_function():
    spec = tf.RaggedTensorSpec(
        [None, None, 2], tf.float32, 1, row_splits_dtype=tf.int32
    )

    @tf.function(input_signature=[spec, spec])
    def concat(x, y):
        z = lodestar.sequence.concat([x, y])
        assert z.flat_values.shape.as_list() == [None, 2]
        assert z.row_splits.dtype == tf.int32
        return z

    def batch(lengths):
        return tf.RaggedTensor.from_row_lengths(
            tf.ones([sum(lengths), 2]), np.array(lengths, np.int32)
        )

    z = concat(batch([2, 0, 1]), batch([1, 0, 3]))
    assert z.row_lengths().numpy().tolist() == [3, 0, 4]
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`xs\[1\]` has 2 sequences at level 0, but `xs\[0\]` has 3",
    ):
        concat(batch([2, 0, 1]), batch([1, 0]))


def test_invalid_arguments_are_refused():
    concat = lodestar.sequence.concat
    x = tf.ragged.constant([[1.0], [2.0]])
    with pytest.raises(ValueError, match="`xs` must have at least one"):
        concat([])
    with pytest.raises(TypeError, match=r"`xs\[1\]` must be a RaggedTensor or"):
        concat([x, tf.ones([2, 2])])
    with pytest.raises(
        TypeError, match=r"`xs\[1\]` must have dtype fl.* got int32"
    ):
        concat([x, tf.cast(x, tf.int32)])
    with pytest.raises(ValueError, match=r"`xs\[1\]` must have 1 levels"):
        concat([x, tf.ragged.constant([[[1.0]], [[]]])])
    wide = tf.RaggedTensor.from_row_lengths(tf.ones([2, 3]), [1, 1])
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        concat([x, wide])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`xs\[1\]`: `lod\[0\]\[1\]`=5 is greater than `lod\[0\]\[2\]`=1",
    ):
        concat([x, LoDTensor([1.0], ([0, 5, 1],))])
