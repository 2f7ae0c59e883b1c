"""`level` of softmax, reverse, pad and unpad, against Python lists."""

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


@pytest.mark.parametrize("level", [2, -2, 0.5, None])
def test_a_level_that_does_not_exist(x, level):
    for call in (
        lambda: sequence.softmax(x, level),
        lambda: sequence.reverse(x, level),
        lambda: sequence.pad(x, level=level),
        lambda: sequence.unpad([[1.0]] * 4, [1] * 4, like=x, level=level),
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
    ],
)
@pytest.mark.parametrize("graph", [False, True])
def test_invalid_splits(call, graph):
    # The outer level ends before the inner one.
    x = LoDTensor(
        tf.zeros([3]),
        (tf.constant([0, 1], tf.int64), tf.constant([0, 1, 3], tf.int64)),
    )
    with pytest.raises(tf.errors.InvalidArgumentError):
        (tf.function(call) if graph else call)(x)


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
