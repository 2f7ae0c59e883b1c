"""Keras's tools on models with Lodestar's layers."""

import copy
import functools
import gc
import pickle
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.utils import model_visualization

import lodestar
from lodestar import layers, sequence

IDS = np.array([[3, 5], [7, -1], [3, 9], [11, 5]])
HISTORIES = tf.ragged.constant([[3, 5], [], [2**62, 7, 3], [9]], dtype=tf.int64)
WORDS = tf.constant([["a", "b"], ["c", "a"], ["x", "a"], ["b", "b"]])
Y = np.ones((4, 1), np.float32)


def ended(inputs, rows):
    return keras.Model(inputs, keras.layers.Dense(1)(rows))


def own_optimizer():
    ids = keras.Input((2,), dtype="int64")
    layer = layers.DynamicEmbedding(4, combiner="sum", optimizer="adagrad")
    return ended(ids, layer(ids)), IDS


def sequential():
    stack = [layers.DynamicEmbedding(4), keras.layers.Flatten()]
    ids = keras.Input((2,), dtype="int64")
    return keras.Sequential([ids, *stack, keras.layers.Dense(1)]), IDS


@keras.saving.register_keras_serializable("keras_tools_test")
class OfLayers(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.rows = layers.DynamicEmbedding(4, combiner="sum")
        self.score = keras.layers.Dense(1)

    def call(self, ids, training=None):
        return self.score(self.rows(ids, training=training))


@keras.saving.register_keras_serializable("keras_tools_test")
class OfATable(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = lodestar.EmbeddingVariable(4, name="bare")
        self.score = keras.layers.Dense(1)

    def call(self, ids, training=None):
        rows = self.table.lookup(ids, training=training, combiner="sum")
        return self.score(rows)


def subclassed():
    return OfLayers(), IDS


def bare_table():
    return OfATable(), IDS


def shared_table():
    table = lodestar.EmbeddingVariable(4, name="shared")
    ids = keras.Input((2,), dtype="int64")
    rows = [
        layers.DynamicEmbedding(table=table, combiner="mean")(ids),
        layers.DynamicEmbedding(table=table, combiner="max", salt="x")(ids),
        layers.EmbeddingCollection({"f": lodestar.Feature(table)})({"f": ids}),
    ]
    rows[2] = keras.layers.Flatten()(rows[2]["f"])
    return ended(ids, keras.layers.Concatenate()(rows)), IDS


def nested():
    inner, _ = shared_table()
    ids = keras.Input((2,), dtype="int64")
    return ended(ids, inner(ids)), IDS


def collection():
    inputs = {
        "user": keras.Input((2,), dtype="int64", name="user"),
        "items": keras.Input((None,), dtype="int64", ragged=True, name="items"),
    }
    rows = layers.EmbeddingCollection(
        {
            "user": lodestar.Feature(output_dim=3, combiner="sum"),
            "items": lodestar.Feature(output_dim=4, combiner="mean"),
        }
    )(inputs)
    rows = keras.layers.Concatenate()([rows["user"], rows["items"]])
    return ended(inputs, rows), {"user": tf.constant(IDS), "items": HISTORIES}


def id_lookup():
    words = keras.Input((2,), dtype="string")
    ids = layers.IdLookup(vocabulary=["a", "b", "c"])(words)
    rows = keras.layers.Flatten()(keras.layers.Embedding(10, 4)(ids))
    return ended(words, rows), WORDS


def sequence_conv():
    ids = keras.Input((None,), dtype="int64", ragged=True)
    rows = layers.DynamicEmbedding(4)(ids)
    rows = layers.SequenceConv(5, kernel_size=3)(rows)
    rows = layers.PerStep(keras.layers.Dense(4))(rows)
    return ended(ids, sequence.pool(rows, "max")), HISTORIES


def recurrent():
    ids = keras.Input((None,), dtype="int64", ragged=True)
    rows, lengths = sequence.pad(layers.DynamicEmbedding(4)(ids))
    rows = keras.layers.GRU(3, return_sequences=True)(rows)
    rows = sequence.softmax(sequence.unpad(rows, lengths, like=ids))
    return ended(ids, sequence.pool(rows, "last")), HISTORIES


def fitted(model, x):
    own = any(t.get_config()["optimizer"] for t in tables_in(model))
    optimizer = "adam" if own else lodestar.optimizers.Adagrad(0.1)
    model.compile(optimizer, "mse", run_eagerly=True)  # tracing takes long
    model.fit(x, Y, verbose=0)
    return model


@functools.cache
def trained(make):
    """Returns a model that no test changes, its inputs and its predictions."""
    keras.utils.set_random_seed(1)
    model, x = make()
    fitted(model, x)
    return model, x, model.predict(x, verbose=0)


RAGGED = sequence_conv, recurrent
SUBCLASSED = subclassed, bare_table
FUNCTIONAL = (
    *(own_optimizer, sequential, shared_table, nested),
    *(collection, id_lookup, *RAGGED),
)

every_model = pytest.mark.parametrize("make", [*FUNCTIONAL, *SUBCLASSED])


def tables_in(model):
    parts = tf.train.TrackableView(model).descendants()
    return [p for p in parts if isinstance(p, lodestar.EmbeddingVariable)]


def assert_own(other, make):
    """Checks that `other` has as many tables as the model, and shares none."""
    model, x, want = trained(make)
    tables = tables_in(model)
    assert len(tables_in(other)) == len(tables)
    assert not {*map(id, tables)} & {*map(id, tables_in(other))}
    before = other.predict(x, verbose=0)
    other.fit(x, Y, verbose=0)
    assert not np.array_equal(other.predict(x, verbose=0), before)
    np.testing.assert_array_equal(model.predict(x, verbose=0), want)


def pickled(model):
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize(
    "make, copied",
    [
        *[(make, copy.deepcopy) for make in (*FUNCTIONAL, *SUBCLASSED)],
        *[(make, pickled) for make in (nested, collection, bare_table)],
    ],
)
def test_copies_of_a_model(make, copied):
    model, x, want = trained(make)
    other = copied(model)
    np.testing.assert_array_equal(other.predict(x, verbose=0), want)
    assert_own(other, make)


@every_model
def test_a_clone_begins_untrained(make):
    model, x, _ = trained(make)
    inputs = None
    if make in (*RAGGED, collection):
        inputs = keras.tree.map_structure(
            lambda of: keras.Input(
                of.shape[1:], dtype=of.dtype, ragged=of.ragged, name=of.name
            ),
            model.input,
        )
    with layers.clone_scope():
        clone = keras.models.clone_model(model, inputs)
    clone(x)
    assert not any(int(table.size()) for table in tables_in(clone))
    assert_own(fitted(clone, x), make)


@pytest.mark.parametrize("make", RAGGED)
def test_a_clone_with_dense_inputs_raises_with_advice(make):
    with pytest.raises((TypeError, ValueError), match="clone_model as `input_"):
        keras.models.clone_model(trained(make)[0])


@pytest.mark.parametrize("make", FUNCTIONAL)
def test_a_model_from_json(make):
    model, x, _ = trained(make)
    with layers.clone_scope():
        other = keras.models.model_from_json(model.to_json())
    if make is id_lookup:
        other.layers[1].set_vocabulary(["a", "b", "c"])
    assert_own(fitted(other, x), make)


@pytest.mark.parametrize("output_mode", ["int", "multi_hot"])
@pytest.mark.parametrize("keys", [[b"\xff", "ü"], [-3, 2**62], None])
def test_a_clone_keeps_the_vocabulary(keys, output_mode):
    dtype = "int64" if keys and keys[0] == -3 else "string"
    x = keras.Input((2,), dtype=dtype)
    layer = layers.IdLookup(
        vocabulary_dtype=dtype,
        mask_token=None if dtype == "int64" else "",
        max_tokens=8,
        pad_to_max_tokens=output_mode != "int",
        output_mode=output_mode,
    )
    model = keras.Model(x, layer(x))
    if keys is not None:
        layer.set_vocabulary(keys)
    with layers.clone_scope():
        clone = keras.models.clone_model(model)
    assert clone.layers[1].get_vocabulary() == layer.get_vocabulary()
    assert "vocabulary" not in layer.get_config()


def test_a_clone_without_its_vocabulary_raises_with_advice():
    words = keras.Input((2,), dtype="string")
    ids = layers.IdLookup(vocabulary=["a", "b", "c"])(words)
    clone = keras.models.clone_model(keras.Model(words, ids))
    with pytest.raises(ValueError, match="layers.clone_scope"):
        clone.predict(WORDS, verbose=0)


@pytest.mark.parametrize("make", [shared_table, nested])
@pytest.mark.parametrize(
    "copied",
    [
        keras.models.clone_model,
        lambda model: keras.models.model_from_json(model.to_json()),
        lambda model: type(model).from_config(model.get_config()),
    ],
)
def test_a_copy_that_would_split_a_shared_table_raises(make, copied):
    model = trained(make)[0]
    with pytest.raises(ValueError, match="share the table 'shared'.*clone_sc"):
        copied(model)


def test_deleted_layers_do_not_share_a_table():
    table = lodestar.EmbeddingVariable(4, name="alone")
    ids = keras.Input((2,), dtype="int64")
    gc.disable()
    try:
        others = [layers.DynamicEmbedding(table=table) for _ in range(2)]
        del others
        model = keras.Model(ids, layers.DynamicEmbedding(table=table)(ids))
        clone = keras.models.clone_model(model)
    finally:
        gc.enable()
    assert clone.layers[1].table is not table


def test_one_collection_serves_the_configs_of_all_shared_tables():
    tables = [lodestar.EmbeddingVariable(4) for _ in range(3)]
    shared = [
        [layers.DynamicEmbedding(table=table) for _ in range(2)]
        for table in tables
    ]
    with mock.patch.object(gc, "collect", wraps=gc.collect) as collect:
        for layer in sum(shared, []):
            assert len(layer.get_config()["table"]["layers"]) == 2
    assert collect.call_count == 1


def test_each_scope_makes_tables_of_its_own():
    model = trained(shared_table)[0]
    clones = []
    for _ in range(2):
        with layers.clone_scope():
            clones.append(keras.models.clone_model(model))
    (first,), (second,) = map(tables_in, clones)
    assert first is not second


def test_a_file_loads_inside_a_scope(tmp_path):
    model, x, want = trained(shared_table)
    model.save(tmp_path / "m.keras")
    with layers.clone_scope():
        loaded = [keras.models.load_model(tmp_path / "m.keras") for _ in "ab"]
    (first,), (second,) = map(tables_in, loaded)
    assert first is not second
    np.testing.assert_array_equal(loaded[1].predict(x, verbose=0), want)


@every_model
def test_layers(make):
    for layer in trained(make)[0].layers:
        if isinstance(layer, lodestar.EmbeddingVariable):
            continue
        others = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]
        for other in others:
            weights = zip(layer.weights, other.weights, strict=True)
            for of_layer, of_other in weights:
                np.testing.assert_array_equal(
                    tf.convert_to_tensor(of_layer),
                    tf.convert_to_tensor(of_other),
                )
        with layers.clone_scope():
            type(layer).from_config(layer.get_config())


@every_model
def test_the_summary_counts_rows(make, capsys):
    model = trained(make)[0]
    rows = sum(int(t.size()) * t.output_dim for t in tables_in(model))
    assert (rows > 0) == (make is not id_lookup)
    others = [
        w
        for w in model.trainable_weights
        if not isinstance(w, lodestar.EmbeddingVariable)
    ]
    count = rows + sum(np.size(w) for w in others)
    model.summary(expand_nested=True)
    shown = capsys.readouterr().out
    assert f"Trainable params: {count:,} ({4 * count:.2f} B)" in shown
    assert "Non-trainable params: 0 " in shown
    assert model.count_params() == count
    for layer in model.layers:
        assert f" {layer.count_params():,} " in shown
    # Keras's other tools see none of them: slots have this shape.
    assert all(t.value.shape == (0, t.output_dim) for t in tables_in(model))


def test_the_summary_counts_frozen_rows_apart(capsys):
    model, _ = own_optimizer()
    model(IDS, training=True)
    model.layers[1].trainable = False
    model.summary()
    assert "Non-trainable params: 24 " in capsys.readouterr().out


@pytest.mark.parametrize("make", FUNCTIONAL)
def test_a_plot(make, monkeypatch):
    # Only the presence of pydot is needed.
    pydot = mock.MagicMock(Cluster=type("Cluster", (mock.MagicMock,), {}))
    monkeypatch.setattr(model_visualization, "pydot", pydot)
    model = trained(make)[0]
    keras.utils.model_to_dot(
        model,
        show_shapes=True,
        show_dtype=True,
        show_layer_names=True,
        expand_nested=True,
        show_layer_activations=True,
        show_trainable=True,
    )
    labels = str(pydot.Node.call_args_list)
    for layer in model.layers:
        if not isinstance(layer, keras.Model):
            assert layer.name in labels
