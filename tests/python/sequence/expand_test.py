"""lodestar.sequence.expand and expand_as against NumPy, gradients and errors."""

import numpy as np
import pytest
import tensorflow as tf
from batches import (
    check_gradients,
    random_rows,
    splits_of,
)

from lodestar._checks import MOVED_DTYPES
from lodestar.ragged import LoDTensor
from lodestar.sequence import expand, expand_as, nesting, pool

LENGTHS = [[], [0], [0, 0, 0], [1], [3, 0, 1, 7, 0], [90, 1, 0, 30]]
STEPS = [(), (5,), (2, 3), (0,), (32,), (1, 70)]
DTYPES = [tf.bfloat16, tf.float32, tf.float64, tf.int8, tf.bool, tf.string]


def lod(lengths, values=None):
    """Returns a LoDTensor of these lengths, one list per level."""
    if values is None:
        values = np.zeros(sum(lengths[-1]), np.float32)
    return LoDTensor.from_lengths(values, lengths)


def lengths_of(x):
    return [level.numpy().tolist() for level in x.lengths()]


def reference(rows, lengths, repeats):
    """Returns the repeated rows and their lengths."""
    splits = splits_of(lengths)
    units = [
        rows[begin:end]
        for begin, end, times in zip(
            splits[:-1], splits[1:], repeats, strict=True
        )
        for _ in range(times)
    ]
    return np.concatenate([rows[:0], *units]), list(map(len, units))


def test_paddles_examples():
    x = lod([[2, 2]], ["a", "b", "c", "d"])
    y = lod([[2, 2], [3, 3, 1, 1]])
    out = expand(x, y, ref_level=0)
    assert isinstance(out, LoDTensor)
    assert out.values.numpy().tolist() == list(map(str.encode, "ababcdcd"))
    assert lengths_of(out) == [[2, 2, 2, 2]]
    out = expand(tf.constant(["a", "b", "c"]), lod([[2, 0, 3]]))
    assert out.numpy().tolist() == list(map(str.encode, "aaccc"))
    out = expand_as(tf.constant(["a", "b", "c", "d"]), lod([[3, 3, 1, 1]]))
    assert out.values.numpy().tolist() == list(map(str.encode, "aaabbbcd"))
    assert lengths_of(out) == [[3, 3, 1, 1]]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_matches_numpy(lengths, dtype, rng):
    units = len(lengths)
    repeats = rng.integers(0, 4, size=units).tolist()
    if units:
        repeats[0] = 40
    for step in STEPS:
        rows = random_rows(rng, (sum(lengths), *step), dtype)
        x = lod([lengths], rows)
        y = lod([repeats])
        wanted, wanted_lengths = reference(rows.numpy(), lengths, repeats)
        if not units:
            wanted, wanted_lengths = rows, lengths
        for nested in (x, x.to_ragged()):
            out = expand(nested, y)
            assert type(out) is type(nested)
            got, splits = nesting.flatten("out", out)
            assert np.diff(splits[0]).tolist() == wanted_lengths
            assert got.dtype == dtype
            np.testing.assert_array_equal(got, wanted)
        heads = random_rows(rng, (units, *step), dtype)
        wanted = np.repeat(heads.numpy(), repeats, axis=0)
        np.testing.assert_array_equal(expand(heads, y), wanted)
        out = expand_as(heads, y)
        np.testing.assert_array_equal(out.values, wanted)
        assert lengths_of(out) == [repeats]


@pytest.mark.parametrize("dtype", MOVED_DTYPES, ids=lambda d: d.name)
def test_dtypes(dtype):
    x = (
        tf.constant(["a", "b"])
        if dtype == tf.string
        else tf.cast([0, 1], dtype)
    )
    y = tf.ragged.constant([[7, 7], [7]], row_splits_dtype=tf.int32)
    wanted = tf.gather(x, [0, 0, 1])
    assert expand(x, y).dtype == dtype
    np.testing.assert_array_equal(expand(x, y), wanted)
    out = expand_as(x, y)
    assert out.row_splits.dtype == tf.int32
    np.testing.assert_array_equal(out.flat_values, wanted)


def test_levels_of_y():
    y = lod([[1, 0, 2], [3, 1, 0]])
    x = tf.constant([5, 6, 7])
    assert expand(x, y, 0).numpy().tolist() == [5, 7, 7]
    assert expand(x, y, 1).numpy().tolist() == [5, 5, 5, 6]
    assert expand(x, y).numpy().tolist() == [5, 5, 5, 6]
    out = expand_as(x, y)
    assert out.values.numpy().tolist() == [5, 5, 5, 6]
    assert lengths_of(out) == lengths_of(y)
    # The inverse of pooling, whose result has one level left.
    rows = lod([[2, 1], [2, 0, 1]], [[1.0], [2.0], [3.0]])
    back = expand_as(pool(rows, "mean"), rows)
    assert back.values.numpy().tolist() == [[1.5], [1.5], [3.0]]
    assert lengths_of(back) == lengths_of(rows)


def test_a_level_without_units_returns_x():
    y = lod([[]])
    x = lod([[2, 1]], [1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x.values)
        out = expand(x, y)
    assert lengths_of(out) == [[2, 1]]
    assert out.values.numpy().tolist() == [1, 2, 3]
    gradient = tape.gradient(out.values, x.values, tf.constant([4.0, 5.0, 6.0]))
    assert gradient.numpy().tolist() == [4, 5, 6]
    assert expand(x.values, y).numpy().tolist() == [1, 2, 3]
    with pytest.raises(tf.errors.InvalidArgumentError, match="`x` has 3 rows"):
        expand_as(x.values, y)


@pytest.mark.parametrize("dim", [1, 3])
def test_gradients_are_numeric_ones_to_second_order(dim, rng):
    units = tf.constant([0, 2, 2, 5, 6], tf.int64)
    repeats = lod([[2, 1, 3, 0]])

    def expanded(rows):
        return expand(LoDTensor(rows, (units,)), repeats).values

    def expanded_rows(rows):
        return expand(rows[:4], repeats)

    def expanded_as(rows):
        return expand_as(rows[:4], repeats).values

    rows = tf.constant(rng.normal(size=(6, dim)))
    for function in (expanded, expanded_rows, expanded_as):
        check_gradients(function, rows)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_short_floats_are_summed_in_float32(dtype):
    # bfloat16 cannot represent 256 + 1, nor float16 2048 + 1: sums of ones
    # would stop there.
    x = tf.ones([2, 3], dtype)
    for function in (expand, lambda x, y: expand_as(x, y).values):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x, lod([[4096, 0]]))
        gradient = tape.gradient(y, x)
        assert gradient.dtype == dtype
        assert gradient.numpy().tolist() == [[4096] * 3, [0] * 3]


def test_unknown_dimensions_in_a_function():
    ragged = tf.RaggedTensorSpec([None, None, 2], tf.float32, 1)

    @tf.function(input_signature=[ragged, tf.TensorSpec(None), ragged])
    def expanded(x, rows, y):
        out = expand(x, y)
        assert out.flat_values.shape.as_list() == [None, 2]
        return out, expand(rows, y), expand_as(rows, y)

    x = tf.RaggedTensor.from_row_lengths(tf.ones([3, 2]), [2, 1])
    y = tf.RaggedTensor.from_row_lengths(tf.ones([3, 2]), [1, 2])
    out, rows, same = expanded(x, tf.constant([7.0, 8.0]), y)
    assert out.row_lengths().numpy().tolist() == [2, 1, 1]
    assert rows.numpy().tolist() == [7, 8, 8]
    assert same.to_list() == [[7], [8, 8]]


def test_invalid_arguments_are_refused():
    x = tf.ragged.constant([[1.0]])
    for bad in (-2, 1):
        with pytest.raises(
            ValueError, match=rf"an integer in \[-1, 0\], got {bad}"
        ):
            expand(x, x, bad)
    two = lod([[1], [1]])
    with pytest.raises(ValueError, match="`x` must have one level, got 2"):
        expand(two, x)
    for function in (expand, expand_as):
        with pytest.raises(TypeError, match="`y` must be a RaggedTensor or"):
            function(x, tf.ones([1]))
        with pytest.raises(
            TypeError, match="`x` has dtype complex64, but must be"
        ):
            function(tf.ones([1], tf.complex64), x)
        with pytest.raises(ValueError, match="`x` must have rank 1 or more"):
            function(1.0, x)
        with pytest.raises(ValueError, match="`y` has no level"):
            function(x, LoDTensor([1.0], ()))
    for bad in (x, tf.ones([1])):
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match="`x` has 1 units to repeat, but `y` has 3",
        ):
            expand(bad, lod([[1, 2, 3]]))
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="`x` has 2 rows to repeat, but `y` has 3 sequences",
    ):
        expand_as(tf.ones([2]), lod([[1, 2, 3]]))
