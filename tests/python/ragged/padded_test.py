"""LoDTensor from and to padded tensors."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar.ragged import LoDTensor


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_padded_and_back(dtype):
    padded = [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [9.0, 9.0]]]
    x = LoDTensor.from_padded(padded, np.array([2, 1], dtype))
    assert x.to_list() == [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]]
    back, lengths = x.to_padded(-1.0, 3)
    assert back.numpy()[1].tolist() == [[5.0, 6.0], [-1.0, -1.0], [-1.0, -1.0]]
    assert lengths.numpy().tolist() == [2, 1]
    back, _ = x.to_padded()
    assert back.numpy()[1].tolist() == [[5.0, 6.0], [0.0, 0.0]]


def test_the_last_of_two_levels_is_padded():
    x = LoDTensor.from_nested_lists([[[1, 2], []], [], [[3]]])
    padded, lengths = x.to_padded()
    assert padded.numpy().tolist() == [[1, 2], [0, 0], [3, 0]]
    assert lengths.numpy().tolist() == [2, 0, 1]
    upper = LoDTensor.from_padded(padded, lengths).lod
    assert LoDTensor(x.values, (x.lod[0], *upper)).to_list() == x.to_list()


def test_no_rows():
    x = LoDTensor.from_padded(np.zeros([0, 4]), [])
    assert (x.to_list(), x.values.shape) == ([], (0,))
    x = LoDTensor.from_padded(np.zeros([2, 0]), [0, 0])
    assert x.to_list() == [[], []]
    assert x.to_padded()[0].shape == (2, 0)


def test_errors():
    with pytest.raises(tf.errors.InvalidArgumentError, match="3"):
        LoDTensor.from_padded([[1.0, 2.0]], [3])
    x = LoDTensor.from_lengths([1.0, 2.0], [[2]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="maxlen"):
        x.to_padded(maxlen=1)
    with pytest.raises(ValueError, match="no level"):
        LoDTensor([1.0], ()).to_padded()


def test_gradient(rng):
    def there_and_back(padded):
        x = LoDTensor.from_padded(padded, [2, 0, 3])
        return LoDTensor(x.values**2, x.lod).to_padded()[0]

    theory, numeric = tf.test.compute_gradient(
        there_and_back, [tf.constant(rng.normal(size=(3, 3, 2)))]
    )
    np.testing.assert_allclose(theory, numeric, rtol=1e-6, atol=1e-8)
