"""Tests of examples/wide_deep/dense_table.py."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from wide_deep_command import FOLDER

BAGS = {
    "a": tf.ragged.constant([[5, 2**40, 5], [], [7]], tf.int64),
    "b": tf.ragged.constant([[], [5], [6, 5]], tf.int64),
}


@pytest.fixture
def module(monkeypatch):
    """Imports the example's module."""
    monkeypatch.syspath_prepend(FOLDER)
    import dense_table

    return dense_table


def test_vocabulary_is_the_ids_of_an_epoch(module):
    batches = tf.data.Dataset.from_tensor_slices((BAGS, [0, 1, 0])).batch(2)
    found = module.vocabulary(batches, ["a", "b"])
    assert found["a"].tolist() == [5, 7, 2**40]
    assert found["b"].tolist() == [5, 6]


def test_rows_are_those_of_the_embedding(module):
    vocabularies = {"a": np.array([5, 2**40]), "b": np.array([5, 6])}
    for combiner, pool in (("sum", np.sum), ("mean", np.mean)):
        table = module.DenseTable(vocabularies, 3, combiner)
        found = table(BAGS)
        rows = table.embedding.embeddings.numpy()
        # Row numbers continue from slot to slot; 7 is not in the vocabulary.
        assert rows.shape == (4, 3)
        np.testing.assert_allclose(found["a"][0], pool(rows[[0, 1, 0]], axis=0))
        np.testing.assert_array_equal(found["a"][1:], np.zeros((2, 3)))
        np.testing.assert_allclose(found["b"][2], pool(rows[[3, 2]], axis=0))


def test_it_trains_in_a_functional_model(module):
    inputs = {
        name: keras.Input((None,), dtype="int64", ragged=True, name=name)
        for name in BAGS
    }
    rows = module.DenseTable(
        {name: np.array([5, 7]) for name in BAGS}, 4, "mean"
    )(inputs)
    hidden = keras.layers.Concatenate()(list(rows.values()))
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(keras.optimizers.Adagrad(0.1), "mse")
    labels = np.array([[1.0], [0.0], [2.0]])
    before = model.evaluate(BAGS, labels, verbose=0)
    model.fit(BAGS, labels, epochs=5, verbose=0)
    assert model.evaluate(BAGS, labels, verbose=0) < before
