"""The ops that build batch elements, called with arguments no dataset uses."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar._library import gen_ops


def cut(places, dtype=tf.float32, shape=(None,), size=128):
    """Cuts one tensor from a buffer of `size` bytes: 0, 1, 2, ... as float32."""
    numbers = np.arange(size // 4, dtype=np.float32)
    (piece,) = gen_ops.lodestar_cut_buffer(
        buffer=numbers.view(np.uint8),
        places=places,
        output_types=[dtype],
        output_shapes=[shape],
    )
    return piece.numpy()


def test_cut_buffer():
    np.testing.assert_array_equal(cut([[64, 80, 4]]), [16, 17, 18, 19])
    np.testing.assert_array_equal(
        cut([[64, 80, 2]], shape=(2, None, 1)), [[[16], [17]], [[18], [19]]]
    )
    assert cut([[0, 0, 0]], shape=(None, 3)).shape == (0, 3)
    assert cut([[64, 64, 2]], shape=(None, None)).shape == (2, 0)
    assert cut([[0, 16, 2]], tf.int64).dtype == np.int64


def test_cut_buffer_shares_memory():
    buffer = tf.zeros([128], tf.uint8)
    pieces = gen_ops.lodestar_cut_buffer(
        buffer=buffer,
        places=[[0, 32, 4], [0, 32, 4]],
        output_types=[tf.int64, tf.int64],
        output_shapes=[(None,), (None,)],
    )
    assert [p.numpy().tolist() for p in pieces] == [[0] * 4] * 2


@pytest.mark.parametrize(
    "place",
    [[-64, 0, 0], [4, 8, 1], [64, 0, 0], [64, 132, 17], [192, 192, 0]],
)
def test_cut_buffer_beyond_its_bytes(place):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"`places\[0\]`"):
        cut([place])


@pytest.mark.parametrize(
    ("place", "dtype", "shape"),
    [
        ([0, 16, 3], tf.float32, (None,)),
        ([0, 12, 1], tf.int64, (None,)),
        ([0, 16, 4], tf.float32, (3,)),
        ([0, 16, -1], tf.float32, (None, 4)),
        ([0, 16, 3], tf.float32, (None, None)),
        ([0, 16, 2**62], tf.float32, (None, 2**31, None)),
        ([0, 16, 4], tf.float32, ()),
        ([0, 16, 0], tf.float32, (None, None)),
    ],
)
def test_cut_buffer_into_wrong_shapes(place, dtype, shape):
    with pytest.raises(tf.errors.InvalidArgumentError, match="do not fit"):
        cut([place], dtype, shape)


def test_cut_buffer_needs_a_place_for_each():
    with pytest.raises(tf.errors.InvalidArgumentError, match="`places` must"):
        cut([[0, 4, 1], [0, 4, 1]])


def encoded(values, row_splits):
    like = tf.raw_ops.RaggedTensorToVariant(
        rt_nested_splits=[tf.constant([0], tf.int64)],
        rt_dense_values=tf.constant([], tf.int64),
        batched_input=False,
    )
    return gen_ops.lodestar_encode_ragged(
        like=like, values=values, row_splits=row_splits
    )


def test_encode_ragged():
    variants = encoded(
        [tf.constant([7, 8, 9], tf.int64), tf.constant([0.5])],
        [[0, 1, 1, 3], [0, 1]],
    )
    found = [
        tf.raw_ops.RaggedTensorFromVariant(
            encoded_ragged=variant,
            input_ragged_rank=1,
            output_ragged_rank=1,
            Tvalues=dtype,
            Tsplits=tf.int64,
        )
        for variant, dtype in zip(variants, (tf.int64, tf.float32))
    ]
    assert [splits.numpy().tolist() for (splits,), _ in found] == [
        [0, 1, 1, 3],
        [0, 1],
    ]
    assert [values.numpy().tolist() for _, values in found] == [
        [7, 8, 9],
        [0.5],
    ]


def test_encode_ragged_of_other_numbers():
    one = tf.constant([1], tf.int64)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="found 2 `values`"
    ):
        encoded([one, one], [[0, 1]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="rank 1"):
        encoded([one], [[[0, 1]]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="`like`"):
        gen_ops.lodestar_encode_ragged(
            like=tf.raw_ops.EmptyTensorList(
                element_shape=-1, max_num_elements=1, element_dtype=tf.int64
            ),
            values=[one],
            row_splits=[[0, 1]],
        )
