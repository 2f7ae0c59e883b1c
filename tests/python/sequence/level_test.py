"""`level` of the functions on sequences, against Python lists."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import sequence
from lodestar.ragged import LoDTensor

NESTED = [[[1.0, 2.0], [], [3.0]], [], [[4.0, 5.0, 6.0]], [[], [0.5]]]
FLAT = [[1.0, 2.0, 3.0], [], [4.0, 5.0, 6.0], [0.5]]


def nested(rows, kind="ragged"):
    """Returns nested lists of numbers as a nested tensor of a kind."""
    ragged = tf.ragged.constant(rows, dtype=tf.float32)
    return LoDTensor.from_ragged(ragged) if kind == "lod" else ragged


@pytest.fixture(params=["ragged", "lod"])
def x(request):
    """Returns NESTED as each kind of nested tensor."""
    return nested(NESTED, request.param)


def with_rows(x, change):
    if isinstance(x, LoDTensor):
        return LoDTensor(change(x.values), x.lod)
    return x.with_flat_values(change(x.flat_values))


def ids(x):
    return with_rows(x, lambda rows: tf.cast(rows, tf.int64))


def column(x):
    return with_rows(x, lambda rows: rows[:, None])


def to_list(y):
    return (y.to_ragged() if isinstance(y, LoDTensor) else y).to_list()


def softmax(values):
    e = np.exp(np.asarray(values) - max(values, default=0))
    return (e / e.sum()).tolist()


def like_nested(rows):
    """Returns rows of the units of FLAT, nested as NESTED."""
    rows = iter(rows)
    return [[[next(rows) for _ in s] for s in unit] for unit in NESTED]


def windows(above, below, weigh):
    """Returns `weigh` of each number of a unit and the numbers around it."""
    padded = [[above, *unit, below] for unit in FLAT]
    return like_nested(
        weigh(*window) for a in padded for window in zip(a, a[1:], a[2:])
    )


OTHER = [[[7.0]], [[], [8.0, 9.0]], [], [[6.0]]]
SLICE = [1, 0, 0, 1], [2, 0, 1, 1]
WEIGHT = [[1.0], [10.0], [100.0]]


def padded_again(x):
    padded, lengths = sequence.pad(x, level=0)
    return sequence.unpad(padded, lengths, like=x, level=0)


# What a function makes of NESTED, and how with lists.
CASES = {
    "softmax": (
        lambda x: sequence.softmax(x, level=0),
        like_nested(n for unit in FLAT for n in softmax(unit)),
    ),
    "reverse": (
        lambda x: sequence.reverse(x, level=0),
        [units[::-1] for units in NESTED],
    ),
    "slice": (
        lambda x: sequence.slice(x, *SLICE, level=0),
        [unit[o : o + n] for unit, o, n in zip(NESTED, *SLICE)],
    ),
    "concat": (
        lambda x: sequence.concat([x, x], level=0),
        [a + a for a in NESTED],
    ),
    "enumerate": (
        lambda x: sequence.enumerate(ids(x), 2, -1, level=0),
        windows(0, -1, lambda _, a, b: [int(a), int(b)]),
    ),
    "conv": (
        lambda x: sequence.conv(column(x), WEIGHT, level=0),
        windows(0.0, 0.0, lambda a, b, c: [a + 10 * b + 100 * c]),
    ),
    "conv with padding": (
        lambda x: sequence.conv(
            column(x), WEIGHT, padding=[[10.0], [20.0]], level=0
        ),
        windows(10.0, 20.0, lambda a, b, c: [a + 10 * b + 100 * c]),
    ),
    "pad and unpad": (padded_again, NESTED),
}


@pytest.mark.parametrize("mode", ["eager", "graph", "unknown dimensions"])
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_lists(name, x, mode):
    call, wanted = CASES[name]
    if mode == "unknown dimensions" and isinstance(x, tf.RaggedTensor):
        spec = tf.RaggedTensorSpec([None] * 3, x.dtype, 2)
        call = tf.function(call, input_signature=[spec])
    elif mode != "eager":
        call = tf.function(call)
    got = call(x)
    assert type(got) is type(x)
    got, wanted = to_list(got), tf.ragged.constant(wanted).to_list()
    assert [[len(s) for s in unit] for unit in got] == [
        [len(s) for s in unit] for unit in wanted
    ]
    np.testing.assert_allclose(
        np.ravel(sum(sum(got, []), [])),
        np.ravel(sum(sum(wanted, []), [])),
        rtol=1e-6,
    )


def test_concat_of_others(x):
    y = nested(OTHER, "lod" if isinstance(x, LoDTensor) else "ragged")
    got = sequence.concat([x, y, x], level=0)
    assert to_list(got) == [a + b + a for a, b in zip(NESTED, OTHER)]
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`xs\[1\]` has 3 sequences at level 0, but `xs\[0\]` has 4",
    ):
        sequence.concat([x, nested(OTHER[:3])], level=0)


def test_a_slice_beyond_its_unit_is_named(x):
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`length\[2\]` is 2 from `offset\[2\]`=0, but sequence 2 has "
        "length 1",
    ):
        sequence.slice(x, SLICE[0], [2, 0, 2, 1], level=0)


def test_the_last_level_has_two_numbers(x):
    inner = [0] * 6, [1, 0, 1, 2, 0, 1]
    for call in (
        sequence.softmax,
        sequence.reverse,
        lambda x, level=-1: sequence.slice(x, *inner, level=level),
        lambda x, level=-1: sequence.concat([x, x], level=level),
    ):
        assert to_list(call(x, level=1)) == to_list(call(x))
    assert to_list(sequence.reverse(x)) == [
        [rows[::-1] for rows in units] for units in NESTED
    ]


def test_moved_units_of_three_levels_keep_rows_of_strings():
    nested = [[[["a"], ["b", "c"]], []], [[["d"]], [["e"], ["f", "g"]]]]
    x = tf.ragged.constant(nested)
    for move, wanted in (
        (sequence.reverse, lambda units: units[::-1]),
        (
            lambda x, level: sequence.concat([x, x], level=level),
            lambda units: units * 2,
        ),
    ):
        of_level_0 = tf.ragged.constant([wanted(u) for u in nested])
        of_level_1 = tf.ragged.constant(
            [[wanted(s) for s in u] for u in nested]
        )
        assert move(x, level=0).to_list() == of_level_0.to_list()
        assert move(x, level=1).to_list() == of_level_1.to_list()
    got = sequence.slice(x, [1, 0], [1, 2], level=0)
    assert got.to_list() == [[[]], [[[b"d"]], [[b"e"], [b"f", b"g"]]]]
    got = sequence.slice(x, [1, 0, 0, 1], [1, 0, 1, 1], level=1)
    assert got.to_list() == [[[[b"b", b"c"]], []], [[[b"d"]], [[b"f", b"g"]]]]


@pytest.mark.parametrize("graph", [False, True])
def test_reshape(graph):
    rows = tf.reshape(tf.range(16.0), [8, 2])
    x = LoDTensor.from_lengths(rows, [[2, 0, 1], [1, 3, 4]]).to_ragged()

    def reshape(x):
        return sequence.reshape(x, 4, level=0)

    spec = tf.RaggedTensorSpec([None] * 4, tf.float32, 2)
    traced = tf.function(reshape, input_signature=[spec])
    got = (traced if graph else reshape)(x)
    assert got.ragged_rank == 1
    assert got.row_lengths().numpy().tolist() == [2, 0, 2]
    np.testing.assert_array_equal(got.values, tf.reshape(rows, [4, 4]))
    with pytest.raises(tf.errors.InvalidArgumentError):
        sequence.reshape(x, 4)  # The first sentence has one row of two.
    got = reshape(LoDTensor.from_ragged(x))
    assert isinstance(got, LoDTensor) and len(got.lod) == 1


def test_pad(x):
    padded, lengths = sequence.pad(x, level=0)
    assert lengths.numpy().tolist() == [3, 0, 3, 1]
    assert padded.numpy().tolist() == [
        row + [0.0] * (3 - len(row)) for row in FLAT
    ]
    padded, _ = sequence.pad(x, 9.0, 4, level=0)
    assert padded.shape == [4, 4] and padded[1, 0] == 9.0


def test_masks_of_a_level():
    padded, _ = sequence.pad(tf.ragged.constant(NESTED), level=0)
    mask = keras.src.backend.get_keras_mask(padded)
    np.testing.assert_array_equal(mask.numpy().sum(1), [3, 0, 3, 1])


def test_gradients(x):
    values = x.flat_values if isinstance(x, tf.RaggedTensor) else x.values

    def of(call):
        with tf.GradientTape() as tape:
            tape.watch(values)
            rows = y = call(with_rows(x, lambda _: values))
            if not isinstance(y, tf.Tensor):
                rows = y.flat_values if hasattr(y, "flat_values") else y.values
            weights = tf.reshape(
                tf.range(1.0, tf.size(rows, tf.float32) + 1), tf.shape(rows)
            )
            loss = tf.reduce_sum(weights * rows)
        return tf.convert_to_tensor(tape.gradient(loss, values)).numpy()

    # Row i of the result is worth i + 1.
    np.testing.assert_array_equal(
        of(lambda x: sequence.reverse(x, level=0)), [2, 3, 1, 4, 5, 6, 7]
    )
    np.testing.assert_array_equal(
        of(lambda x: sequence.pad(x, level=0)[0]), [1, 2, 3, 7, 8, 9, 10]
    )
    np.testing.assert_array_equal(
        of(lambda x: sequence.slice(x, [1, 0, 0, 1], [2, 0, 1, 1], level=0)),
        [0, 0, 1, 2, 3, 4, 5],
    )
    # x has units of 3, 0, 3 and 1 rows.
    np.testing.assert_array_equal(
        of(lambda x: sequence.concat([x, x], level=0)),
        [1 + 4, 2 + 5, 3 + 6, 7 + 10, 8 + 11, 9 + 12, 13 + 14],
    )
    np.testing.assert_array_equal(
        of(lambda x: sequence.reshape(x, 1, level=0)), range(1, 8)
    )

    # A row is in the window of the row before it and in its own.
    np.testing.assert_array_equal(
        of(
            lambda x: sequence.conv(
                column(x), [[1.0], [1.0]], 2, start=0, level=0
            )
        ),
        [1, 1 + 2, 2 + 3, 4, 4 + 5, 5 + 6, 7],
    )
    p = np.array(softmax([4.0, 5.0, 6.0]))
    got = of(lambda x: sequence.softmax(x, level=0))[3:6]
    w = np.array([4, 5, 6])
    np.testing.assert_allclose(got, p * (w - (p * w).sum()), rtol=1e-5)


def test_empty_batches():
    x = tf.RaggedTensor.from_nested_row_lengths(
        tf.zeros([0, 2]), [tf.zeros([0], tf.int64), tf.zeros([0], tf.int64)]
    )
    assert sequence.softmax(x, 0).shape.as_list()[0] == 0
    assert sequence.reverse(x, 0).flat_values.shape == [0, 2]
    padded, lengths = sequence.pad(x, level=0)
    assert padded.shape == [0, 1, 2] and lengths.shape == [0]
    nothing = tf.zeros([0], tf.int64)
    for got in (
        sequence.slice(x, nothing, nothing, level=0),
        sequence.concat([x, x], level=0),
        sequence.conv(x, tf.ones([6, 2]), level=0),
    ):
        assert got.flat_values.shape == [0, 2]
        assert [s.shape[0] for s in got.nested_row_splits] == [1, 1]
    ids = tf.cast(x.with_flat_values(tf.zeros([0])), tf.int64)
    assert sequence.enumerate(ids, 3, level=0).flat_values.shape == [0, 3]
    assert sequence.reshape(x, 1, level=0).flat_values.shape == [0, 1]


@pytest.mark.parametrize("level", [2, -2, 0.5, None])
def test_a_level_that_does_not_exist(x, level):
    for call in (
        lambda: sequence.softmax(x, level),
        lambda: sequence.reverse(x, level),
        lambda: sequence.pad(x, level=level),
        lambda: sequence.unpad([[1.0]] * 4, [1] * 4, like=x, level=level),
        lambda: sequence.slice(x, [0] * 4, [0] * 4, level=level),
        lambda: sequence.concat([x, x], level=level),
        lambda: sequence.reshape(x, 1, level=level),
        lambda: sequence.enumerate(tf.ragged.constant([[[1]]]), 2, level=level),
        lambda: sequence.conv(
            tf.ragged.constant([[[[1.0]]]], ragged_rank=2),
            tf.ones([3, 1]),
            level=level,
        ),
    ):
        with pytest.raises(ValueError, match=r"`level` must be .* \[-1, 1\]"):
            call()


def test_unpad_with_other_lengths(x):
    padded, lengths = sequence.pad(x, level=0)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="must be those of the sequences"
    ):
        sequence.unpad(padded, lengths - [0, 0, 1, 0], like=x, level=0)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="as many sequences as `padded`"
    ):
        sequence.unpad(padded[:2], lengths[:2], like=x, level=0)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: sequence.softmax(x, level=0),
        lambda x: sequence.reverse(x, level=0),
        lambda x: sequence.pad(x, level=0)[0],
        lambda x: sequence.slice(x, [0], [1], level=0),
        lambda x: sequence.concat([x, x], level=0),
        lambda x: sequence.reshape(x, 1, level=0),
    ],
)
@pytest.mark.parametrize(
    "lod",
    [
        [[0, 1], [0, 1, 3]],  # The outer level ends before the inner one.
        [[0, 2], [0, 1, 2]],  # The inner level ends before the rows,
        [[0, 2], [0, 1, 5]],  # or after them.
    ],
)
@pytest.mark.parametrize("graph", [False, True])
def test_invalid_splits(call, lod, graph):
    x = LoDTensor(
        tf.zeros([3]), tuple(tf.constant(level, tf.int64) for level in lod)
    )
    with pytest.raises(tf.errors.InvalidArgumentError):
        (tf.function(call) if graph else call)(x)


def test_each_is_a_layer_of_a_functional_model(tmp_path):
    x = keras.Input((None, None, 1), ragged=True, name="x")
    y = sequence.concat([x, x], level=0)
    y = sequence.slice(y, [1, 0, 0, 0], [2, 0, 1, 2], level=0)
    y = sequence.conv(y, [[1.0], [1.0]], 2, start=0, level=0)
    y = sequence.reshape(y, 1, level=0)
    assert y.shape[1:] == (None, 1) and y.ragged
    model = keras.Model(x, y)
    batch = column(nested(NESTED))
    # The sentences are [[], [3]], [], [[4, 5, 6]] and [[], [0.5]].
    wanted = [[[3.0]], [], [[9.0], [11.0], [6.0]], [[0.5]]]
    assert model(batch).to_list() == wanted
    model.save(str(tmp_path / "m.keras"))
    again = keras.models.load_model(str(tmp_path / "m.keras"))
    assert again(batch).to_list() == wanted


def test_keras_models_and_exports(tmp_path):
    x = keras.Input((None, None, 1), ragged=True, name="x")
    y = sequence.softmax(sequence.reverse(x, level=0), level=0)
    padded, lengths = sequence.pad(y, level=0)
    back = sequence.unpad(padded, lengths, like=y, level=0)
    model = keras.Model(x, sequence.pool(back, "max", level=0))
    batch = column(nested(NESTED))
    wanted = model(batch).numpy()
    np.testing.assert_allclose(
        wanted[:, 0], [max(softmax(u), default=0) for u in FLAT], rtol=1e-6
    )
    model.save(str(tmp_path / "m.keras"))
    again = keras.models.load_model(str(tmp_path / "m.keras"))
    np.testing.assert_array_equal(again(batch), wanted)
    lodestar.export.save(model, str(tmp_path / "export"))
    lodestar.export.save_plain(model, str(tmp_path / "plain"))
    for folder in ("export", "plain"):
        served = tf.saved_model.load(str(tmp_path / folder)).signatures
        (found,) = served["serving_default"](
            x_values=batch.flat_values,
            **{
                f"x_row_splits_{i}": splits
                for i, splits in enumerate(batch.nested_row_splits)
            },
        ).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
