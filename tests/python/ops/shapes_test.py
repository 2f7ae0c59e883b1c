"""Shapes that ops have before their inputs are known."""

import pytest
import tensorflow as tf

from lodestar._library import gen_ops


def _input(dtype, shape):
    return tf.compat.v1.placeholder(dtype, shape)


def _dims(tensor):
    return None if tensor.shape.rank is None else tensor.shape.as_list()


@pytest.fixture(autouse=True)
def _graph():
    with tf.Graph().as_default():
        yield


def _unpad(padded, lengths):
    return gen_ops.lodestar_sequence_unpad(
        _input(tf.float32, padded), _input(tf.int64, lengths)
    )


@pytest.mark.parametrize(
    ("padded", "lengths", "rows", "splits"),
    [
        ([4, 9, 3, None], [4], [None, 3, None], [5]),
        ([None, 9], [4], [None], [5]),
        ([4, None], [None], [None], [5]),
        (None, [None], None, [None]),
        (None, None, None, [None]),
    ],
)
def test_equal_dimensions_are_inferred(padded, lengths, rows, splits):
    outputs = _unpad(padded, lengths)
    assert [_dims(output) for output in outputs] == [rows, splits]


@pytest.mark.parametrize(
    ("padded", "lengths"),
    [([4], [4]), ([4, 9], [4, 1]), ([4, 9], [3])],
)
def test_wrong_shapes_are_errors(padded, lengths):
    with pytest.raises(ValueError, match="hape|imension"):
        _unpad(padded, lengths)


def test_attributes_are_dimensions():
    gradient = _input(tf.float32, [None, 3, 7])
    splits = _input(tf.int64, [None])

    def call(size):
        return gen_ops.lodestar_sequence_context_gradient(
            gradient, splits, start=0, size=size
        )

    assert _dims(call(3)) == [None, 7]
    with pytest.raises(ValueError, match="imension"):
        call(4)
    windows = gen_ops.lodestar_sequence_context(
        _input(tf.float32, [8, 7]), splits, 0.0, start=0, size=3
    )
    assert _dims(windows) == [8, 3, 7]


def test_lists_of_dimensions_are_joined():
    rows, found = gen_ops.lodestar_embedding_find(
        _input(tf.resource, []),
        _input(tf.float32, [0, 8]),
        _input(tf.int64, [2, None]),
        _input(tf.float32, None),
    )
    assert _dims(rows) == [2, None, 8]
    assert _dims(found) == [2, None]
    rows, _ = gen_ops.lodestar_embedding_find(
        _input(tf.resource, []),
        _input(tf.float32, [0, 8]),
        _input(tf.int64, None),
        _input(tf.float32, None),
    )
    assert _dims(rows) is None
