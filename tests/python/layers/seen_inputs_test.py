"""Ragged ids that become dense in a graph, as in exports by Keras."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import layers

IDS = tf.ragged.constant([[1], [2, 77], []], dtype=tf.int64)
WARNING = "ragged or sparse in the model, but dense.*lodestar.export.save"


def functional(front, **options):
    options = {"shape": (None,), "dtype": "int64", "ragged": True, **options}
    inputs = keras.Input(**options)
    return keras.Model(inputs, keras.layers.Dense(1)(front(inputs)))


class Subclassed(keras.Model):
    """Looks up ids of any kind."""

    def __init__(self):
        super().__init__()
        self.rows = layers.DynamicEmbedding(4, combiner="mean")

    def call(self, ids):
        return self.rows(ids)


def rows(**options):
    return layers.DynamicEmbedding(4, combiner="mean", name="rows", **options)


def collection(**options):
    feature = lodestar.Feature(output_dim=4, combiner="mean", **options)
    embed = layers.EmbeddingCollection({"ids": feature})
    return lambda ids: embed({"ids": ids})["ids"]


def words():
    return layers.IdLookup(["a"], output_mode="count")


def warnings_of(call, *args, **kwargs):
    """Returns the warnings that name an export of Lodestar."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*args, **kwargs)
    texts = [str(warning.message) for warning in caught]
    return [text for text in texts if "lodestar.export.save" in text]


def export(model, path):
    model.export(path, verbose=False)


def archive(model, path, **signature):
    """Exports `model.call`, or a function that was called, with ExportArchive."""
    written = keras.export.ExportArchive()
    written.track(model)
    function = model.call if signature else tf.function(model.call)
    if not signature:
        function(IDS)
    written.add_endpoint("serve", function, **signature)
    written.write_out(path, verbose=False)


@pytest.mark.parametrize(
    ("save", "front", "options"),
    [
        (tf.saved_model.save, rows, {}),
        (export, rows, {"shape": (3,)}),
        (tf.saved_model.save, rows, {"ragged": False, "sparse": True}),
        (export, rows, {"ragged": False, "sparse": True, "shape": (3,)}),
        (export, collection, {}),
        (tf.saved_model.save, words, {"dtype": "string"}),
    ],
    ids=str,
)
def test_exports_of_a_functional_model_warn(save, front, options, tmp_path):
    model = functional(front(), **options)
    with pytest.warns(UserWarning, match=WARNING):
        save(model, str(tmp_path / "export"))


def test_a_model_that_was_loaded_warns(tmp_path):
    functional(rows()).save(str(tmp_path / "model.keras"))
    model = keras.saving.load_model(str(tmp_path / "model.keras"))
    with pytest.warns(UserWarning, match="`ids` of the layer 'rows'.*'__call_"):
        export(model, str(tmp_path / "export"))


def test_a_sequential_and_a_subclassed_model_warn(tmp_path):
    inputs = keras.Input((None,), dtype="int64", ragged=True)
    with pytest.warns(UserWarning, match=WARNING):
        export(keras.Sequential([inputs, rows()]), str(tmp_path / "a"))
    model = Subclassed()
    model(IDS)
    signature = [tf.TensorSpec([None, None], tf.int64)]
    with pytest.warns(UserWarning, match="'call', which.*" + WARNING[-20:]):
        archive(model, str(tmp_path / "b"), input_signature=signature)


def test_exports_that_keep_ids_ragged_do_not_warn(tmp_path):
    model = functional(rows())
    for save, options in (
        (lodestar.export.save, {"signature": "padded", "padding_id": 0}),
        (lodestar.export.save_plain, {}),
    ):
        assert not warnings_of(save, model, tmp_path / "s", **options)


def test_dense_ids_do_not_warn(tmp_path):
    dense = functional(rows(), shape=(2,), ragged=False)
    assert not warnings_of(export, dense, str(tmp_path / "dense"))
    wide = functional(rows(), ragged=False)
    assert not warnings_of(export, wide, str(tmp_path / "wide"))
    for front in (rows(padding_id=0), collection(padding_id=0)):
        padded = functional(front)
        assert not warnings_of(export, padded, str(tmp_path / "padded"))
    # Rows of one length, which need no padding.
    model = functional(rows())
    model.compile("sgd", "mse")
    full = np.array([[1, 2], [3, 4]])
    assert not warnings_of(model.predict, full, verbose=0)
    assert not warnings_of(model, tf.constant(full))
    assert not warnings_of(model.evaluate, full, np.ones((2, 1)), verbose=0)


def test_a_layer_for_ragged_and_dense_ids(tmp_path):
    layer = layers.DynamicEmbedding(4, name="shared")
    history = keras.Input((None,), dtype="int64", ragged=True, name="history")
    item = keras.Input((), dtype="int64", name="item")
    pair = keras.Input((2,), dtype="int64", name="pair")
    model = keras.Model([item, pair], [layer(item), layer(pair)])
    assert not warnings_of(export, model, str(tmp_path / "dense"))
    model = keras.Model([item, history], [layer(item), layer(history)])
    found = warnings_of(export, model, str(tmp_path / "both"))
    assert found
    assert all("of shape (None, None)" in text for text in found)
