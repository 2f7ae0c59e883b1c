"""Tests of batches in the forms that users have."""

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.export import batches

RAGGED = tf.RaggedTensorSpec([None, None], tf.int64)
DENSE = tf.TensorSpec([None, 2], tf.float32)
SPARSE = tf.SparseTensorSpec([None, None], tf.int64)
NESTED = tf.RaggedTensorSpec([None] * 3, tf.int64, ragged_rank=2)


@pytest.mark.parametrize(
    "value, spec, want",
    [
        (tf.ragged.constant([[1], []], tf.int32), RAGGED, [[1], []]),
        ([[1], []], RAGGED, [[1], []]),
        (np.array([[1, 2]]), RAGGED, [[1, 2]]),
        (np.array([[[1], [2]]]), NESTED, [[[1], [2]]]),
        ([[[1], []], []], NESTED, [[[1], []], []]),
        (np.array([[1, 2]]), DENSE, [[1.0, 2.0]]),
        ([[1, 2]], DENSE, [[1.0, 2.0]]),
        (np.array([5.0]), tf.TensorSpec([None, 1], tf.float32), [[5.0]]),
        (["a"], tf.TensorSpec([None], tf.string), [b"a"]),
    ],
)
def test_values_of_the_wanted_type(value, spec, want):
    (got,) = batches.by_name({"x": value}, {"x": spec}).values()
    assert spec.is_compatible_with(got)
    got = got.to_list() if isinstance(got, tf.RaggedTensor) else got.numpy()
    np.testing.assert_array_equal(
        np.array(got, dtype=object), np.array(want, dtype=object)
    )


def test_lod_tensors_and_sparse_ones():
    lod = lodestar.ragged.LoDTensor.from_lengths(
        np.array([1, 2, 3]), [[2, 0], [1, 2]]
    )
    got = batches.by_name(lod, {"x": NESTED})["x"]
    assert got.to_list() == [[[1], [2, 3]], []]
    sparse = tf.sparse.from_dense(tf.constant([[1, 0], [0, 2]]))
    got = batches.by_name({"x": sparse}, {"x": SPARSE})["x"]
    assert got.dtype == tf.int64
    assert batches.size({"x": got}) == 2


@pytest.mark.parametrize(
    "value, spec, message",
    [
        (
            np.array([[1.5]]),
            RAGGED,
            "The input 'x' must have the dtype int64, got float64",
        ),
        (["a"], DENSE, "The input 'x' must have the dtype float32, got string"),
        (
            np.array([1, 2]),
            RAGGED,
            r"The input 'x' must be ragged int64 \(None, None\) with 1 ragged "
            r"axes, got dense int64 \(2,\)",
        ),
        (
            tf.ragged.constant([[[1]]], tf.int64),
            RAGGED,
            r"The input 'x' must be ragged .*, got ragged .* with 2 ragged axes",
        ),
        (
            tf.ragged.constant([[1.0, 2.0]]),
            DENSE,
            r"The input 'x' must be dense float32 \(None, 2\), got ragged",
        ),
        (
            np.zeros([1, 3]),
            DENSE,
            r"must be dense .*, got dense float32 \(1, 3\)",
        ),
        (
            tf.sparse.from_dense(tf.constant([[1]], tf.int64)),
            RAGGED,
            "The input 'x' must be ragged .*, got sparse int64",
        ),
    ],
)
def test_values_of_another_type(value, spec, message):
    with pytest.raises(ValueError, match=message):
        batches.by_name({"x": value}, {"x": spec})


@pytest.mark.parametrize(
    "batch, message",
    [
        ({"a": 1, "c": 2}, r"`batch` has no \['b'\]; it has \['a', 'c'\]"),
        (
            [1],
            r"`batch` must be a dict or a list of .*'a', 'b'.* got a list of 1",
        ),
        (1, r"`batch` must be a dict or a list .* got a int"),
    ],
)
def test_other_structures(batch, message):
    with pytest.raises(ValueError, match=message):
        batches.by_name(batch, {"a": DENSE, "b": DENSE})


def test_numbers_of_examples():
    ragged = tf.ragged.constant([[1], [], []])
    assert batches.size({"x": ragged}) == 3
    assert batches.size({"x": tf.zeros([4, 2])}) == 4
    assert batches.size({"x": tf.zeros([])}) == 1


@pytest.mark.parametrize("value", [None, [[1.5]], [["a"]], [[1], 2]])
def test_values_that_are_no_tensor_of_the_type(value):
    with pytest.raises(
        ValueError, match="'ids' must be ragged int64 .* got a "
    ):
        batches.by_name({"ids": value}, {"ids": RAGGED})
