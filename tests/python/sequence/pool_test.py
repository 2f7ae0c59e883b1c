"""lodestar.sequence.pool against NumPy, its gradients and its errors."""

import numpy as np
import pytest
import tensorflow as tf
from batches import (
    FLOATS,
    HUGE,
    LENGTHS,
    WIDE,
    check_gradients,
    check_gradients_of_nothing,
    check_threads,
    every_bad_splits,
    every_nothing,
    gradient_in,
    splits_of,
)

import lodestar
from lodestar._library import gen_ops
from lodestar.ragged import LoDTensor

DTYPES = [*FLOATS, tf.int32, tf.int64]
COMBINERS = ["sum", "mean", "sqrtn", "max", "first", "last"]


def reference(values, splits, combiner, pad_value):
    """Pools in float64."""
    pooled = []
    for begin, end in zip(splits[:-1], splits[1:], strict=True):
        rows = values[begin:end].astype(np.float64)
        if len(rows) == 0:
            pooled.append(np.full(values.shape[1:], pad_value))
        elif combiner == "sum":
            pooled.append(rows.sum(0))
        elif combiner == "mean":
            pooled.append(rows.mean(0))
        elif combiner == "sqrtn":
            pooled.append(rows.sum(0) / np.sqrt(len(rows)))
        elif combiner == "max":
            pooled.append(rows.max(0))
        else:
            pooled.append(rows[0 if combiner == "first" else -1])
    return np.reshape(pooled, (len(splits) - 1, *values.shape[1:]))


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_matches_numpy(combiner, dtype, lengths, rng):
    splits = splits_of(lengths)
    for shape in ((), (5,), (2, 3), (0,), (70,)):
        values = rng.normal(size=(splits[-1], *shape)) * 20
        values = values.astype(dtype.as_numpy_dtype)
        wanted = reference(values, splits, combiner, 7)
        if dtype.is_integer:
            wanted = np.trunc(wanted)
        ragged = tf.RaggedTensor.from_row_splits(values, splits)
        got = lodestar.sequence.pool(ragged, combiner, pad_value=7)
        assert got.dtype == dtype
        assert got.shape == wanted.shape
        # One rounding of a 16-bit result; sums are kept in 32 bits.
        rtol = {tf.float16: 1e-3, tf.bfloat16: 8e-3}.get(dtype, 2e-5)
        np.testing.assert_allclose(
            got.numpy().astype(np.float64), wanted, rtol=rtol, atol=1e-2
        )


def test_unknown_dimensions_in_a_function():
    @tf.function(
        input_signature=[tf.RaggedTensorSpec([None, None, 2], tf.float32, 1)]
    )
    def pooled(x):
        y = lodestar.sequence.pool(x, "mean")
        assert y.shape.as_list() == [None, 2]
        return y

    x = tf.RaggedTensor.from_row_lengths(tf.ones([3, 2]), [2, 0, 1])
    assert pooled(x).numpy().tolist() == [[1, 1], [0, 0], [1, 1]]


def test_two_levels_pool_the_last_and_keep_the_first():
    x = LoDTensor.from_offsets(
        np.array([1, 3, 2, 4, 1, 5, 6], np.float32),
        [[0, 2, 2, 5], [0, 1, 3, 4, 4, 7]],
    )
    y = lodestar.sequence.pool(x)
    assert isinstance(y, LoDTensor)
    assert y.values.numpy().tolist() == [1, 5, 4, 0, 12]
    assert y.lod[0].numpy().tolist() == [0, 2, 2, 5]
    z = lodestar.sequence.pool(x.to_ragged())
    assert z.to_list() == [[1, 5], [], [4, 0, 12]]
    assert lodestar.sequence.pool(y).numpy().tolist() == [6, 0, 16]


def test_index_of_the_first_maximum():
    x = tf.ragged.constant([[3.0, 5.0, 5.0], [], [1.0]])
    pooled, index = lodestar.sequence.pool(x, "max", with_index=True)
    assert pooled.numpy().tolist() == [5, 0, 1]
    assert index.numpy().tolist() == [1, -1, 3]


@pytest.mark.parametrize("combiner", COMBINERS)
def test_gradients_are_numeric_ones_to_second_order(combiner, rng):
    splits = tf.constant([0, 2, 2, 5], tf.int64)
    values = tf.constant(rng.normal(size=(5, 3)))

    def pooled(values):
        x = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        return lodestar.sequence.pool(x, combiner, pad_value=3.0)

    check_gradients(pooled, values)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32])
@pytest.mark.parametrize("combiner", COMBINERS)
def test_gradients_of_shorter_floats(combiner, dtype, rng):
    splits = [0, 2, 2, 5]
    values = rng.integers(-9, 9, size=(5, 3))
    upstream = rng.integers(-9, 9, size=(3, 3))

    def pooled(x):
        ragged = tf.RaggedTensor.from_row_splits(x, splits)
        return lodestar.sequence.pool(ragged, combiner)

    short, exact = (
        gradient_in(d, pooled, values, upstream) for d in (dtype, tf.float64)
    )
    np.testing.assert_allclose(short, exact, rtol=8e-3)


def test_of_equal_maxima_the_first_gets_the_gradient():
    x = tf.constant([[1.0, 7.0], [5.0, 7.0], [5.0, 7.0], [2.0, 2.0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = lodestar.sequence.pool(
            tf.RaggedTensor.from_row_splits(x, [0, 0, 3, 4]), "max"
        )
    upstream = tf.constant([[9.0, 9.0], [1.0, 2.0], [3.0, 4.0]])
    gradient = tape.gradient(y, x, upstream)
    assert gradient.numpy().tolist() == [[0, 2], [1, 0], [0, 0], [3, 4]]


@pytest.mark.parametrize("combiner", COMBINERS)
@every_nothing
def test_gradients_to_second_order_of_nothing(combiner, splits, shape):
    check_gradients_of_nothing(
        lambda x: lodestar.sequence.pool(x, combiner, pad_value=2.0),
        splits,
        shape,
    )


def test_nan_and_infinity():
    nan, inf = np.nan, np.inf
    x = tf.ragged.constant([[1.0, nan, 2.0], [nan, 3.0], [-inf, -inf], [inf]])
    pooled, index = lodestar.sequence.pool(x, "max", with_index=True)
    np.testing.assert_array_equal(pooled, [2.0, nan, -inf, inf])
    assert index.numpy().tolist() == [2, 3, 5, 7]
    np.testing.assert_array_equal(
        lodestar.sequence.pool(x), [nan, nan, -inf, inf]
    )


def test_pad_values_are_exact():
    def padded(dtype, pad_value):
        x = tf.RaggedTensor.from_row_splits(tf.zeros([0], dtype), [0, 0])
        return lodestar.sequence.pool(x, pad_value=pad_value).numpy()[0]

    assert padded(tf.float64, 0.1) == 0.1
    assert padded(tf.int64, 2**62 + 1) == 2**62 + 1
    assert padded(tf.int32, -3.0) == -3
    assert padded(tf.float32, -np.inf) == -np.inf
    for pad_value, message in (
        (
            0.5,
            "`pad_value` must be an integer, as `x` has dtype int32, got 0.5",
        ),
        (np.nan, "`pad_value` must be an integer, .* got nan"),
        (2**31, "`pad_value` must be in the range of int32, got 2147483648"),
    ):
        with pytest.raises(ValueError, match=message):
            padded(tf.int32, pad_value)


def test_same_bits_for_any_number_of_threads(rng):
    for combiner in ("sum", "mean", "max"):
        check_threads(lambda x, c=combiner: lodestar.sequence.pool(x, c), rng)


def test_in_a_dataset():
    dataset = tf.data.Dataset.from_tensors(
        tf.ragged.constant([[1.0, 3.0], []])
    ).map(lambda x: lodestar.sequence.pool(x, "mean", pad_value=-1.0))
    assert dataset.element_spec.shape.as_list() == [2]
    assert [y.numpy().tolist() for y in dataset] == [[2.0, -1.0]]


def test_saved_model_keeps_ragged_and_lod_inputs(tmp_path):
    module = tf.Module()
    module.ragged = tf.function(
        lambda x: lodestar.sequence.pool(x, "max", with_index=True),
        input_signature=[tf.RaggedTensorSpec([None, None, 2], tf.float32, 1)],
    )
    module.lod = tf.function(
        lambda x: lodestar.sequence.pool(x, "mean"),
        input_signature=[LoDTensor.Spec([None], tf.float32, num_levels=2)],
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    x = tf.RaggedTensor.from_row_lengths(tf.ones([3, 2]), [2, 0, 1])
    assert loaded.ragged(x)[1].numpy().tolist() == [[0, 0], [-1, -1], [2, 2]]
    x = LoDTensor.from_lengths([1.0, 3.0, 5.0], [[1, 2], [2, 0, 1]])
    assert loaded.lod(x).to_ragged().to_list() == [[2.0], [0.0, 5.0]]


def test_gradient_inside_a_function():
    @tf.function
    def slope(x):
        with tf.GradientTape() as tape:
            tape.watch(x.flat_values)
            y = tf.reduce_sum(lodestar.sequence.pool(x, "mean"))
        return tape.gradient(y, x.flat_values)

    x = tf.ragged.constant([[1.0, 2.0], [], [3.0]])
    assert slope(x).numpy().tolist() == [0.5, 0.5, 1.0]


@pytest.mark.parametrize("name, ours", [("average", "mean"), ("sqrt", "sqrtn")])
def test_paddle_names_are_explained(name, ours):
    with pytest.raises(ValueError, match=f"'{name}', which is called '{ours}'"):
        lodestar.sequence.pool(tf.ragged.constant([[1.0]]), name)


def test_invalid_arguments_are_refused():
    x = tf.ragged.constant([[1.0]])
    with pytest.raises(ValueError, match="one of sum, mean, .* got 'median'"):
        lodestar.sequence.pool(x, "median")
    with pytest.raises(ValueError, match="requires combiner 'max', got 'sum'"):
        lodestar.sequence.pool(x, with_index=True)
    with pytest.raises(TypeError, match="RaggedTensor or LoDTensor"):
        lodestar.sequence.pool(tf.ones([2, 2]))
    with pytest.raises(
        TypeError, match="dtype string, but must be one of float16"
    ):
        lodestar.sequence.pool(tf.ragged.constant([["a"]]))
    with pytest.raises(ValueError, match="`x` has no level"):
        lodestar.sequence.pool(LoDTensor([1.0], ()))


@every_bad_splits
def test_splits_are_checked_before_they_are_read(splits, message):
    x = LoDTensor(tf.ones([3, 2]), (tf.constant(splits, tf.int64),))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        lodestar.sequence.pool(x)


def pool_op(values=((1.0, 2.0),) * 3, row_splits=(0, 3), pad_value=0.0, **kw):
    return gen_ops.lodestar_sequence_pool(
        values=tf.convert_to_tensor(values, tf.float32),
        row_splits=tf.convert_to_tensor(row_splits, tf.int64),
        pad_value=tf.convert_to_tensor(pad_value, tf.float32),
        **kw,
    )


def gradient_op(
    gradient=((1.0, 2.0),), row_splits=(0, 3), index=(), num_rows=3, **kw
):
    return gen_ops.lodestar_sequence_pool_gradient(
        gradient=tf.convert_to_tensor(gradient, tf.float32),
        row_splits=tf.convert_to_tensor(row_splits, tf.int64),
        index=tf.convert_to_tensor(index, tf.int64),
        num_rows=tf.convert_to_tensor(num_rows, tf.int64),
        **kw,
    )


@pytest.mark.parametrize(
    "op, arguments, message",
    [
        (pool_op, dict(values=1.0), "`values` must have rank 1 or more"),
        (pool_op, dict(row_splits=3), "`row_splits` must have rank 1"),
        (pool_op, dict(row_splits=[[0, 3]]), "`row_splits` must have rank 1"),
        (pool_op, dict(row_splits=[]), "`row_splits` is empty"),
        (pool_op, dict(row_splits=[0, 9]), "there are 3 rows"),
        (pool_op, dict(row_splits=[0, 9, 3]), "is greater than"),
        (pool_op, dict(row_splits=[0, -9, 3]), "is greater than"),
        (pool_op, dict(pad_value=[0.0]), "`pad_value` must have rank 0"),
        (pool_op, dict(combiner="median"), "median"),
        (pool_op, dict(values=WIDE, row_splits=[0, 0]), "overflow"),
        (gradient_op, dict(gradient=1.0), "`gradient` must have rank 1"),
        (gradient_op, dict(gradient=[1.0, 2.0]), "`gradient` has 2 rows"),
        (gradient_op, dict(row_splits=[]), "`row_splits` is empty"),
        (gradient_op, dict(row_splits=3), "`row_splits` must have rank 1"),
        (gradient_op, dict(row_splits=[0, 4]), "there are 3 rows"),
        (
            gradient_op,
            dict(num_rows=-1),
            "`num_rows` must be at least 0, got -1",
        ),
        (gradient_op, dict(num_rows=[3]), "`num_rows` must have rank 0"),
        (gradient_op, dict(row_splits=[0, HUGE], num_rows=HUGE), "overflow"),
        (gradient_op, dict(combiner="max"), "`index` must have shape"),
        (
            gradient_op,
            dict(combiner="max", index=[[0, 3]]),
            r"`index` has 3 for sequence 0 of rows \[0, 3\)",
        ),
        (
            gradient_op,
            dict(combiner="max", index=[[-1, 0]]),
            "`index` has -1 for sequence 0",
        ),
    ],
)
def test_ops_refuse_invalid_arguments(op, arguments, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        op(**arguments)


def test_static_shapes_of_the_ops():
    def shapes(values, row_splits, combiner):
        @tf.function(
            input_signature=[
                tf.TensorSpec(values),
                tf.TensorSpec(row_splits, tf.int64),
            ]
        )
        def pooled(values, row_splits):
            return gen_ops.lodestar_sequence_pool(
                values=values,
                row_splits=row_splits,
                pad_value=0.0,
                combiner=combiner,
            )

        outputs = pooled.get_concrete_function().structured_outputs
        return [
            x.shape.as_list() if x.shape.rank is not None else None
            for x in outputs
        ]

    assert shapes([None, 2], [5], "sum") == [[4, 2], [0]]
    assert shapes([7], [None], "max") == [[None], [None]]
    assert shapes(None, [5], "max") == [None, None]
    assert shapes([7, None, 3], None, "max") == [[None, None, 3]] * 2
    for values, row_splits in (([], [2]), ([3], []), ([3], [2, 2]), ([3], [0])):
        with pytest.raises(ValueError):
            shapes(values, row_splits, "sum")


# 9 1 5 rows in the units of level 0, in 3 1 2 sequences.
PARAGRAPHS = [[3, 1, 2], [3, 2, 4, 1, 2, 3]]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("combiner", COMBINERS)
def test_a_level_is_pooled_straight_over_its_rows(combiner, dtype, rng):
    values = (rng.normal(size=(15, 3)) * 20).astype(dtype.as_numpy_dtype)
    for lengths, splits in (
        (PARAGRAPHS, [0, 9, 10, 15]),
        ([[0, 3, 0], [2, 0, 4], [3, 2, 4, 1, 2, 3]], [0, 0, 15, 15]),
    ):
        x = LoDTensor.from_lengths(values, lengths)
        wanted = reference(values, splits, combiner, 7)
        wanted = np.trunc(wanted) if dtype.is_integer else wanted
        for y in (x, x.to_ragged()):
            got = lodestar.sequence.pool(y, combiner, level=0, pad_value=7)
            assert isinstance(got, tf.Tensor)
            np.testing.assert_array_equal(
                got,
                lodestar.sequence.pool(
                    tf.RaggedTensor.from_row_splits(values, splits),
                    combiner,
                    pad_value=7,
                ),
            )
            np.testing.assert_allclose(
                tf.cast(got, tf.float64), wanted, rtol=2e-2, atol=0.2
            )
        # Level 1 of three keeps level 0; the last level is -1.
        last = lodestar.sequence.pool(x, combiner, len(lengths) - 1)
        np.testing.assert_array_equal(
            last.values, lodestar.sequence.pool(x, combiner).values
        )
        if len(lengths) == 3:
            middle = lodestar.sequence.pool(x, combiner, 1)
            assert middle.lengths()[0].numpy().tolist() == [0, 3, 0]
            np.testing.assert_array_equal(
                middle.values,
                lodestar.sequence.pool(x.level(1), combiner, 0),
            )


def test_the_maximum_over_the_rows_of_a_level():
    rows = np.array([4, 8, 1, 7, 7, 2, 9, 0, 3, 5, 6, 2, 8, 8, 1.0])
    x = LoDTensor.from_lengths(rows, PARAGRAPHS)
    assert x.absolute()[0].numpy().tolist() == [0, 9, 10, 15]
    pooled, index = lodestar.sequence.pool(x, "max", level=0, with_index=True)
    assert pooled.numpy().tolist() == [
        rows[0:9].max(),
        rows[9:10].max(),
        rows[10:15].max(),
    ]
    assert index.numpy().tolist() == [6, 9, 12]


def test_a_mean_of_words_is_not_a_mean_of_means():
    x = tf.ragged.constant([[[1.0, 3.0], [8.0]], [[5.0]], [], [[], []]])
    mean = lodestar.sequence.pool
    assert mean(x, "mean", level=0).numpy().tolist() == [4, 5, 0, 0]
    assert mean(mean(x, "mean"), "mean").numpy().tolist() == [5, 5, 0, 0]


@pytest.mark.parametrize("combiner", COMBINERS)
def test_gradients_of_a_level(combiner, rng):
    rows = tf.constant(rng.permutation(30).reshape(15, 2) / 10.0)

    def pooled(rows):
        x = LoDTensor.from_lengths(rows, PARAGRAPHS)
        return lodestar.sequence.pool(x, combiner, level=0)

    check_gradients(pooled, rows)


def test_levels_in_a_function_with_unknown_sizes():
    @tf.function(
        input_signature=[
            tf.RaggedTensorSpec([None] * 4, tf.float32, 3, tf.int32)
        ]
    )
    def pooled(x):
        return [lodestar.sequence.pool(x, "sum", k) for k in range(3)]

    lists = [[[[1.0, 2.0], []], [[3.0]]], [[]]]
    x = tf.ragged.constant(lists, ragged_rank=3, row_splits_dtype=tf.int32)
    outer, middle, inner = pooled(x)
    assert outer.numpy().tolist() == [6, 0]
    assert middle.to_list() == [[3, 3], [0]]
    assert inner.to_list() == [[[3, 0], [3]], [[]]]
    assert inner.row_splits.dtype == tf.int32


def test_invalid_levels():
    x = LoDTensor.from_lengths([1.0, 2.0], [[2], [1, 1]])
    for level in (2, -2, 0.0, None):
        with pytest.raises(ValueError, match="`level` must be .*-1, 1.*, got"):
            lodestar.sequence.pool(x, "sum", level)
    for lod, message in (
        ([[0, 2], [0, 3, 2]], r"`lod\[1\]\[1\]`=3 is greater than"),
        ([[0, 1], [0, 1, 2]], r"`lod\[0\]` ends at 1, but there are 2 units"),
        ([[0, 2], [0, 1, 1]], "ends at 1, but there are 2 rows"),
        ([[0, 2**62], [0, 1, 2]], "but there are 2 units"),
    ):
        x = LoDTensor([1.0, 2.0], [np.array(level) for level in lod])
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            lodestar.sequence.pool(x, "sum", 0)
