"""lodestar.sequence.mask against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

import lodestar


@pytest.mark.parametrize("dtype", [tf.bool, tf.int64, tf.float16, tf.float32])
@pytest.mark.parametrize("lengths_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (2, 3)], ids=str)
@pytest.mark.parametrize("maxlen", [None, 0, 3, 9])
def test_matches_numpy(maxlen, shape, lengths_dtype, dtype, rng):
    lengths = rng.integers(0, 7, shape).astype(lengths_dtype)
    steps = maxlen
    if maxlen is None:
        steps = max(lengths.max(initial=0), 0)
    wanted = np.arange(steps) < lengths[..., np.newaxis]
    got = lodestar.sequence.mask(lengths, maxlen, dtype)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, wanted)
    if maxlen is not None:
        got = lodestar.sequence.mask(lengths, tf.constant(maxlen), dtype)
        np.testing.assert_array_equal(got, wanted)


def test_the_documented_example():
    got = lodestar.sequence.mask([3, 1, 1, 0], 4)
    assert got.dtype == tf.int64
    assert got.numpy().tolist() == [
        [1, 1, 1, 0],
        [1, 0, 0, 0],
        [1, 0, 0, 0],
        [0, 0, 0, 0],
    ]


def test_unknown_dimensions_in_a_function():
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.int32)])
    def mask(lengths):
        y = lodestar.sequence.mask(lengths, 3, tf.bool)
        assert y.shape.as_list() == [None, 2, 3]
        return y, lodestar.sequence.mask(lengths)

    fixed, longest = mask([[1, 5]])
    assert fixed.numpy().tolist() == [[[True, False, False], [True] * 3]]
    assert longest.numpy().tolist() == [[[1, 0, 0, 0, 0], [1] * 5]]


def test_what_is_refused():
    with pytest.raises(TypeError, match="`lengths` has dtype float32, wanted"):
        lodestar.sequence.mask([1.0])
    for maxlen in (-1, 1.5, 2**63):
        with pytest.raises(
            ValueError, match=f"`maxlen` is {maxlen}, wanted an"
        ):
            lodestar.sequence.mask([1], maxlen)
    with pytest.raises(ValueError, match="`maxlen` must have rank 0, found"):
        lodestar.sequence.mask([1], [3])
    # Not cut to 2.
    for maxlen in (tf.constant(2.5), np.array(2.5, np.float32)):
        with pytest.raises(TypeError, match="`maxlen` has dtype float32, want"):
            lodestar.sequence.mask([1], maxlen)
