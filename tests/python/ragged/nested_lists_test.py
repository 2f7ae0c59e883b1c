"""LoDTensor from and to nested lists."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar.ragged import LoDTensor


@pytest.mark.parametrize(
    "lists, levels",
    [
        ([[1, 2], [], [3]], 1),
        ([[[1], []], [], [[2, 3]]], 2),
        ([[[[1]]], []], 3),
        ([], 1),
        ([[], []], 1),
        ([[[]], []], 2),
        (([1], (2,)), 1),
    ],
)
def test_depth_is_inferred_as_by_ragged_constant(lists, levels):
    x = LoDTensor.from_nested_lists(lists)
    assert x.num_levels == levels
    assert x.to_list() == [list(row) for row in lists]
    if lists:
        ragged = tf.ragged.constant(lists)
        assert x.values.dtype == ragged.dtype
        assert x.to_list() == ragged.to_list()


def test_the_two_equal_forms_of_the_format():
    # Lengths [[2, 1], [3, 2, 4]] over 9 rows.
    x = LoDTensor.from_nested_lists([[[0, 1, 2], [3, 4]], [[5, 6, 7, 8]]])
    assert [level.numpy().tolist() for level in x.lod] == [
        [0, 2, 3],
        [0, 3, 5, 9],
    ]


def test_rows_with_dimensions():
    lists = [[[1, 2], [3, 4]], [], [[5, 6]]]
    x = LoDTensor.from_nested_lists(lists, num_levels=1)
    assert x.values.numpy().tolist() == [[1, 2], [3, 4], [5, 6]]
    assert x.to_list() == lists
    x = LoDTensor.from_nested_lists([[1, 2], [3, 4]], num_levels=0)
    assert (x.values.shape, x.num_levels) == ((2, 2), 0)
    assert x.to_list() == [[1, 2], [3, 4]]


def test_dtypes():
    for dtype in (tf.float16, tf.bfloat16, tf.int64, "float64"):
        x = LoDTensor.from_nested_lists([[1], [2, 3]], dtype)
        assert x.values.dtype == tf.as_dtype(dtype)
    assert LoDTensor.from_nested_lists([["a"]]).to_list() == [[b"a"]]
    assert LoDTensor.from_nested_lists([[]]).values.dtype == tf.float32
    rows = [np.arange(3, dtype=np.int16), np.zeros([0], np.int16)]
    x = LoDTensor.from_nested_lists(rows)
    assert (x.values.dtype, x.to_list()) == (tf.int16, [[0, 1, 2], []])
    assert LoDTensor.from_nested_lists(np.eye(2)).to_list() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    "lists, arguments, message",
    [
        ([[1], 2], {}, r"`rows\[1\]` must be a list, .* 1 levels, got 2"),
        ([1, 2], {}, r"`rows\[0\]` must be a list.*, got 1"),
        ([[[1]], [2]], {}, r"`rows\[1\]\[0\]` must be a list.*, got 2"),
        (
            [[1], [2, [3]]],
            {"num_levels": 1},
            r"`rows\[1\]\[1\]` must be a number, got a list",
        ),
        (
            [[[1, 2]], [[3]]],
            {"num_levels": 1},
            r"`rows\[1\]\[0\]` must be a list of 2, .*, got \[3\]",
        ),
        (
            [[[1, 2], 3]],
            {"num_levels": 1},
            r"`rows\[0\]\[1\]` must be a list of 2, .*, got 3",
        ),
        ([[1], ["a"]], {}, r"`rows\[1\]\[0\]` must be int32.*, got 'a'"),
        (
            [[1.5]],
            {"dtype": tf.int32},
            r"`rows\[0\]\[0\]` must be int32.*, got 1.5",
        ),
        (
            [[1], [2, 2**40]],
            {"dtype": tf.int32},
            r"`rows\[1\]\[1\]` must be int32.*, got 1099511627776",
        ),
        (
            [[-1]],
            {"dtype": tf.uint64},
            r"`rows\[0\]\[0\]` must be uint64.*, got -1",
        ),
        (
            [[[1, 2]], [[3, 300]]],
            {"dtype": tf.uint8, "num_levels": 1},
            r"`rows\[1\]\[0\]` must be uint8.*, got \[3, 300\]",
        ),
        (
            [np.array([1, 2**40])],
            {"dtype": tf.int32},
            r"`rows\[0\]\[1\]` must be int32.*, got .*1099511627776.*",
        ),
        (
            [[None]],
            {},
            r"`rows\[0\]\[0\]` must be a number or string.*, got None",
        ),
        ([[1]], {"num_levels": -1}, "`num_levels` must be .* got -1"),
    ],
)
def test_errors_name_the_place(lists, arguments, message):
    with pytest.raises(ValueError, match=message):
        LoDTensor.from_nested_lists(lists, **arguments)


def test_what_is_no_list():
    with pytest.raises(TypeError, match="must be nested lists, got <class 'i"):
        LoDTensor.from_nested_lists(3)

    @tf.function
    def graph(values):
        return LoDTensor.from_lengths(values, [[1]]).to_list()

    with pytest.raises(ValueError, match="`to_list` requires eager values"):
        graph(tf.ones([1]))
