"""LoDTensor in tf.function, control flow, tf.data and Keras."""

import keras
import pytest
import tensorflow as tf

from lodestar.ragged import LoDTensor
from lodestar.sequence import pool


def example(rows=3):
    return LoDTensor.from_lengths(tf.range(float(rows)), [[rows - 1, 1]])


class Double(keras.layers.Layer):
    """A layer that takes and returns a LoDTensor."""

    def call(self, x):
        return LoDTensor(x.values * 2, x.lod)


def test_spec():
    spec = LoDTensor.Spec([None, 4], tf.int64, num_levels=2)
    assert spec.values == tf.TensorSpec([None, 4], tf.int64)
    assert spec.lod == (tf.TensorSpec([None], tf.int64),) * 2
    x = LoDTensor.from_lengths(tf.zeros([3, 4], tf.int64), [[2], [1, 2]])
    assert spec.is_compatible_with(x)
    assert not LoDTensor.Spec([None, 4], tf.int64).is_compatible_with(x)
    assert list(spec.components("a_")) == ["a_values", "a_lod_0", "a_lod_1"]
    assert LoDTensor.Spec().values == tf.TensorSpec(None, tf.float32)


def test_functions_retrace_by_spec():
    traced = []

    def twice(x):
        traced.append(1)
        return LoDTensor(x.values * 2, x.lod)

    one = tf.function(twice, input_signature=[LoDTensor.Spec([None])])
    for rows in (2, 3, 4):
        assert one(example(rows)).values.shape[0] == rows
    assert len(traced) == 1
    del traced[:]
    by_shape = tf.function(twice)
    for rows in (2, 3, 3, 4):
        by_shape(example(rows))
    assert len(traced) == 3
    assert one(example()).to_list() == [[0.0, 2.0], [4.0]]


def test_control_flow():
    @tf.function
    def loop(x):
        for _ in tf.range(3):
            x = LoDTensor(x.values * 2, x.lod)
        return x if tf.reduce_sum(x.values) > 0 else x

    assert loop(example()).to_list() == [[0.0, 8.0], [16.0]]

    @tf.function
    def grow(x):
        for _ in tf.range(2):
            tf.autograph.experimental.set_loop_options(
                shape_invariants=[(x, LoDTensor.Spec([None]))]
            )
            x = LoDTensor.concat([x, x])
        return x

    assert grow(example()).to_list() == [[0.0, 1.0], [2.0]] * 4

    @tf.function(
        input_signature=[LoDTensor.Spec([None]), tf.TensorSpec([], tf.bool)]
    )
    def either(x, first):
        return tf.cond(first, lambda: x, lambda: x.slice(0, 1, 2))

    assert either(example(), False).to_list() == [[2.0]]


TRANSFORMATIONS = {
    "map": lambda d: d.map(Double().call, num_parallel_calls=2),
    "cache": lambda d: d.cache(),
    "prefetch": lambda d: d.prefetch(2),
    "shuffle": lambda d: d.shuffle(3),
    "repeat": lambda d: d.repeat(1),
    "filter": lambda d: d.filter(lambda x: tf.size(x.values) > 0),
    "flat_map": lambda d: d.flat_map(tf.data.Dataset.from_tensors),
    "interleave": lambda d: d.interleave(tf.data.Dataset.from_tensors),
    "zip": lambda d: tf.data.Dataset.zip(d, d).map(lambda x, y: y),
    "concatenate": lambda d: d.concatenate(d).take(3),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_datasets(name):
    dataset = tf.data.Dataset.from_tensors(example()).repeat(3)
    want = example() if name != "map" else Double().call(example())
    got = TRANSFORMATIONS[name](dataset)
    assert isinstance(got.element_spec, LoDTensor.Spec)
    assert [x.to_list() for x in got] == [want.to_list()] * 3


def test_datasets_of_other_sizes(tmp_path):
    dataset = tf.data.Dataset.range(1, 3).map(
        lambda n: LoDTensor.from_lengths(tf.ones([n]), [[n]])
    )
    want = [[[1.0]], [[1.0, 1.0]]]
    assert [x.to_list() for x in dataset] == want
    dataset.save(str(tmp_path))
    loaded = tf.data.Dataset.load(str(tmp_path))
    assert [x.to_list() for x in loaded] == want
    generated = tf.data.Dataset.from_generator(
        lambda: iter([example(2), example(4)]),
        output_signature=LoDTensor.Spec([None]),
    )
    assert [x.values.shape[0] for x in generated] == [2, 4]


def test_layers_accept_it_by_name():
    assert Double()(x=example()).to_list() == [[0.0, 2.0], [4.0]]
    # Keras's own error names the argument.
    with pytest.raises(ValueError, match="passed as a keyword argument"):
        Double()(example())


class Pooled(keras.Model):
    """A model of ragged features, with LoDTensors between its layers."""

    def __init__(self):
        super().__init__()
        self.double = Double()

    def call(self, ragged):
        return pool(self.double(x=LoDTensor.from_ragged(ragged)))


def test_inside_a_model():
    model = Pooled()
    ragged = example().to_ragged()
    assert model(ragged).numpy().tolist() == [2.0, 4.0]
    model.compile(loss="mse")
    dataset = tf.data.Dataset.from_tensors((ragged, tf.constant([2.0, 4.0])))
    assert model.evaluate(dataset, verbose=0) == 0.0


@pytest.mark.parametrize("lengths", [[2, 2], [1, 3], [4]])
@pytest.mark.parametrize(
    "use",
    [
        tf.convert_to_tensor,
        tf.shape,
        tf.reduce_sum,
        tf.function(tf.reduce_sum),
        keras.ops.sum,
        lambda x: tf.ones([2, 2]) + x,
        lambda x: tf.stack([x, x]),
    ],
)
def test_it_is_not_a_tensor_even_with_equal_lengths(use, lengths):
    x = LoDTensor.from_lengths(tf.ones([4]), [lengths])
    with pytest.raises(TypeError, match="A LoDTensor is not a tensor. Use its"):
        use(x)


def test_units_in_a_pipeline_and_in_a_loop():
    x = LoDTensor.from_lengths(tf.range(6.0), [[2, 0, 1], [1, 2, 3]])
    dataset = tf.data.Dataset.from_tensors(x).map(
        lambda x: (x[-1], x.level(1)[1:], x[0][1], pool(x, "mean", 0))
    )
    last, inner, one, means = next(iter(dataset))
    assert last.to_list() == [[3, 4, 5]]
    assert inner.to_list() == [[1, 2], [3, 4, 5]]
    assert one.numpy().tolist() == [1, 2]
    assert means.numpy().tolist() == [1, 0, 4]

    @tf.function(input_signature=[LoDTensor.Spec([None], tf.float32, 2)])
    def sums(x):
        found = tf.TensorArray(tf.float32, 0, dynamic_size=True)
        for i in tf.range(tf.size(x.lod[0]) - 1):
            found = found.write(i, tf.reduce_sum(x[i].values))
        return found.stack()

    assert sums(x).numpy().tolist() == [3, 0, 12]
