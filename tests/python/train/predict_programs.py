"""Programs of fit_test.py on predict, in the process of fit_programs.py."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from fit_programs import DATA, STRATEGY, X, model

import lodestar
from lodestar.train import predict


def outputs_are_in_the_order_of_batches():
    """Dense and ragged outputs, of inputs with and without labels."""
    ours = model()
    wanted = ours(X).numpy()
    np.testing.assert_allclose(predict(ours, DATA), wanted, 1e-5)
    inputs = DATA.map(lambda x, y: x)
    found = predict(ours, inputs.repeat(), steps=3)
    np.testing.assert_allclose(found, wanted[:24], 1e-5)
    with STRATEGY.scope():
        ids = keras.Input((None,), dtype="int64", ragged=True)
        rows = lodestar.layers.DynamicEmbedding(2, default_row="initial")(ids)
        ragged = keras.Model(ids, {"rows": rows, "ids": ids})
    data = tf.ragged.constant([[1, 2], [], [3]] * 8, dtype=tf.int64)
    found = predict(ragged, tf.data.Dataset.from_tensor_slices(data).batch(5))
    assert found["ids"].to_list() == data.to_list()
    assert found["rows"].shape.as_list() == [24, None, 2]
    with pytest.raises(ValueError, match="`data` has no batch"):
        predict(ours, DATA.take(0))
    with pytest.raises(
        TypeError, match="`data` must be a tf.data.Dataset, paths"
    ):
        predict(ours, 3)
    with pytest.raises(ValueError, match="steps"):
        predict(ours, DATA, steps=0)
    with pytest.raises(ValueError, match="`data` is endless"):
        predict(ours, DATA.repeat())
    with pytest.raises(ValueError, match="Strategy. Use model.predict"):
        predict(model(scope=contextlib.nullcontext()), DATA)
