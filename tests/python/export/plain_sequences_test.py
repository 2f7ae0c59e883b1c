"""Tests of the plain TensorFlow replacements of the sequence ops."""

import keras
import numpy as np
import plain_served
import pytest
import tensorflow as tf

import lodestar
from lodestar import sequence
from lodestar.export.plain import sequences
from lodestar.ops import sequence_ops
from lodestar.ops.stand_ins import stand_ins

DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64")


def ragged(rng, dtype, step, longest, bags=12):
    lengths = rng.integers(0, longest + 1, bags)
    values = 100 * rng.normal(size=(lengths.sum(), *step))
    return tf.RaggedTensor.from_row_lengths(tf.cast(values, dtype), lengths)


def check(function, compare=np.testing.assert_array_equal):
    want = function()
    with stand_ins(sequences.functions()):
        got = function()
    for a, b in zip(
        tf.nest.flatten(want, expand_composites=True),
        tf.nest.flatten(got, expand_composites=True),
        strict=True,
    ):
        assert a.dtype == b.dtype and a.shape == b.shape
        compare(a.numpy(), b.numpy())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("step", "longest", "bags"),
    [((), 5, 9), ((7,), 60, 9), ((33, 2), 4, 9), ((2,), 0, 4), ((2,), 3, 0)],
)
def test_the_bits_of_our_ops(dtype, step, longest, bags, rng):
    x = ragged(rng, dtype, step, longest, bags)
    values, splits = x.values, x.row_splits
    nested = tf.RaggedTensor.from_row_lengths(x, [bags // 2, 0, -(-bags // 2)])
    for combiner in ("sum", "mean", "sqrtn", "first", "last"):
        check(lambda c=combiner: sequence.pool(x, c, pad_value=3))
        check(lambda c=combiner: sequence.pool(nested, c, 0))
    check(lambda: sequence.pool(x, "max", pad_value=3, with_index=True))
    check(lambda: sequence.pad(x, 2))
    check(lambda: sequence.pad(x, maxlen=70))
    check(lambda: sequence.unpad(*sequence.pad(x), x))
    check(lambda: sequence.reverse(x))
    check(lambda: sequence.reverse(nested, level=0))
    check(lambda: sequence.slice(x, x.row_lengths() // 2, x.row_lengths() % 2))
    check(lambda: sequence.expand(x, x))
    check(lambda: sequence.expand(tf.range(bags), x))
    check(lambda: sequence.expand_as(tf.range(bags), x))
    check(
        lambda: sequence_ops.sequence_context(
            values, splits, tf.cast(5, values.dtype), -1, 3
        )
    )


def test_words_are_padded():
    check(lambda: sequence.pad(tf.ragged.constant([["a", "b"], [], ["c"]])))


def test_maxima_of_minus_infinity():
    x = tf.ragged.constant([[-np.inf, -np.inf], [], [-np.inf, 1.0]])
    check(lambda: sequence.pool(x, "max", with_index=True))


def test_sqrtn_of_one_large_integer():
    x = tf.ragged.constant([[2**62 + 1], [3, 4]], tf.int64)
    check(lambda: sequence.pool(x, "sqrtn"))


@pytest.mark.parametrize("dtype", DTYPES[:4])
def test_softmax_is_close(dtype, rng):
    atol = {"float16": 1e-3, "bfloat16": 1e-2}.get(dtype, 1e-6)

    def close(a, b):
        np.testing.assert_allclose(
            a.astype(np.float64), b.astype(np.float64), rtol=0, atol=atol
        )

    for step in ((), (5,)):
        x = ragged(rng, dtype, step, 30)
        check(lambda x=x: sequence.softmax(x), close)


def test_bad_arguments_are_errors():
    x = tf.ragged.constant([[1, 2], [3]])
    bad = tf.RaggedTensor.from_row_splits(
        tf.range(3), tf.constant([0, 3, 2], tf.int64), validate=False
    )
    error = tf.errors.InvalidArgumentError
    with stand_ins(sequences.functions()):
        with pytest.raises(error, match="must ascend from 0"):
            sequence.pool(bad)
        nested = tf.RaggedTensor.from_row_lengths(bad, [2])
        with pytest.raises(error, match="must ascend from 0"):
            sequence.pool(nested, level=0)
        with pytest.raises(error, match="A sequence has"):
            sequence.pad(x, maxlen=1)
        for lengths in ([2, 4], [2, -1], [2]):
            with pytest.raises(error, match="`lengths` must be"):
                sequence.unpad(tf.zeros([2, 3]), lengths)
        with pytest.raises(error, match="`x` has"):
            sequence.expand(x, tf.ragged.constant([[1]]))
        with pytest.raises(error, match="`x` has"):
            sequence.expand_as(tf.range(3), x)


def test_a_model_of_sequences(tmp_path):
    layers = lodestar.layers
    ids = keras.Input((None,), dtype="int64", ragged=True, name="ids")
    rows = layers.DynamicEmbedding(3, default_row="initial")(ids)
    wide = layers.SequenceConv(
        4, 3, padding_trainable=True, padding_initializer="ones"
    )(rows)
    padded, lengths = sequence.pad(wide, maxlen=6)
    again = sequence.pool(sequence.unpad(padded, lengths, rows), "max")
    pooled = sequence.pool(sequence.softmax(rows), "mean")
    repeated = sequence.pool(sequence.expand_as(pooled, rows), "last")
    steps = rows * 2.0 + keras.layers.Embedding(9, 3)(sequence.positions(ids))
    steps = layers.PerStep(keras.layers.Dense(3, activation="relu"))(steps)
    steps = layers.SequenceAttention(1, 2, causal=True)(steps)
    steps = sequence.reverse(sequence.reshape(steps, 3))
    attended = layers.TargetAttention((2,))(sequence.pool(rows, "last"), steps)
    score = keras.layers.Dense(1)(
        keras.layers.Concatenate()([again, pooled, repeated, attended])
    )
    m = keras.Model(ids, score)
    x = tf.ragged.constant([[1, 2, 3], [], [2**63 - 1]], tf.int64)
    lodestar.export.save_plain(m, tmp_path / "s")
    loaded = plain_served.load(tmp_path / "s")
    np.testing.assert_allclose(
        loaded.serve({"ids": x})["output_0"], m(x), rtol=0, atol=1e-6
    )
