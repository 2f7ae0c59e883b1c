"""lodestar.sequence.pool against NumPy, its gradients and its errors."""

import numpy as np
import pytest
import tensorflow as tf
from batches import (
    FLOATS,
    check_gradients,
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


def test_index_of_the_first_maximum():
    x = tf.ragged.constant([[3.0, 5.0, 5.0], [], [1.0]])
    pooled, index = lodestar.sequence.pool(x, "max", with_index=True)
    assert pooled.numpy().tolist() == [5, 0, 1]
    assert index.numpy().tolist() == [1, -1, 3]


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
