"""Tests of arithmetic on sparse gradients."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar import optimizers
from lodestar.optimizers.gradients import merge_duplicates


def slices(values, ids, dtype=tf.int64, value_dtype=tf.float32):
    return tf.IndexedSlices(
        tf.constant(values, value_dtype),
        tf.constant(ids, dtype),
        tf.constant([-1, 2], tf.int32),
    )


@pytest.mark.parametrize("value_dtype", [tf.float32, tf.float64])
@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_merge_duplicates(dtype, value_dtype):
    merged = merge_duplicates(
        slices([[1, 2], [3, 4], [5, 6]], [7, -2, 7], dtype, value_dtype)
    )
    assert merged.indices.dtype == dtype
    assert merged.values.dtype == value_dtype
    assert merged.indices.numpy().tolist() == [7, -2]
    assert merged.values.numpy().tolist() == [[6, 8], [3, 4]]
    assert merged.dense_shape.numpy().tolist() == [-1, 2]


def test_merge_of_nothing():
    merged = merge_duplicates(slices(np.zeros([0, 2]), []))
    assert merged.values.shape == (0, 2) and merged.indices.shape == (0,)


@pytest.mark.parametrize("clip_norm", [5.0, 100.0])
def test_clip_by_global_norm(clip_norm):
    gradients = [slices([[3, 0], [3, 0]], [1, 1]), None, tf.constant([8.0])]
    clipped, norm = optimizers.clip_by_global_norm(gradients, clip_norm)
    factor = min(1.0, clip_norm / 10.0)
    assert float(norm) == 10.0
    np.testing.assert_allclose(clipped[0].values, [[6 * factor, 0]], 1e-6)
    assert clipped[1] is None
    np.testing.assert_allclose(clipped[2], [8 * factor], 1e-6)


def test_clip_by_global_norm_of_no_finite_norm_is_nan():
    clipped, _ = optimizers.clip_by_global_norm(
        [tf.constant([np.inf]), tf.constant([1.0])], 1.0
    )
    assert np.isnan(clipped[1].numpy()).all()


def test_clip_by_global_norm_of_zeros_stays_zero():
    clipped, norm = optimizers.clip_by_global_norm([tf.zeros([2])], 1.0)
    assert clipped[0].numpy().tolist() == [0, 0] and float(norm) == 0.0
    clipped, norm = optimizers.clip_by_global_norm([None], 1.0)
    assert clipped == [None] and float(norm) == 0.0
