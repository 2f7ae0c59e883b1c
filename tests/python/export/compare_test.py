"""Tests of comparing two outputs."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar.export.compare import MismatchError, OutputDifference, compare


def run(wanted, found, atol=0.0):
    return compare("y", wanted, found, "serve", atol)


def test_the_largest_difference_and_its_example():
    wanted = tf.constant([[0.0, 0.0], [0.0, 0.0], [1.0, 2.0]])
    found = tf.constant([[0.25, 0.0], [0.0, 0.0], [1.0, 1.5]])
    assert run(wanted, found, 0.5) == OutputDifference(0.5, 2, "serve")
    with pytest.raises(
        MismatchError,
        match=r"^The output 'y' of example 2, at \[2, 1\], is 2.0 in the model, "
        r"but 1.5 in the export through 'serve'\. They are 0.5 apart, more than "
        r"`atol`=0.4.$",
    ):
        run(wanted, found, 0.4)


def test_one_axis_or_no_axis():
    with pytest.raises(MismatchError, match="of example 1 is 2 in the model"):
        run(tf.constant([1, 2]), tf.constant([1, 3]))
    assert run(tf.constant(1.0), tf.constant(2.0), 1) == OutputDifference(
        1.0, None, "serve"
    )
    assert run(tf.zeros([0, 3]), tf.zeros([0, 3])).example is None


@pytest.mark.parametrize(
    "dtype", [tf.float16, tf.bfloat16, tf.float64, tf.int8, tf.uint64]
)
def test_numbers_of_all_kinds(dtype):
    wanted, found = tf.constant([1, 2], dtype), tf.constant([1, 3], dtype)
    assert run(wanted, found, 1).max_difference == 1
    with pytest.raises(MismatchError, match="1 apart"):
        run(wanted, found, 0.5)


def test_integers_that_float64_cannot_tell_apart():
    wanted = tf.constant([2**62], tf.int64)
    with pytest.raises(MismatchError):
        run(wanted, wanted + 1)
    assert run(wanted, wanted).max_difference == 0


def test_text_and_truth_must_be_equal():
    for wanted, found in (
        (tf.constant(["a", "b"]), tf.constant(["a", "c"])),
        (tf.constant([True, True]), tf.constant([True, False])),
    ):
        assert run(wanted, wanted).max_difference == 0
        with pytest.raises(MismatchError, match="example 1"):
            run(wanted, found, 0.5)


def test_nan_and_infinity():
    inf, nan = np.inf, np.nan
    values = tf.constant([nan, inf, -inf, 1.0])
    assert run(values, values).max_difference == 0
    for i, other in ((0, 0.0), (1, nan), (1, -inf), (2, inf), (3, nan)):
        found = values.numpy()
        found[i] = other
        with pytest.raises(MismatchError, match=f"example {i} .* inf apart"):
            run(values, found, 1e300)


def test_ragged_outputs():
    wanted = tf.ragged.constant([[[1.0], []], [[2.0, 3.0]]])
    assert run(wanted, wanted).max_difference == 0
    found = tf.ragged.constant([[[1.0], []], [[2.0, 4.0]]])
    with pytest.raises(MismatchError, match="example 1 is 3.0 .* but 4.0"):
        run(wanted, found)
    with pytest.raises(MismatchError, match="the row splits .* in the model"):
        run(wanted, tf.ragged.constant([[[1.0]], [[2.0, 3.0], []]]))
    with pytest.raises(MismatchError, match="kind ragged in .*, but dense"):
        run(wanted, tf.zeros([2]))


@pytest.mark.parametrize(
    "found, message",
    [
        (tf.zeros([2], tf.float64), "the dtype float32 in .*, but float64"),
        (tf.zeros([3]), r"the shape \[2\] in the model, but \[3\]"),
        (tf.zeros([2, 1]), r"the shape \[2\] in the model, but \[2, 1\]"),
    ],
)
def test_other_dtypes_and_shapes(found, message):
    with pytest.raises(MismatchError, match=f"The output 'y' has {message}"):
        run(tf.zeros([2]), found, 1e300)
