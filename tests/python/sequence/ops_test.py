"""What functions of one nested input promise alike, against NumPy."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from batches import (
    FLOATS,
    INTEGERS,
    LENGTHS,
    MOVED,
    check_gradients,
    check_gradients_of_nothing,
    check_threads,
    every_nothing,
    gradient_in,
    ragged_of,
    random_rows,
    splits_of,
)

from lodestar import sequence
from lodestar.ragged import LoDTensor
from lodestar.sequence import nesting

# Widths that fill vector registers and not, and that have no numbers.
SHAPES = [(), (5,), (2, 3), (0,), (70,), (1,)]
ONE_A_ROW = [(), (1,)]
# Numbers of rows in [2 units, 0 units, ...].
LEVELS = [[2, 0, 1, 1], [3, 0, 7, 1]]


class Op(NamedTuple):
    """A function, and its result for the rows of one sequence.

    Attributes:
        call: Called with the input and the lengths of its innermost sequences.
        reference: Called with the rows of a sequence.
        dtypes: Allowed dtypes of rows.
        shapes: Allowed shapes of rows.
        pools: Whether the result is a row per sequence.
        has_gradient: Whether it is differentiable.
    """

    call: Callable[[Any, tf.Tensor], Any]
    reference: Callable[[np.ndarray], np.ndarray]
    dtypes: list[tf.DType] = MOVED
    shapes: list[tuple[int, ...]] = SHAPES
    pools: bool = False
    has_gradient: bool = True


def pool(combiner, reference):
    """Returns the Op of a combiner; empty sequences become 7."""

    def pooled(rows):
        if not len(rows):
            return np.full((1, *rows.shape[1:]), 7)
        wanted = reference(rows.astype(np.float64))
        if np.issubdtype(rows.dtype, np.integer):
            wanted = np.trunc(wanted)
        return wanted[np.newaxis]

    return Op(
        lambda x, lengths: sequence.pool(x, combiner, pad_value=7),
        pooled,
        [*FLOATS, *INTEGERS],
        pools=True,
    )


def softmax(rows):
    if not rows.size:
        return rows
    e = np.exp(rows.astype(np.float64) - rows.astype(np.float64).max(0))
    return e / e.sum(0)


def middle(n):
    """Returns offset and length of a slice of sequences of length n."""
    return n // 3, (n + 1) // 2


def sliced(rows):
    offset, length = middle(len(rows))
    return rows[offset : offset + length]


def pairs(rows):
    ids = rows.reshape(-1)
    following = [*ids[1:], 99]
    return np.stack([ids, following[: len(ids)]], 1).reshape(-1, 2)


def erase(x, lengths):
    rows, _ = nesting.flatten("x", x)
    tokens = tf.constant([3, -2, 3, 400])
    if rows.dtype == tf.string:
        return sequence.erase(x, tf.strings.as_string(tokens))
    return sequence.erase(x, tf.cast(tokens, rows.dtype))


def kept(rows):
    texts = [
        i.decode() if isinstance(i, bytes) else str(i)
        for i in rows.reshape(-1).tolist()
    ]
    return rows[[i not in ("3", "-2") for i in texts]]


OPS = {
    "pool sum": pool("sum", lambda rows: rows.sum(0)),
    "pool mean": pool("mean", lambda rows: rows.mean(0)),
    "pool sqrtn": pool("sqrtn", lambda rows: rows.sum(0) / np.sqrt(len(rows))),
    "pool max": pool("max", lambda rows: rows.max(0)),
    "pool first": pool("first", lambda rows: rows[0]),
    "pool last": pool("last", lambda rows: rows[-1]),
    "softmax": Op(lambda x, n: sequence.softmax(x), softmax, FLOATS),
    "reverse": Op(
        lambda x, n: sequence.reverse(x),
        lambda rows: rows[::-1],
        [*MOVED, tf.int16, tf.uint8, tf.uint32, tf.uint64, tf.complex64],
    ),
    "slice": Op(lambda x, n: sequence.slice(x, *middle(n)), sliced),
    "concat": Op(
        lambda x, n: sequence.concat([x, sequence.slice(x, *middle(n)), x]),
        lambda rows: np.concatenate([rows, sliced(rows), rows]),
    ),
    "pad and unpad": Op(
        lambda x, n: sequence.unpad(*sequence.pad(x), like=x),
        lambda rows: rows,
    ),
    "reshape": Op(
        lambda x, n: sequence.reshape(x, 1),
        lambda rows: rows.reshape(-1, 1),
    ),
    "enumerate": Op(
        lambda x, n: sequence.enumerate(x, 2, 99),
        pairs,
        INTEGERS,
        ONE_A_ROW,
        has_gradient=False,
    ),
    "erase": Op(
        erase, kept, [*INTEGERS, tf.string], ONE_A_ROW, has_gradient=False
    ),
    "positions": Op(
        lambda x, n: sequence.positions(x),
        lambda rows: np.arange(len(rows)),
        has_gradient=False,
    ),
    "positions from the end": Op(
        lambda x, n: sequence.positions(x, from_end=True),
        lambda rows: np.arange(len(rows))[::-1],
        has_gradient=False,
    ),
}
every_op = pytest.mark.parametrize("op", OPS.values(), ids=OPS)
every_differentiable = pytest.mark.parametrize(
    "op",
    [op for op in OPS.values() if op.has_gradient],
    ids=[name for name, op in OPS.items() if op.has_gradient],
)


def rows_of(rng, count, shape, dtype):
    if dtype in (tf.string, tf.bool):
        rows = random_rows(rng, (count, *shape), dtype)
        return (
            rows
            if dtype == tf.bool
            else tf.strings.as_string(tf.strings.length(rows) % 9)
        )
    rows = rng.integers(0 if dtype.is_unsigned else -9, 9, (count, *shape))
    return tf.cast(rows, dtype)


def wanted_of(op, rows, lengths):
    """Returns the rows of the result and the lengths of its sequences."""
    ends = splits_of(lengths)
    parts = [
        op.reference(rows[a:b])
        for a, b in zip(ends[:-1], ends[1:], strict=True)
    ]
    nothing = op.reference(rows[:0])[:0]
    return np.concatenate([nothing, *parts]), [len(part) for part in parts]


def check(got, wanted):
    """Compares rows; of computed floats, up to one rounding."""
    if got.dtype.is_floating:
        rtol = {tf.float16: 2e-3, tf.bfloat16: 8e-3, tf.float64: 1e-12}
        np.testing.assert_allclose(
            tf.cast(got, tf.float64),
            wanted.astype(np.float64),
            rtol=rtol.get(got.dtype, 1e-5),
            atol=6e-8,
        )
    else:
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@every_op
def test_matches_numpy(op, lengths, rng):
    for i, dtype in enumerate(op.dtypes):
        for k in (i, i + 1, i + 3):
            shape = op.shapes[k % len(op.shapes)]
            rows = rows_of(rng, sum(lengths), shape, dtype)
            wanted, wanted_lengths = wanted_of(op, rows.numpy(), lengths)
            got = op.call(
                ragged_of(rows, lengths), tf.constant(lengths, tf.int64)
            )
            if op.pools:
                assert got.shape == wanted.shape
                check(got, wanted)
                continue
            check(got.flat_values, wanted)
            assert got.row_lengths().numpy().tolist() == wanted_lengths
            if wanted.dtype == rows.numpy().dtype:
                assert got.dtype == dtype


@pytest.mark.parametrize("kind", ["int32", "int64", "LoD", "function"])
@every_op
def test_upper_levels_and_the_kind_of_the_input_are_kept(op, kind, rng):
    lengths = LEVELS[-1]
    dtype, shape = op.dtypes[0], op.shapes[-1]
    rows = rows_of(rng, sum(lengths), shape, dtype)
    wanted, wanted_lengths = wanted_of(op, rows.numpy(), lengths)
    x = LoDTensor.from_lengths(rows, LEVELS)
    if kind != "LoD":
        splits = tf.int32 if kind == "int32" else tf.int64
        x = x.to_ragged().with_row_splits_dtype(splits)
    counts = tf.constant(lengths, tf.int64)
    if kind == "function":
        spec = tf.RaggedTensorSpec([None] * 3 + list(shape), dtype, 2, tf.int64)

        def function(x, counts):
            got = op.call(x, counts)
            assert got.flat_values.shape[1:] == wanted.shape[1:]
            return got

        got = tf.function(
            function, input_signature=[spec, tf.TensorSpec([None], tf.int64)]
        )(x, counts)
    else:
        got = op.call(x, counts)
    assert type(got) is type(x)
    if kind == "int32":
        assert got.row_splits.dtype == tf.int32
    found, splits = nesting.flatten("got", got)
    check(found, wanted)
    levels = LEVELS[:1] if op.pools else [LEVELS[0], wanted_lengths]
    assert [np.diff(level).tolist() for level in splits] == levels


@every_differentiable
def test_gradients_are_numeric_ones_to_second_order(op, rng):
    lengths = [2, 0, 3, 1]
    values = rng.permutation(12).reshape(6, 2) / 10

    def rows(values):
        y = op.call(ragged_of(values, lengths), tf.constant(lengths, tf.int64))
        return y if op.pools else y.flat_values

    check_gradients(rows, tf.constant(values))
    # Sums of 16-bit floats are kept in float32.
    upstream = rng.integers(-9, 9, size=rows(tf.constant(values)).shape)
    exact = gradient_in(tf.float64, rows, values, upstream)
    for dtype in FLOATS[:3]:
        short = gradient_in(dtype, rows, values, upstream)
        np.testing.assert_allclose(short, exact, rtol=2e-2, atol=4e-2)


@every_nothing
@every_differentiable
def test_gradients_of_nothing(op, splits, shape):
    counts = tf.constant(np.diff(splits))

    def rows(x):
        y = op.call(x, counts)
        return y if op.pools else y.flat_values

    check_gradients_of_nothing(rows, splits, shape)


@pytest.mark.parametrize(
    "name", ["pool sum", "pool mean", "pool max", "softmax"]
)
def test_same_bits_for_any_number_of_threads(name, rng):
    check_threads(lambda x: OPS[name].call(x, None), rng)


@every_op
def test_other_inputs_are_refused(op):
    one = tf.constant([1], tf.int64)
    with pytest.raises(TypeError, match="`x.*` must be a RaggedTensor or LoD"):
        op.call(tf.ones([2, 2]), one)
    with pytest.raises(ValueError, match="`x.*` has no level"):
        op.call(LoDTensor(tf.zeros([0], op.dtypes[0]), ()), one)


@pytest.mark.parametrize(
    "name",
    sorted({*OPS} - {"reshape", "positions", "positions from the end"}),
)
def test_other_dtypes_are_refused(name):
    op = OPS[name]
    x = LoDTensor(tf.zeros([1], tf.qint8), (tf.constant([0, 1], tf.int64),))
    message = f"has dtype qint8, but must be one of {op.dtypes[0].name}"
    with pytest.raises(TypeError, match=message):
        op.call(x, tf.constant([1], tf.int64))


@every_op
def test_iterators_of_datasets_that_call_it_have_checkpoints(op, tmp_path):
    batches = tf.data.Dataset.from_tensors(
        ragged_of(
            np.ones((7, *op.shapes[0]), op.dtypes[0].as_numpy_dtype), [3, 0, 4]
        )
    )
    iterator = iter(batches.map(lambda x: op.call(x, tf.constant([3, 0, 4]))))
    tf.train.Checkpoint(iterator=iterator).save(tmp_path / "c")
