"""What all layers of sequences share: kinds of input, dtypes, saving."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import LoDTensor, layers

# All take one ragged input; rows of one number fit each of them.
_MAKE = {
    "SequenceConv": lambda **k: layers.SequenceConv(1, **k),
    "SequencePad": lambda **k: layers.SequencePad(pad_value=-1.0, **k),
    "SequencePool": lambda **k: layers.SequencePool("mean", **k),
    "SequenceSoftmax": lambda **k: layers.SequenceSoftmax(**k),
    "ToLoD": lambda **k: layers.ToLoD(**k),
    "ToRagged": lambda **k: layers.ToRagged(**k),
}
every_layer = pytest.mark.parametrize("make", _MAKE.values(), ids=_MAKE.keys())
levels = pytest.mark.parametrize("levels", [1, 2])


def _batch(levels, dtype=tf.float32, splits_dtype=tf.int64):
    rows = tf.cast(tf.reshape(tf.range(6), [6, 1]), dtype)
    lengths = [[2, 0, 1], [3, 0, 3]][2 - levels :]
    if levels == 1:
        lengths = [[3, 0, 1, 2]]
    x = tf.RaggedTensor.from_nested_row_lengths(rows, lengths)
    return x.with_row_splits_dtype(splits_dtype)


def _input(levels, dtype="float32", name="x"):
    return keras.Input(
        (*[None] * levels, 1), ragged=True, dtype=dtype, name=name
    )


def _values(x):
    """Nested lists, whatever kind of tensor."""
    if isinstance(x, LoDTensor):
        x = x.to_ragged()
    return x.to_list() if isinstance(x, tf.RaggedTensor) else x.numpy().tolist()


@levels
@every_layer
def test_lod_gives_what_ragged_gives(make, levels):
    layer = make()
    x = _batch(levels)
    want = layer(x)
    got = layer(LoDTensor.from_ragged(x))
    assert _values(got) == _values(want)
    if isinstance(layer, layers.ToRagged):
        assert isinstance(got, tf.RaggedTensor)
    elif isinstance(want, tf.RaggedTensor):
        assert isinstance(got, LoDTensor)
    else:
        assert type(got) is type(want)


@levels
@every_layer
def test_graph_with_unknown_dimensions(make, levels):
    layer = make()
    x = _batch(levels)
    want = _values(layer(x))
    spec = tf.RaggedTensorSpec([None] * (levels + 1) + [1], ragged_rank=levels)
    call = tf.function(layer, input_signature=[spec])
    assert _values(call(x)) == want
    nothing = _batch(levels)[:0]
    assert _values(call(nothing)) == _values(layer(nothing))
    lod_spec = LoDTensor.Spec([None, 1], tf.float32, levels)
    call = tf.function(layer, input_signature=[lod_spec])
    assert _values(call(LoDTensor.from_ragged(x))) == want


@levels
@every_layer
def test_int32_splits_stay(make, levels):
    layer = make()
    got = layer(_batch(levels, splits_dtype=tf.int32))
    assert _values(got) == _values(layer(_batch(levels)))
    if isinstance(got, tf.RaggedTensor):
        assert got.row_splits.dtype == tf.int32


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "bfloat16"])
@levels
@every_layer
def test_symbolic_output_is_what_a_model_gives(make, levels, policy):
    inputs = _input(levels)
    layer = make(dtype=policy)
    outputs = layer(inputs)
    model = keras.Model(inputs, outputs)
    x = _batch(levels)
    got = model(x)
    if isinstance(got, LoDTensor):
        got = got.to_ragged()
    assert outputs.ragged == isinstance(got, tf.RaggedTensor)
    assert outputs.dtype == got.dtype.name
    assert len(outputs.shape) == len(got.shape)
    assert got.shape.is_compatible_with(outputs.shape)
    assert layer.compute_output_shape(inputs.shape) == outputs.shape
    if outputs.ragged:
        assert got.ragged_rank == levels - isinstance(
            layer, layers.SequencePool
        )


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "int32", "int64"]
)
@every_layer
def test_rows_are_not_cast(make, dtype):
    layer = make(dtype="mixed_float16")
    if isinstance(layer, layers.SequenceSoftmax) and dtype.startswith("int"):
        pytest.skip("there is no softmax of integers")
    want = dtype
    if isinstance(layer, layers.SequenceConv):
        want = "float16"
    outputs = layer(_input(1, dtype))
    assert outputs.dtype == want
    got = layer(_batch(1, dtype))
    got = got.values if isinstance(got, LoDTensor) else got
    assert got.dtype == want


@levels
@every_layer
def test_saved_and_exported(make, levels, tmp_path):
    inputs = _input(levels)
    model = keras.Model(inputs, make(name="layer")(inputs))
    x = _batch(levels)
    want = _values(model(x))

    path = str(tmp_path / "model.keras")
    model.save(path)
    loaded = keras.saving.load_model(path)
    assert _values(loaded(x)) == want
    layer = loaded.get_layer("layer")
    assert layer.get_config() == model.get_layer("layer").get_config()

    path = str(tmp_path / "exported")
    lodestar.export.save(model, path)
    exported = tf.saved_model.load(path)
    assert _values(exported.serve({"x": x})["output_0"]) == want
    splits = x.nested_row_splits
    names = ["x_row_splits"]
    if levels > 1:
        names = [f"x_row_splits_{level}" for level in range(levels)]
    served = exported.signatures["serving_default"](
        x_values=x.flat_values, **dict(zip(names, splits, strict=True))
    )
    assert _values(served["output_0"]) == want
    lodestar.export.verify(model, path, x)
    # A dense signature would take padding for rows: it is refused.
    with pytest.raises(ValueError, match="lodestar.export.save"):
        model.export(str(tmp_path / "dense"), verbose=False)


@every_layer
def test_subclassed_model_in_lod(make):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.to_lod = layers.ToLoD()
            self.layer = make()
            self.pool = layers.SequencePool()
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            y = self.layer(self.to_lod(x))
            if isinstance(y, (LoDTensor, tf.RaggedTensor)):
                y = self.pool(y)
            return self.dense(y if y.shape.rank == 2 else y[:, 0])

    x = _batch(1)
    for run_eagerly in (False, True):
        model = Model()
        model.compile("sgd", "mse", run_eagerly=run_eagerly)
        data = tf.data.Dataset.from_tensor_slices((x, np.ones([4, 1]))).batch(2)
        model.fit(data, verbose=0)
        assert model.predict(x, verbose=0).shape == (4, 1)


@every_layer
def test_dense_input_is_refused(make):
    wanted = "needs a ragged input, found a dense one of shape .*4, 3.*ragged="
    with pytest.raises(ValueError, match="it " + wanted):
        make(name="it")(keras.Input((4, 3)))
    with pytest.raises(ValueError, match="it " + wanted):
        make(name="it")(tf.ones([2, 4, 3]))
    with pytest.raises(ValueError, match="it " + wanted):
        make(name="it")(np.ones([2, 4, 3]))


@every_layer
def test_activity_regularizer_is_refused(make):
    with pytest.raises(ValueError, match="takes no `activity_regularizer`"):
        make(activity_regularizer="l2")
    make(activity_regularizer=None)
