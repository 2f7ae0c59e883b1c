"""lodestar.layers.SequenceExpand and SequenceExpandAs."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import LoDTensor
from lodestar.layers import (
    SequenceExpand,
    SequenceExpandAs,
    SequencePool,
    ToLoD,
    ToRagged,
)


def _units(*lengths, width=1):
    """Ragged rows 1, 2, 3, ... of as many columns."""
    rows = tf.range(1.0, sum(lengths[-1]) + 1)[:, tf.newaxis]
    return tf.RaggedTensor.from_nested_row_lengths(
        tf.repeat(rows, width, axis=1), lengths
    )


def _column(x):
    """Nested lists of the first column."""
    return x.with_flat_values(x.flat_values[:, 0]).to_list()


def test_units_are_repeated():
    x, y = _units([2, 1]), _units([2, 3])
    got = SequenceExpand()([x, y])
    assert _column(got) == [[1, 2], [1, 2], [3], [3], [3]]
    assert SequenceExpand()([tf.constant([5, 6]), y]).numpy().tolist() == [
        5,
        5,
        6,
        6,
        6,
    ]
    assert _column(SequenceExpand()([x, _units([0, 1])])) == [[3]]


@pytest.mark.parametrize(
    ("ref_level", "want"), [(0, [1, 1, 3, 3]), (-1, [1, 2, 2, 2])]
)
def test_ref_level(ref_level, want):
    y = _units([2, 0, 2], [1, 3, 0, 0])
    x = tf.constant([1, 2, 3] if ref_level == 0 else [1, 2, 3, 4])
    layer = SequenceExpand(ref_level)
    assert layer([x, y]).numpy().tolist() == want
    again = SequenceExpand.from_config(layer.get_config())
    assert again.ref_level == ref_level


def test_rows_reach_the_sequence_they_belong_to():
    x = tf.constant([[1.0], [2.0], [3.0]])
    y = _units([2, 0, 1], width=2)
    assert _column(SequenceExpandAs()([x, y])) == [[1, 1], [], [3]]


@pytest.mark.parametrize("lod", [False, True])
def test_lod(lod):
    convert = LoDTensor.from_ragged if lod else lambda x: x
    x, y = convert(_units([2, 1])), convert(_units([1, 2]))
    got = SequenceExpand()([x, y])
    spread = SequenceExpandAs()([tf.constant([[1.0], [2.0]]), y])
    if lod:
        assert isinstance(got, LoDTensor)
        assert isinstance(spread, LoDTensor)
        got, spread = got.to_ragged(), spread.to_ragged()
    assert _column(got) == [[1, 2], [3], [3]]
    assert _column(spread) == [[1], [2, 2]]


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int32", "int64", "string"]
)
@pytest.mark.parametrize("layer", [SequenceExpand, SequenceExpandAs])
def test_dtype_is_that_of_x(layer, dtype):
    x = keras.Input((3,), dtype=dtype)
    y = keras.Input((None, 2), ragged=True)
    outputs = layer(dtype="mixed_float16")([x, y])
    assert outputs.dtype == dtype
    rows = tf.constant([["1"] * 3, ["2"] * 3])
    if dtype != "string":
        rows = tf.strings.to_number(rows, tf.int32)
        rows = tf.cast(rows, dtype)
    got = keras.Model([x, y], outputs)([rows, _units([1, 2], width=2)])
    assert got.dtype == dtype


@pytest.mark.parametrize(
    ("layer", "x", "y", "shape", "ragged"),
    [
        (SequenceExpand, (3,), (None, 2), (None, 3), False),
        (SequenceExpand, (None, 3), (None, 2), (None, None, 3), True),
        (SequenceExpandAs, (3,), (None, 2), (4, None, 3), True),
        (SequenceExpandAs, (), (None, None, 2), (4, None, None), True),
        (SequenceExpandAs, (None, 3), (None, None), (4, None, None, 3), True),
        (SequenceExpandAs, (3,), (None, None, 2), (4, None, None, 3), True),
    ],
)
def test_symbolic_output(layer, x, y, shape, ragged):
    inputs = [
        keras.Input(x, ragged=None in x, batch_size=4),
        keras.Input(y, ragged=True, batch_size=4),
    ]
    outputs = layer()(inputs)
    assert (outputs.shape, outputs.ragged) == (shape, ragged)


def test_rows_beside_what_was_pooled_of_two_levels(tmp_path):
    """Each item row less the mean of its session."""
    inputs = keras.Input((None, None, 2), ragged=True, name="x")
    x = ToLoD()(inputs)
    means = SequenceExpandAs()([SequencePool("mean")(x), x])
    assert means.shape == (None, None, None, 2)
    model = keras.Model(inputs, ToRagged()(means))
    batch = _units([2, 0, 1], [3, 0, 2], width=2)
    want = [[[2, 2, 2], []], [], [[4.5, 4.5]]]
    assert _column(model(batch)) == want
    assert _column(model.predict(batch, verbose=0)) == want
    path = str(tmp_path / "model.keras")
    model.save(path)
    assert _column(keras.saving.load_model(path)(batch)) == want
    path = str(tmp_path / "exported")
    lodestar.export.save(model, path)
    exported = tf.saved_model.load(path)
    assert _column(exported.serve({"x": batch})["output_0"]) == want


def test_gradient_sums_the_repeats():
    x = tf.constant([[1.0], [2.0], [3.0]])
    y = _units([2, 0, 1])
    for layer in (SequenceExpand(), SequenceExpandAs()):
        with tf.GradientTape() as tape:
            tape.watch(x)
            got = layer([x, y])
            rows = got if isinstance(got, tf.Tensor) else got.flat_values
            loss = tf.reduce_sum(rows * tf.constant([[1.0], [10.0], [100.0]]))
        np.testing.assert_array_equal(
            tape.gradient(loss, x), [[11], [0], [100]]
        )


def test_graph_with_unknown_dimensions():
    specs = [
        tf.TensorSpec([None, None]),
        tf.RaggedTensorSpec([None, None, None], ragged_rank=1),
    ]
    layer = SequenceExpandAs()
    call = tf.function(lambda x, y: layer([x, y]), input_signature=specs)
    x, y = tf.constant([[1.0], [2.0]]), _units([2, 1])
    assert _column(call(x, y)) == [[1, 1], [2]]


@pytest.mark.parametrize("layer", [SequenceExpand, SequenceExpandAs])
def test_inputs_that_are_refused(layer):
    layer = layer(name="it")
    y = keras.Input((None, 2), ragged=True)
    with pytest.raises(ValueError, match=r"it takes \[x, y\], found KerasTens"):
        layer(y)
    with pytest.raises(ValueError, match=r"it takes \[x, y\], found 3 inputs"):
        layer([tf.ones([2]), tf.ones([2]), tf.ones([2])])
    with pytest.raises(
        ValueError, match="it needs a ragged `y`, found a dense"
    ):
        layer([y, keras.Input((3, 2))])
    with pytest.raises(
        ValueError, match="it needs a ragged `y`, found a dense"
    ):
        layer([tf.ones([2]), tf.ones([2])])
    with pytest.raises(tf.errors.InvalidArgumentError):
        layer([tf.ones([2]), _units([1, 1, 1])])


def test_levels_that_are_refused():
    one, two = (keras.Input((*[None] * n, 2), ragged=True) for n in (1, 2))
    with pytest.raises(
        ValueError, match="it has `ref_level` 1, wanted -1 to 0 for a `y`"
    ):
        SequenceExpand(1, name="it")([one, one])
    with pytest.raises(ValueError, match="it needs an `x` of one level, found"):
        SequenceExpand(name="it")([two, one])
