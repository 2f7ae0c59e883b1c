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


def _slice(values, splits, offset, length):
    return gen_ops.lodestar_sequence_slice(
        _input(tf.float32, values),
        _input(tf.int64, splits),
        _input(tf.int64, offset),
        _input(tf.int64, length),
    )


@pytest.mark.parametrize(
    ("values", "splits", "offset", "length", "rows", "sliced"),
    [
        ([9, 3, None], [5], [4], [4], [None, 3, None], [5]),
        ([9], [None], [None], [4], [None], [5]),
        (None, [None], [None], [None], None, [None]),
        (None, None, None, None, None, [None]),
    ],
)
def test_equal_dimensions_are_inferred(
    values, splits, offset, length, rows, sliced
):
    outputs = _slice(values, splits, offset, length)
    assert [_dims(output) for output in outputs] == [rows, sliced]


@pytest.mark.parametrize(
    ("values", "splits", "offset", "length"),
    [
        ([], [5], [4], [4]),
        ([9], [5, 1], [4], [4]),
        ([9], [5], [3], [4]),
        ([9], [5], [None], [5]),
        ([9], [0], [None], [None]),
    ],
)
def test_wrong_shapes_are_errors(values, splits, offset, length):
    with pytest.raises(ValueError, match="hape|imension"):
        _slice(values, splits, offset, length)


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
