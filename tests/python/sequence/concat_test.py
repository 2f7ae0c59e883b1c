"""lodestar.sequence.concat against NumPy, its gradients and its errors."""

import numpy as np
import pytest
import tensorflow as tf
from batches import MOVED, check_gradients, ragged_of, random_rows

import lodestar
from lodestar._library import gen_ops
from lodestar.ragged import LoDTensor


def joined(batches):
    """Returns the rows of batches [(rows, lengths)], sequence by sequence."""
    pieces = [batches[0][0][:0]]
    for b in range(len(batches[0][1])):
        for rows, lengths in batches:
            begin = int(np.sum(lengths[:b]))
            pieces.append(rows[begin : begin + lengths[b]])
    return np.concatenate(pieces)


@pytest.mark.parametrize("dtype", MOVED, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("batch", [0, 1, 7, 900])
def test_matches_numpy(batch, count, dtype, rng):
    for shape in ((), (3,), (2, 2), (0,)):
        batches = []
        for _ in range(count):
            lengths = rng.integers(0, 4, batch)
            lengths[batch // 2 :][:1] *= 500
            rows = random_rows(rng, (lengths.sum(), *shape), dtype)
            batches.append((rows, lengths))
        got = lodestar.sequence.concat([ragged_of(*b) for b in batches])
        np.testing.assert_array_equal(
            got.flat_values, joined([(r.numpy(), n) for r, n in batches])
        )
        np.testing.assert_array_equal(
            got.row_lengths(), sum(lengths for _, lengths in batches)
        )
        assert got.dtype == dtype


def test_the_documented_example():
    x = LoDTensor.from_offsets([1, 2, 3, 4, 5], [[0, 3, 5]])
    y = LoDTensor.from_offsets([6, 7, 8, 9], [[0, 2, 4]])
    z = lodestar.sequence.concat([x, y])
    assert isinstance(z, LoDTensor)
    assert z.values.numpy().tolist() == [1, 2, 3, 6, 7, 4, 5, 8, 9]
    assert z.lod[0].numpy().tolist() == [0, 5, 9]
    # The result has the type of the first argument.
    z = lodestar.sequence.concat([x.to_ragged(), y])
    assert z.to_list() == [[1, 2, 3, 6, 7], [4, 5, 8, 9]]


def test_two_levels_join_the_last_and_keep_the_first():
    x = tf.ragged.constant([[[1], [2, 3]], [], [[4]]])
    y = tf.ragged.constant([[[], [5]], [], [[6, 7]]])
    assert lodestar.sequence.concat([x, y]).to_list() == [
        [[1], [2, 3, 5]],
        [],
        [[4, 6, 7]],
    ]
    y = tf.ragged.constant([[[], [5]], [[6, 7]], []], ragged_rank=2)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`xs\[1\].lod\[0\]\[2\]` must be 2 as in `xs\[0\]`, got 3",
    ):
        lodestar.sequence.concat([x, y])


def test_unknown_dimensions_and_int32_splits_in_a_function():
    spec = tf.RaggedTensorSpec(
        [None, None, 2], tf.float32, 1, row_splits_dtype=tf.int32
    )

    @tf.function(input_signature=[spec, spec])
    def concat(x, y):
        z = lodestar.sequence.concat([x, y])
        assert z.flat_values.shape.as_list() == [None, 2]
        assert z.row_splits.dtype == tf.int32
        return z

    def batch(lengths):
        return tf.RaggedTensor.from_row_lengths(
            tf.ones([sum(lengths), 2]), np.array(lengths, np.int32)
        )

    z = concat(batch([2, 0, 1]), batch([1, 0, 3]))
    assert z.row_lengths().numpy().tolist() == [3, 0, 4]
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`xs\[1\]` has 2 sequences at level 0, but `xs\[0\]` has 3",
    ):
        concat(batch([2, 0, 1]), batch([1, 0]))


def test_gradients_are_numeric_ones_to_second_order(rng):
    rows = [tf.constant(rng.normal(size=(n, 2))) for n in (3, 4, 0)]
    lengths = [[2, 0, 1], [0, 3, 1], [0, 0, 0]]

    def concat(*rows):
        return lodestar.sequence.concat(
            list(map(ragged_of, rows, lengths))
        ).flat_values

    check_gradients(concat, *rows)


def test_gradient_where_one_input_is_used_twice():
    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        ragged = tf.RaggedTensor.from_row_lengths(x, [2, 1])
        y = lodestar.sequence.concat([ragged, ragged]).flat_values
    upstream = tf.constant([1.0, 2.0, 10.0, 20.0, 3.0, 30.0])
    assert tape.gradient(y, x, upstream).numpy().tolist() == [11, 22, 33]


def test_gradient_of_two_levels():
    rows = [tf.constant([1.0, 2.0, 3.0]), tf.constant([4.0, 5.0])]
    with tf.GradientTape() as tape:
        tape.watch(rows)
        y = lodestar.sequence.concat(
            [
                LoDTensor.from_lengths(rows[0], [[2, 0], [1, 2]]),
                LoDTensor.from_lengths(rows[1], [[2, 0], [2, 0]]),
            ]
        ).values
    found = tape.gradient(y, rows, tf.constant([1.0, 40.0, 50.0, 2.0, 3.0]))
    assert [g.numpy().tolist() for g in found] == [[1, 2, 3], [40, 50]]


def test_invalid_arguments_are_refused():
    concat = lodestar.sequence.concat
    x = tf.ragged.constant([[1.0], [2.0]])
    with pytest.raises(ValueError, match="`xs` must have at least one"):
        concat([])
    with pytest.raises(TypeError, match=r"`xs\[1\]` must be a RaggedTensor or"):
        concat([x, tf.ones([2, 2])])
    with pytest.raises(
        TypeError, match=r"`xs\[1\]` must have dtype fl.* got int32"
    ):
        concat([x, tf.cast(x, tf.int32)])
    with pytest.raises(ValueError, match=r"`xs\[1\]` must have 1 levels"):
        concat([x, tf.ragged.constant([[[1.0]], [[]]])])
    wide = tf.RaggedTensor.from_row_lengths(tf.ones([2, 3]), [1, 1])
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        concat([x, wide])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`xs\[1\]`: `lod\[0\]\[1\]`=5 is greater than `lod\[0\]\[2\]`=1",
    ):
        concat([x, LoDTensor([1.0], ([0, 5, 1],))])


def concat_op(values, lods):
    return gen_ops.lodestar_sequence_concat(
        values=[tf.convert_to_tensor(v, tf.float32) for v in values],
        lods=[tf.convert_to_tensor(level, tf.int64) for level in lods],
    )


def gradient_op(gradient, row_splits):
    return gen_ops.lodestar_sequence_concat_gradient(
        gradient=tf.convert_to_tensor(gradient, tf.float32),
        row_splits=[tf.convert_to_tensor(s, tf.int64) for s in row_splits],
    )


EMPTY = tf.zeros([2**62, 0])


@pytest.mark.parametrize(
    "op, first, second, message",
    [
        (concat_op, [[1.0]], [[0, 2], [0, 1]], r"`lod\[0\]` ends at 2"),
        (
            concat_op,
            [[1.0]] * 2,
            [[0, 1]] * 3,
            "there are 3 levels, which is not",
        ),
        (concat_op, [[1.0]] * 2, [[0, 1]], "there are 1 levels, which"),
        (
            concat_op,
            [[1.0], 1.0],
            [[0, 1]] * 2,
            r"`values\[1\]` must have rows .* shape \[\]",
        ),
        (
            concat_op,
            [1.0],
            [[0, 1]],
            r"`values\[0\]` must have rows .* shape \[\]",
        ),
        (
            concat_op,
            [[1.0], [[1.0]]],
            [[0, 1]] * 2,
            r"`values\[1\]` must have rows as in",
        ),
        (concat_op, [[1.0]], [[]], r"`xs\[0\]`: `lod\[0\]` is empty"),
        (concat_op, [[1.0]], [1], "`lods` must have rank 1"),
        (
            concat_op,
            [[1.0]] * 2,
            [[0, 1], [0, 1, 1]],
            "has 2 sequences at leve",
        ),
        (
            concat_op,
            [EMPTY] * 3,
            [[0, 2**62]] * 3,
            "the sum overflows int64",
        ),
        (gradient_op, 1.0, [[0, 1]], "`gradient` must have rank 1 or more"),
        (gradient_op, [1.0], [[0, 2]], "has 1 rows, but the batches have 2"),
        (gradient_op, [1.0], [[0, 1], []], r"`xs\[1\]`: `lod\[0\]` is empty"),
        (gradient_op, [1.0], [[0, 1], [0]], "has 0 sequences at level 0"),
        (gradient_op, [1.0], [[0, 2, 1]], "is greater than"),
        (gradient_op, [1.0], [0], "`row_splits` must have rank 1"),
    ],
)
def test_ops_refuse_invalid_arguments(op, first, second, message):
    with pytest.raises(
        (tf.errors.InvalidArgumentError, ValueError), match=message
    ):
        op(first, second)
