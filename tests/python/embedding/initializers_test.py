"""Tests of initializer names and Keras initializers."""

import keras
import numpy as np
import pytest

import lodestar
from lodestar.embedding.initializers import initializer_attrs

K = keras.initializers


@pytest.mark.parametrize(
    "initializer, want",
    [
        ("zeros", ("zeros", 0, 0)),
        ("ones", ("ones", 0, 0)),
        ("uniform", ("uniform", -0.05, 0.05)),
        ("random_uniform", ("uniform", -0.05, 0.05)),
        ("normal", ("normal", 0, 0.05)),
        ("truncated_normal", ("truncated_normal", 0, 0.05)),
        (K.Zeros(), ("zeros", 0, 0)),
        (K.Ones(), ("ones", 0, 0)),
        (K.Constant(2.5), ("constant", 2.5, 0)),
        (K.RandomUniform(-1.0, 2.0), ("uniform", -1, 2)),
        (K.RandomNormal(1.0, 2.0), ("normal", 1, 2)),
        (K.TruncatedNormal(1.0, 2.0), ("truncated_normal", 1, 2)),
        (K.serialize(K.Constant(4.0)), ("constant", 4, 0)),
    ],
)
def test_attributes(initializer, want):
    assert initializer_attrs(initializer) == pytest.approx(want)


@pytest.mark.parametrize(
    "initializer, message",
    [
        (
            "glorot_uniform",
            "`embeddings_initializer`='glorot_uniform' is not supported",
        ),
        ("no such", "`embeddings_initializer`='no such' is not supported"),
        (K.Orthogonal(), "is not supported"),
        (3, "`embeddings_initializer`=3 is not supported"),
        (K.Constant([1.0, 2.0]), "is not a number"),
    ],
)
def test_others_are_refused(initializer, message):
    with pytest.raises(ValueError, match=message):
        initializer_attrs(initializer)


@pytest.mark.parametrize(
    "initializer, mean, deviation, low, high",
    [
        ("zeros", 0, 0, 0, 0),
        ("ones", 1, 0, 1, 1),
        (K.Constant(-2.0), -2, 0, -2, -2),
        (K.RandomUniform(1.0, 3.0), 2, 2 / 12**0.5, 1, 3),
        (K.RandomNormal(1.0, 2.0), 1, 2, -12, 14),
        (K.TruncatedNormal(1.0, 2.0), 1, 2 * 0.8796, -3, 5),
    ],
)
def test_distributions(initializer, mean, deviation, low, high):
    table = lodestar.EmbeddingVariable(
        8, embeddings_initializer=initializer, name="distribution"
    )
    rows = table.lookup(np.arange(20000), training=True).numpy()
    assert rows.mean() == pytest.approx(mean, abs=0.02)
    assert rows.std() == pytest.approx(deviation, abs=0.02)
    assert rows.min() >= low and rows.max() <= high
