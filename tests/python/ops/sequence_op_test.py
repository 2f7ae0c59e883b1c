"""lodestar.ops.sequence_op: functions of sequences in functional models."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import sequence
from lodestar.ops.sequence_op import SequenceOp
from lodestar.ragged import LoDTensor

# All take one ragged input with rows of one float.
_CALLS = {
    "concat": lambda x, **k: sequence.concat([x, x], **k),
    "conv": lambda x, **k: sequence.conv(x, tf.ones([3, 2]), **k),
    "expand": lambda x, **k: sequence.expand(x, x, **k),
    "expand_as": lambda x, **k: sequence.expand_as(sequence.pool(x), x, **k),
    "from_ragged": lambda x: LoDTensor.from_ragged(x),
    "pad": lambda x, **k: sequence.pad(x, -1.0, **k)[0],
    "pad_to": lambda x, **k: sequence.pad(x, maxlen=4, **k)[0],
    "pool": lambda x, **k: sequence.pool(x, "mean", **k),
    "reshape": lambda x, **k: sequence.reshape(x, 1, **k),
    "reverse": lambda x, **k: sequence.reverse(x, **k),
    "softmax": lambda x, **k: sequence.softmax(x, **k),
    "unpad": lambda x, **k: sequence.unpad(*sequence.pad(x), like=x, **k),
}
_ONE_LEVEL = ("expand",)
every_call = pytest.mark.parametrize("kind", _CALLS)
levels = pytest.mark.parametrize("levels", [1, 2])


def _batch(levels, dtype=tf.float32):
    rows = tf.cast(tf.reshape(tf.range(6), [6, 1]), dtype)
    lengths = [[2, 0, 1], [3, 0, 3]] if levels == 2 else [[3, 0, 1, 2]]
    return tf.RaggedTensor.from_nested_row_lengths(rows, lengths)


def _input(levels=1, dtype="float32", **options):
    shape = (*[None] * levels, 1)
    return keras.Input(shape, ragged=True, dtype=dtype, name="x", **options)


def _values(x):
    """Returns nested lists for any kind of tensor."""
    if isinstance(x, LoDTensor):
        x = x.to_ragged()
    return (
        x.to_list() if isinstance(x, tf.RaggedTensor) else np.array(x).tolist()
    )


def _skip(kind, levels):
    if levels == 2 and kind in _ONE_LEVEL:
        pytest.skip("supports one level only")


@levels
@every_call
def test_symbolic_output_is_what_the_model_returns(kind, levels):
    _skip(kind, levels)
    inputs = _input(levels)
    outputs = _CALLS[kind](inputs)
    x = _batch(levels)
    got = keras.Model(inputs, outputs)(x)
    assert type(got) is type(_CALLS[kind](x))
    assert _values(got) == _values(_CALLS[kind](x))
    if isinstance(got, LoDTensor):
        got = got.to_ragged()
    assert outputs.ragged == isinstance(got, tf.RaggedTensor)
    assert outputs.dtype == got.dtype.name
    assert len(outputs.shape) == len(got.shape)
    assert got.shape.is_compatible_with(outputs.shape)


@levels
@every_call
def test_saved_loaded_and_exported(kind, levels, tmp_path):
    _skip(kind, levels)
    inputs = _input(levels)
    outputs = _CALLS[kind](inputs)
    if kind == "from_ragged":
        outputs = LoDTensor.to_ragged(outputs)
    model = keras.Model(inputs, outputs)
    x = _batch(levels)
    want = _values(model(x))
    assert _values(model.predict(x, verbose=0)) == want
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert _values(loaded(x)) == want
    assert loaded.get_config() == model.get_config()
    path = str(tmp_path / "exported")
    lodestar.export.save(model, path)
    exported = tf.saved_model.load(path)
    assert _values(exported.serve({"x": x})["output_0"]) == want
    # A dense signature would treat padding as rows.
    with pytest.raises(TypeError, match="must be a RaggedTensor"):
        model.export(str(tmp_path / "dense"), verbose=False)


@pytest.mark.parametrize("kind", sorted({*_CALLS} - {"from_ragged"}))
def test_lod_inside_a_model(kind):
    inputs = _input()
    outputs = _CALLS[kind](LoDTensor.from_ragged(inputs))
    got = keras.Model(inputs, outputs)(_batch(1))
    want = _CALLS[kind](_batch(1))
    assert _values(got) == _values(want)
    if isinstance(want, tf.RaggedTensor):
        assert isinstance(got, LoDTensor)


@every_call
def test_dense_input_is_refused(kind):
    for call in (lambda: keras.Input((4, 1)), lambda: tf.ones([2, 4, 1])):
        with pytest.raises(TypeError, match="must be a RaggedTensor"):
            _CALLS[kind](call())


def test_a_dense_input_raises_with_advice():
    with pytest.raises(
        TypeError,
        match=r"`x` must be a RaggedTensor or LoDTensor, got a dense tensor of "
        r"shape \(None, 4\)\. Declare an input of a Keras model with "
        r"keras.Input\(..., ragged=True\), pass such inputs to clone_model as "
        r"`input_tensors`, and export the model with "
        r"lodestar.export.save\.",
    ):
        sequence.softmax(keras.Input((4,)))


_KERAS = (
    "made it from a ragged tensor. Layers and operations of Keras return dense "
    "tensors. Apply them to each step with lodestar.layers.PerStep, or call them "
    "after pooling or between lodestar.sequence.pad and unpad."
)
_MODEL = (
    "made it from a ragged tensor. Keras does not know that its result is ragged. "
    "Define its method `compute_output_spec`"
)
_OWN = (
    "made it from a ragged tensor. Pass ragged rows, such as those of a "
    "DynamicEmbedding without `combiner`, or of lodestar.sequence.unpad."
)


def _inner(x):
    y = keras.layers.Dense(2)(x)
    return keras.Model(x, y, name="inner")(x)


@pytest.mark.parametrize(
    "make, found",
    [
        (
            lambda x: keras.layers.Dense(2, name="tower")(x),
            f"'tower' (Dense) {_KERAS}",
        ),
        (
            # The first one, not those after it.
            lambda x: keras.layers.ReLU()(
                keras.layers.Dropout(0.1)(
                    keras.layers.Activation("relu", name="act")(x)
                )
            ),
            f"'act' (Activation) {_KERAS}",
        ),
        (lambda x: x * 2.0, f"(Multiply) {_KERAS}"),
        (
            lambda x: keras.layers.Add(name="sum")([x, keras.Input((4, 1))]),
            f"'sum' (Add) {_KERAS}",
        ),
        (_inner, f"'inner' (Functional) {_MODEL}"),
        (lambda x: sequence.pad(x, name="padded")[0], f"'padded' (SequenceOp) {_OWN}"),
        (lambda x: sequence.pool(x, name="pooled"), f"'pooled' (SequenceOp) {_OWN}"),
    ],
)  # fmt: skip
def test_a_layer_that_lost_the_ragged_type_is_named(make, found):
    x = make(_input())
    for call in (
        lambda: sequence.softmax(x),
        lambda: sequence.concat([_input(), x]),
        lambda: sequence.unpad(keras.Input((4, 1)), [1], like=x),
    ):
        with pytest.raises(TypeError, match="must be a Ragged") as error:
            call()
        assert found in str(error.value)
        assert "keras.Input(" not in str(error.value)


def test_the_search_for_that_layer_visits_a_tensor_once():
    x = keras.Input((4, 1))
    for _ in range(60):
        x = x + x
    with pytest.raises(TypeError, match=r"Declare an input of a Keras model"):
        sequence.softmax(x)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "int64"])
def test_rows_are_not_cast(dtype):
    old = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    try:
        inputs = _input(dtype=dtype)
        outputs = sequence.pool(sequence.reverse(inputs), "max")
        assert outputs.dtype == dtype
        assert keras.Model(inputs, outputs)(_batch(1, dtype)).dtype == dtype
    finally:
        keras.mixed_precision.set_dtype_policy(old)


def test_strings_and_constant_arguments(tmp_path):
    inputs = keras.Input((None,), ragged=True, dtype="string")
    outputs = sequence.erase(inputs, ["a", "b"])
    ids = keras.Input((None,), ragged=True, dtype="int64")
    rest = [
        sequence.erase(ids, np.array([7], np.int64)),
        sequence.erase(ids, tf.constant([7], tf.int64)),
        sequence.enumerate(ids, 2, pad_value=2**60 + 1),
    ]
    model = keras.Model([inputs, ids], [outputs, *rest])
    x = [
        tf.ragged.constant([["a", "c"], []]),
        tf.ragged.constant([[7, 8], [9]], tf.int64),
    ]
    want = [[[b"c"], []], [[8], [9]], [[8], [9]]]
    want.append([[[7, 8], [8, 2**60 + 1]], [[9, 2**60 + 1]]])
    assert [_values(y) for y in model(x)] == want
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert [_values(y) for y in loaded(x)] == want


def test_several_symbolic_arguments(tmp_path):
    x = keras.Input((4,), name="dense")
    index = keras.Input((None,), ragged=True, dtype="int64", name="index")
    updates = keras.Input((None,), ragged=True, name="updates")
    offset = keras.Input((), dtype="int64", name="offset")
    length = keras.Input((), dtype="int64", name="length")
    outputs = [
        sequence.scatter(x, index=index, updates=updates),
        sequence.slice(updates, offset, length=length),
        sequence.topk_avg_pooling(updates, index, index, [1], 1),
    ]
    inputs = [x, index, updates, offset, length]
    model = keras.Model(inputs, outputs)
    assert [y.shape for y in outputs] == [
        (None, 4),
        (None, None),
        (None, None, 1),
    ]
    values = [
        tf.zeros([2, 4]),
        tf.ragged.constant([[3], []], tf.int64),
        tf.ragged.constant([[5.0], []]),
        tf.constant([0, 0], tf.int64),
        tf.constant([1, 0], tf.int64),
    ]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for copy in (model, loaded):
        scattered, sliced, pooled = copy(values)
        assert scattered.numpy().tolist() == [[0, 0, 0, 5], [0, 0, 0, 0]]
        assert sliced.to_list() == [[5.0], []]
        assert pooled.to_list() == [[[5.0]], []]


@pytest.mark.parametrize(
    ("function", "x", "y", "shape", "ragged"),
    [
        (sequence.expand, (3,), (None, 2), (None, 3), False),
        (sequence.expand, (None, 3), (None, 2), (None, None, 3), True),
        (sequence.expand_as, (3,), (None, 2), (4, None, 3), True),
        (sequence.expand_as, (), (None, None, 2), (4, None, None), True),
        (sequence.expand_as, (3,), (None, None, 2), (4, None, None, 3), True),
    ],
)
def test_symbolic_shapes_of_expand(function, x, y, shape, ragged):
    x = keras.Input(x, ragged=None in x, batch_size=4)
    y = keras.Input(y, ragged=True, batch_size=4)
    outputs = function(x, y)
    assert (outputs.shape, outputs.ragged) == (shape, ragged)


def test_symbolic_shapes_of_pool():
    inputs = keras.Input((None, None, None, 2), ragged=True)
    for level, shape in (
        (0, (None, 2)),
        (1, (None, None, 2)),
        (-1, (None, None, None, 2)),
    ):
        outputs = sequence.pool(inputs, level=level)
        assert outputs.shape == shape
        assert outputs.ragged == (level != 0)
    with pytest.raises(ValueError, match="`level` must be .* got 3"):
        sequence.pool(inputs, level=3)


def test_names():
    keras.utils.clear_session(free_memory=False)
    inputs = _input()
    model = keras.Model(
        inputs,
        [
            sequence.pool(inputs),
            sequence.pool(inputs, "max"),
            sequence.pool(inputs, name="mine"),
            sequence.reverse(inputs),
        ],
    )
    names = [layer.name for layer in model.layers]
    assert sorted(names) == [
        "mine",
        "sequence_pool",
        "sequence_pool_1",
        "sequence_reverse",
        "x",
    ]
    assert model.get_layer("mine").get_config()["function"] == "pool"
    with pytest.raises(ValueError, match="`function`='poll' is not in"):
        SequenceOp("poll")


def test_keras_compiles_no_such_model_with_xla():
    inputs = _input()
    model = keras.Model(inputs, sequence.pool(inputs))
    model.compile("sgd", "mse")
    assert not model.jit_compile
    assert model.evaluate(_batch(1), np.zeros([4, 1]), verbose=0) > 0


class _Lengths(keras.layers.Layer):
    """A user-defined layer: the lengths of the innermost sequences."""

    def call(self, *, x):
        assert isinstance(x, LoDTensor)
        return tf.cast(x.lengths()[-1], tf.float32)[:, tf.newaxis]

    def compute_output_spec(self, *, x):
        return keras.KerasTensor((None, 1))


def test_custom_layer_accepts_a_lod_tensor_by_keyword():
    inputs = _input(2)
    lod = LoDTensor.from_ragged(inputs)
    assert (lod.ragged, lod.shape) == (True, inputs.shape)
    model = keras.Model(inputs, keras.layers.Dense(1)(_Lengths()(x=lod)))
    kernel, bias = model.get_weights()
    np.testing.assert_allclose(
        model.predict(_batch(2), verbose=0),
        [[3.0], [0.0], [3.0]] * kernel + bias,
    )


def test_gradient_passes_through_conversions():
    rows = tf.Variable(tf.ones([6, 1]))
    inputs = _input()
    model = keras.Model(
        inputs, LoDTensor.to_ragged(LoDTensor.from_ragged(inputs))
    )
    with tf.GradientTape() as tape:
        y = model(_batch(1).with_flat_values(rows.value()))
        loss = tf.reduce_sum(y.flat_values * 3.0)
    np.testing.assert_array_equal(tape.gradient(loss, rows), np.full([6, 1], 3))


class _Times(keras.layers.Layer):
    """Keras's Multiply makes a dense tensor of symbolic ragged ones."""

    def call(self, inputs):
        return inputs[0] * inputs[1]

    def compute_output_spec(self, inputs):
        return keras.KerasTensor(inputs[0].shape, ragged=True)


def test_attention_pooling_trains(tmp_path):
    # The second column marks the row that determines the label.
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(2)
    lengths = rng.integers(1, 5, 64)
    rows = np.zeros((lengths.sum(), 2), np.float32)
    rows[:, 0] = rng.normal(size=len(rows))
    marked = np.cumsum(lengths) - rng.integers(1, lengths + 1)
    rows[marked, 1] = 1.0
    x = tf.RaggedTensor.from_row_lengths(rows, lengths)
    target = rows[marked, :1]

    inputs = keras.Input((None, 2), ragged=True, name="x")
    scores = lodestar.layers.SequenceConv(1, 1)(inputs)
    weights = sequence.softmax(scores)
    pooled = sequence.pool(_Times()([inputs, weights]), "sum")
    model = keras.Model(inputs, keras.layers.Dense(1)(pooled))
    model.compile(keras.optimizers.Adam(0.1), "mse")
    model.fit(x, target, epochs=60, verbose=0)
    assert model.evaluate(x, target, verbose=0) < 0.01
    attention = keras.Model(inputs, weights)
    np.testing.assert_allclose(
        tf.gather(attention(x).flat_values, marked), 1.0, atol=0.2
    )
