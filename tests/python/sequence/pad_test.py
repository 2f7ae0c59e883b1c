"""lodestar.sequence.pad and unpad against NumPy, their gradients and errors."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar import LoDTensor
from lodestar.sequence import nesting, pad, unpad

LENGTHS = [[], [0], [0, 0, 0], [1], [3, 0, 1, 7, 0], [900, 1, 0, 300]]
STEPS = [(), (5,), (2, 3), (0,), (32,), (1, 70)]


def random_rows(rng, shape, dtype):
    """Returns numbers, or strings, of any dtype."""
    rows = rng.integers(0, 100, size=shape)
    if dtype == tf.string:
        return np.vectorize(lambda i: b"x" * i, otypes=[object])(rows)
    if dtype == tf.bool:
        return rows % 2 == 1
    return rows.astype(dtype.as_numpy_dtype)


def reference(rows, splits, pad_value, steps):
    padded = np.empty((len(splits) - 1, steps, *rows.shape[1:]), rows.dtype)
    padded[:] = pad_value
    for b, (begin, end) in enumerate(zip(splits[:-1], splits[1:], strict=True)):
        padded[b, : end - begin] = rows[begin:end]
    return padded


@pytest.mark.parametrize(
    "dtype", nesting.MOVED_DTYPES, ids=lambda dtype: dtype.name
)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_there_and_back_is_numpys(lengths, dtype, rng):
    splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    longest = max(lengths, default=0)
    for step in STEPS:
        rows = random_rows(rng, (splits[-1], *step), dtype)
        ragged = tf.RaggedTensor.from_row_splits(
            tf.constant(rows, dtype), splits
        )
        for pad_value in (
            None,
            tf.constant(random_rows(rng, (), dtype).item(), dtype),
            tf.constant(random_rows(rng, step, dtype), dtype),
        ):
            for maxlen in (None, longest, tf.constant(longest + 3)):
                padded, got_lengths = pad(ragged, pad_value, maxlen)
                zero = tf.zeros([], dtype) if pad_value is None else pad_value
                wanted = reference(
                    rows,
                    splits,
                    zero.numpy(),
                    longest if maxlen is None else int(maxlen),
                )
                assert padded.dtype == dtype
                assert got_lengths.dtype == tf.int64
                assert got_lengths.numpy().tolist() == lengths
                assert padded.shape == wanted.shape
                np.testing.assert_array_equal(padded, wanted)
                back = unpad(padded, got_lengths)
                np.testing.assert_array_equal(back.flat_values, rows)
                np.testing.assert_array_equal(back.row_splits, splits)


def test_two_levels_go_there_and_back():
    x = LoDTensor.from_offsets(
        np.array([[1], [3], [2], [4], [1], [5], [6]], np.float32),
        [[0, 2, 2, 5], [0, 1, 3, 4, 4, 7]],
    )
    for nested in (x, x.to_ragged()):
        padded, lengths = pad(nested, -1.0)
        assert padded[..., 0].numpy().tolist() == [
            [1, -1, -1],
            [3, 2, -1],
            [4, -1, -1],
            [-1, -1, -1],
            [1, 5, 6],
        ]
        assert lengths.numpy().tolist() == [1, 2, 1, 0, 3]
        back = unpad(padded, lengths, like=nested)
        assert type(back) is type(nested)
        rows, splits = nesting.flatten("back", back)
        assert rows.numpy().tolist() == x.values.numpy().tolist()
        assert [s.numpy().tolist() for s in splits] == [
            s.numpy().tolist() for s in x.lod
        ]
    shorter = unpad(padded, [0, 1, 0, 0, 2], like=x)
    assert shorter.to_ragged().to_list() == [
        [[], [[3]]],
        [],
        [[], [], [[1], [5]]],
    ]


def test_the_kind_of_the_result():
    padded = tf.constant([[1, 2], [3, 4]])
    assert isinstance(unpad(padded, [1, 2]), tf.RaggedTensor)
    one = LoDTensor.from_lengths([0, 0, 0], [[0, 3]])
    back = unpad(padded, tf.constant([1, 2], tf.int32), like=one)
    assert isinstance(back, LoDTensor)
    assert back.to_ragged().to_list() == [[1], [3, 4]]
    short = tf.ragged.constant([[0], [0]], row_splits_dtype=tf.int32)
    back = unpad(padded, [1, 2], like=short)
    assert back.row_splits.dtype == tf.int32
    assert back.to_list() == [[1], [3, 4]]
    assert pad(short)[1].dtype == tf.int64


@pytest.mark.parametrize("maxlen", [None, 4])
def test_gradients_are_numeric_ones_to_second_order(maxlen, rng):
    splits = tf.constant([0, 2, 2, 5], tf.int64)
    values = tf.constant(rng.normal(size=(5, 2, 2)))
    for pad_shape in ((), (2, 2)):
        pad_value = tf.constant(rng.normal(size=pad_shape))

        def padded(values, pad_value):
            x = tf.RaggedTensor.from_row_splits(values, splits)
            return pad(x, pad_value, maxlen)[0]

        def slope(values, pad_value):
            with tf.GradientTape() as tape:
                tape.watch([values, pad_value])
                y = tf.reduce_sum(padded(values, pad_value) ** 3)
            return tf.concat(
                [
                    tf.reshape(g, [-1])
                    for g in tape.gradient(y, [values, pad_value])
                ],
                0,
            )

        for function in (padded, slope):
            symbolic, numeric = tf.test.compute_gradient(
                function, [values, pad_value]
            )
            for s, n in zip(symbolic, numeric, strict=True):
                np.testing.assert_allclose(s, n, atol=1e-5)


def test_gradients_of_unpad_are_numeric_ones_to_second_order(rng):
    padded = tf.constant(rng.normal(size=(3, 4, 2)))

    def rows(padded):
        return unpad(padded, [2, 0, 4]).flat_values

    def slope(padded):
        with tf.GradientTape() as tape:
            tape.watch(padded)
            y = tf.reduce_sum(rows(padded) ** 3)
        return tape.gradient(y, padded)

    for function in (rows, slope):
        symbolic, numeric = tf.test.compute_gradient(function, [padded])
        np.testing.assert_allclose(symbolic[0], numeric[0], atol=1e-5)
    assert slope(padded).numpy()[1].tolist() == [[0, 0]] * 4
