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


@pytest.fixture(params=["ragged", "lod"])
def x(request):
    """Returns NESTED as each kind of nested tensor."""
    ragged = tf.ragged.constant(NESTED, dtype=tf.float32)
    if request.param == "ragged":
        return ragged
    return LoDTensor.from_ragged(ragged)


def to_list(y):
    return (y.to_ragged() if isinstance(y, LoDTensor) else y).to_list()


def softmax(values):
    e = np.exp(np.asarray(values) - max(values, default=0))
    return (e / e.sum()).tolist()


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function])
def test_softmax(x, wrap):
    got = wrap(lambda x: sequence.softmax(x, level=0))(x)
    assert type(got) is type(x)
    flat = [n for unit in FLAT for n in softmax(unit)]
    wanted = tf.ragged.constant(NESTED, dtype=tf.float32).with_flat_values(
        tf.constant(flat, tf.float32)
    )
    assert [len(s) for s in to_list(got)] == [len(s) for s in NESTED]
    for a, b in zip(to_list(got), wanted.to_list()):
        assert [len(s) for s in a] == [len(s) for s in b]
        np.testing.assert_allclose(sum(a, []), sum(b, []), rtol=1e-6)
    # The last level, by both of its numbers.
    assert to_list(sequence.softmax(x, 1)) == to_list(sequence.softmax(x))


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function])
def test_reverse(x, wrap):
    got = wrap(lambda x: sequence.reverse(x, level=0))(x)
    assert type(got) is type(x)
    assert to_list(got) == [units[::-1] for units in NESTED]
    assert to_list(sequence.reverse(x, 1)) == [
        [rows[::-1] for rows in units] for units in NESTED
    ]


def test_reverse_of_three_levels_and_of_strings():
    nested = [[[["a"], ["b", "c"]], []], [[["d"]], [["e"], ["f", "g"]]]]
    x = tf.ragged.constant(nested)
    got = sequence.reverse(x, level=0)
    assert (
        got.to_list()
        == tf.ragged.constant([units[::-1] for units in nested]).to_list()
    )
    got = sequence.reverse(x, level=1)
    assert (
        got.to_list()
        == tf.ragged.constant(
            [[unit[::-1] for unit in units] for units in nested]
        ).to_list()
    )


@pytest.fixture(params=["eager", "graph", "unknown dimensions"])
def wrap(request):
    """Returns a decorator, which may trace a function of RaggedTensors."""
    if request.param == "eager":
        return lambda f: f

    def traced(f):
        def call(x, *others):
            if request.param == "graph" or isinstance(x, LoDTensor):
                return tf.function(f)(x, *others)
            spec = tf.RaggedTensorSpec(
                [None] * x.shape.rank, x.dtype, x.ragged_rank
            )
            specs = [spec] * (1 + len(others))
            return tf.function(f, input_signature=specs)(x, *others)

        return call

    return traced


def test_slice(x, wrap):
    offset, length = [1, 0, 0, 1], [2, 0, 1, 1]
    got = wrap(lambda x: sequence.slice(x, offset, length, level=0))(x)
    assert type(got) is type(x)
    assert to_list(got) == [
        unit[o : o + n] for unit, o, n in zip(NESTED, offset, length)
    ]
    inner = [0] * 6, [1, 0, 1, 2, 0, 1]
    assert to_list(sequence.slice(x, *inner, level=1)) == to_list(
        sequence.slice(x, *inner)
    )
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`length\[2\]` is 2 from `offset\[2\]`=0, but sequence 2 has "
        "length 1",
    ):
        sequence.slice(x, offset, [2, 0, 2, 1], level=0)


def test_concat(x, wrap):
    other = [[[7.0]], [[], [8.0, 9.0]], [], [[6.0]]]
    y = tf.ragged.constant(other, dtype=tf.float32)
    y = LoDTensor.from_ragged(y) if isinstance(x, LoDTensor) else y
    got = wrap(lambda x, y: sequence.concat([x, y, x], level=0))(x, y)
    assert type(got) is type(x)
    assert to_list(got) == [a + b + a for a, b in zip(NESTED, other)]
    assert to_list(sequence.concat([x, x], level=1)) == to_list(
        sequence.concat([x, x])
    )
    few = tf.ragged.constant(other[:3], dtype=tf.float32)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`xs\[1\]` has 3 sequences at level 0, but `xs\[0\]` has 4",
    ):
        sequence.concat([x, few], level=0)


def test_moved_units_of_three_levels_keep_rows_of_strings():
    nested = [[[["a"], ["b", "c"]], []], [[["d"]], [["e"], ["f", "g"]]]]
    x = tf.ragged.constant(nested)
    for level, wanted in (
        (0, [u + u for u in nested]),
        (1, [[s + s for s in u] for u in nested]),
    ):
        got = sequence.concat([x, x], level=level)
        assert got.to_list() == tf.ragged.constant(wanted).to_list()
    got = sequence.slice(x, [1, 0], [1, 2], level=0)
    assert got.to_list() == [[[]], [[[b"d"]], [[b"e"], [b"f", b"g"]]]]
    got = sequence.slice(x, [1, 0, 0, 1], [1, 0, 1, 1], level=1)
    assert got.to_list() == [[[[b"b", b"c"]], []], [[[b"d"]], [[b"f", b"g"]]]]


def _nested_like(rows):
    """Returns rows of the units of FLAT, nested as NESTED."""
    rows = iter(rows)
    return [[[next(rows) for _ in s] for s in unit] for unit in NESTED]


def test_enumerate(x, wrap):
    ids = tf.cast(x, tf.int64) if isinstance(x, tf.RaggedTensor) else None
    if ids is None:
        ids = LoDTensor(tf.cast(x.values, tf.int64), x.lod)
    got = wrap(lambda x: sequence.enumerate(x, 2, -1, level=0))(ids)
    assert type(got) is type(x)
    windows = []
    for unit in FLAT:
        unit = [int(n) for n in unit]
        windows += [list(w) for w in zip(unit, [*unit[1:], -1])]
    assert to_list(got) == _nested_like(windows)


@pytest.mark.parametrize("padding", [None, [[10.0], [20.0]]])
def test_conv(x, wrap, padding):
    if isinstance(x, LoDTensor):
        x = LoDTensor(x.values[:, None], x.lod)
    else:
        x = x.with_flat_values(x.flat_values[:, None])
    weight = [[1.0], [10.0], [100.0]]
    got = wrap(lambda x: sequence.conv(x, weight, padding=padding, level=0))(x)
    assert type(got) is type(x)
    above, below = (0.0, 0.0) if padding is None else (10.0, 20.0)
    rows = []
    for unit in FLAT:
        a = [above, *unit, below]
        rows += [[p + 10 * q + 100 * r] for p, q, r in zip(a, a[1:], a[2:])]
    assert to_list(got) == _nested_like(rows)


def test_reshape(wrap):
    rows = tf.reshape(tf.range(16.0), [8, 2])
    x = LoDTensor.from_lengths(rows, [[2, 0, 1], [1, 3, 4]]).to_ragged()

    def reshape(x):
        return sequence.reshape(x, 4, level=0)

    got = wrap(reshape)(x)
    assert got.ragged_rank == 1
    assert got.row_lengths().numpy().tolist() == [2, 0, 2]
    np.testing.assert_array_equal(got.values, tf.reshape(rows, [4, 4]))
    with pytest.raises(tf.errors.InvalidArgumentError):
        sequence.reshape(x, 4)  # The first sentence has one row of two.
    got = reshape(LoDTensor.from_ragged(x))
    assert isinstance(got, LoDTensor) and len(got.lod) == 1


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function])
def test_pad_and_unpad(x, wrap):
    padded, lengths = wrap(lambda x: sequence.pad(x, level=0))(x)
    assert lengths.numpy().tolist() == [3, 0, 3, 1]
    assert padded.numpy().tolist() == [
        row + [0.0] * (3 - len(row)) for row in FLAT
    ]
    again = wrap(lambda p, n, x: sequence.unpad(p, n, like=x, level=0))(
        padded, lengths, x
    )
    assert type(again) is type(x)
    assert to_list(again) == NESTED
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
            if isinstance(x, tf.RaggedTensor):
                y = call(x.with_flat_values(values))
            else:
                y = call(LoDTensor(values, x.lod))
            rows = y
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

    def column(x):
        if isinstance(x, LoDTensor):
            return LoDTensor(x.values[:, None], x.lod)
        return x.with_flat_values(x.flat_values[:, None])

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
    batch = tf.ragged.constant(NESTED, ragged_rank=2, dtype=tf.float32)
    batch = batch.with_flat_values(batch.flat_values[:, None])
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
    batch = tf.ragged.constant(NESTED, ragged_rank=2, dtype=tf.float32)
    batch = batch.with_flat_values(batch.flat_values[:, None])
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
        served = tf.saved_model.load(str(tmp_path / folder))
        found = served(batch) if callable(served) else None
        if found is not None:
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
