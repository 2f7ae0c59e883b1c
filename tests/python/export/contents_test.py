"""Tests of finding the tables and weights that a model reads."""

import export_models
import keras
import tensorflow as tf

import lodestar
from lodestar.export.contents import model_contents


def test_tables_vocabularies_and_weights():
    m = export_models.shared_collection_model()
    contents = model_contents(m)
    assert {k: t.name for k, t in contents.tables.items()} == {
        "user": "user",
        "item": "item",
    }
    assert [t.key_dtype for t in contents.id_tables.values()] == [tf.string]
    # No hooks, and no variables of the optimizer or the metrics.
    assert [v.path.split("/")[0] for v in contents.weights] == [
        "hidden",
        "hidden",
        "score",
        "score",
    ]
    assert contents.resources == []


def test_random_state_is_not_a_weight():
    m = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(1), keras.layers.Dropout(0.5)]
    )
    contents = model_contents(m)
    assert len(contents.weights) == 2
    assert [v.path.split("/")[-1] for v in contents.state] == [
        "seed_generator_state"
    ]


def test_tables_with_the_same_name_are_numbered():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.first = lodestar.EmbeddingVariable(1, name="t")
            self.second = lodestar.EmbeddingVariable(2, name="t")
            self.again = self.first

    assert {
        k: t.output_dim for k, t in model_contents(Model()).tables.items()
    } == {
        "t": 1,
        "t_1": 2,
    }


def test_side_tables_of_the_optimizer_are_omitted():
    ids = keras.Input((2,), dtype="int64")
    layer = lodestar.layers.DynamicEmbedding(2, combiner="sum", name="e")
    m = keras.Model(ids, layer(ids))
    m.compile(
        lodestar.optimizers.SGD(0.1, gradient_accumulation_steps=2),
        "mse",
    )
    m.fit(tf.ones([4, 2], tf.int64), tf.ones([4, 2]), verbose=0)
    assert list(model_contents(m).tables) == ["e"]


def test_lookup_tables_of_keras():
    words = keras.Input((), dtype="string")
    m = keras.Model(words, keras.layers.StringLookup(vocabulary=["a"])(words))
    contents = model_contents(m)
    assert len(contents.resources) == 1 and contents.id_tables == {}
