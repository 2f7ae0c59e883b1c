"""What the layers on ragged rows have in common, and a model of all of them."""

import copy
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import sequence
from lodestar.layers import (
    DynamicEmbedding,
    PerStep,
    SequenceAttention,
    SequenceConv,
    TargetAttention,
)
from lodestar.ragged import LoDTensor

LENGTHS = [3, 0, 7, 1]
KINDS = {
    "per step": lambda **options: PerStep(keras.layers.Dense(4, **options)),
    "attention": lambda **options: SequenceAttention(2, 3, **options),
    "causal attention": lambda **options: SequenceAttention(
        2, 3, causal=True, **options
    ),
    "conv": lambda **options: SequenceConv(4, 2, activation="relu", **options),
    "conv with rows around": lambda **options: SequenceConv(
        4, padding_trainable=True, padding_initializer="ones", **options
    ),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def batch(rng, lengths=LENGTHS):
    rows = rng.normal(size=(sum(lengths), 4)).astype(np.float32)
    return tf.RaggedTensor.from_row_lengths(rows, lengths)


@every_kind
def test_levels_and_lod_tensors(kind, rng):
    x = batch(rng)
    nested = tf.RaggedTensor.from_row_lengths(x, [1, 0, 3])
    layer = KINDS[kind]()
    got = layer(nested)
    np.testing.assert_array_equal(got.flat_values, layer(x).flat_values)
    for ours, theirs in zip(
        got.nested_row_splits, nested.nested_row_splits, strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    lod = layer(LoDTensor.from_ragged(nested))
    assert isinstance(lod, LoDTensor)
    np.testing.assert_array_equal(lod.values, got.flat_values)
    symbolic = layer(keras.Input((None, None, 4), ragged=True))
    assert symbolic.ragged and symbolic.shape == (None, None, None, 4)


@every_kind
@pytest.mark.parametrize("lengths", [[], [0], [0, 0]], ids=str)
def test_no_rows(kind, lengths, rng):
    x = batch(rng, lengths)
    assert KINDS[kind]()(x).to_list() == [[]] * len(lengths)


@every_kind
def test_graph_with_unknown_sizes(kind, rng):
    layer = KINDS[kind]()
    layer(batch(rng))
    spec = tf.RaggedTensorSpec([None, None, 4], tf.float32, 1)
    call = tf.function(lambda x: layer(x), input_signature=[spec])
    for lengths in ([], [0], LENGTHS):
        x = batch(rng, lengths)
        np.testing.assert_allclose(
            call(x).flat_values, layer(x).flat_values, atol=1e-6
        )


@every_kind
@pytest.mark.parametrize(
    "policy", ["mixed_float16", "mixed_bfloat16", "float64"]
)
def test_policies(kind, policy, rng):
    x = batch(rng)
    layer = KINDS[kind](dtype=policy)
    got = layer(x)
    policy = keras.DTypePolicy(policy)
    assert got.dtype.name == policy.compute_dtype
    assert {w.dtype for w in layer.weights} == {policy.variable_dtype}
    symbolic = layer(keras.Input((None, 4), ragged=True))
    assert symbolic.dtype == policy.compute_dtype
    exact = KINDS[kind]()
    exact(x)
    exact.set_weights(layer.get_weights())
    np.testing.assert_allclose(
        tf.cast(got.flat_values, tf.float32), exact(x).flat_values, atol=0.1
    )


IDS = {
    "items": tf.RaggedTensor.from_row_lengths(
        np.array([4, 2**62, -7, 4, 1, 4, 9, 8, 3, 2, 4]), LENGTHS
    ),
    "target": tf.constant([5, 2**62, -3, 5], tf.int64),
}
Y = np.array([[1.0], [0.0], [-1.0], [2.0]])


def functional():
    items = keras.Input((None,), dtype="int64", ragged=True, name="items")
    target = keras.Input((), dtype="int64", name="target")
    embed = DynamicEmbedding(8, seed=1)
    x = embed(items)
    places = keras.layers.Embedding(64, 4)(sequence.positions(items))
    rows = PerStep(keras.layers.Concatenate())([x, places])
    rows = PerStep(keras.layers.Dense(8, activation="relu"))(rows)
    rows = SequenceAttention(2, 4, causal=True, dropout=0.1)(rows + 1.0) + x
    rows = PerStep(keras.layers.BatchNormalization())(rows)
    rows = SequenceConv(
        8, 2, -1, padding_trainable=True, padding_initializer="glorot_normal"
    )(PerStep(keras.layers.Dropout(0.1))(rows))
    interest = TargetAttention((8,))(embed(target), rows)
    x = keras.layers.Concatenate()([interest, sequence.pool(rows, "max")])
    return keras.Model(
        {"items": items, "target": target}, keras.layers.Dense(1)(x)
    )


def test_a_model_trains_is_saved_copied_and_served(tmp_path):
    keras.utils.set_random_seed(1)
    model = functional()
    model.compile(lodestar.optimizers.Adam(0.03), "mse")
    (conv,) = (x for x in model.layers if isinstance(x, SequenceConv))
    padding = conv.padding.numpy()
    losses = model.fit(IDS, Y, epochs=40, verbose=0).history["loss"]
    assert losses[-1] < 0.3 * losses[0]
    assert (conv.padding.numpy() != padding).any()
    want = model.predict(IDS, verbose=0)
    in_parts = model.predict(IDS, batch_size=3, verbose=0)
    np.testing.assert_allclose(in_parts, want, atol=1e-5)
    model.save(tmp_path / "m.keras")
    for again in (
        keras.models.load_model(tmp_path / "m.keras"),
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
    ):
        np.testing.assert_array_equal(again.predict(IDS, verbose=0), want)
    lodestar.export.save(model, tmp_path / "served")
    served = tf.saved_model.load(tmp_path / "served")
    (scores,) = served.serve(IDS).values()
    np.testing.assert_allclose(scores, want, atol=1e-5)


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = DynamicEmbedding(4, seed=1)
        self.hidden = PerStep(keras.layers.Dense(4, activation="relu"))
        self.normal = PerStep(keras.layers.BatchNormalization())
        self.attention = SequenceAttention(2, 3)
        self.conv = SequenceConv(4)
        self.interest = TargetAttention((3,))
        self.score = keras.layers.Dense(1)

    def call(self, inputs):
        rows = self.normal(self.hidden(self.embed(inputs["items"])))
        rows = self.conv(self.attention(rows) + rows)
        return self.score(self.interest(self.embed(inputs["target"]), rows))


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_subclassed_model_trains(eagerly):
    keras.utils.set_random_seed(1)
    model = Subclassed()
    model.compile(lodestar.optimizers.Adam(0.05), "mse", run_eagerly=eagerly)
    losses = model.fit(IDS, Y, epochs=12, verbose=0).history["loss"]
    assert losses[-1] < 0.8 * losses[0]
