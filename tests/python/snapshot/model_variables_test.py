"""The names of a model's variables are the same when it is built again."""

import keras
import numpy as np
import pytest

from lodestar.snapshot import model_variables


def test_a_side_with_more_matches_by_path():
    match = model_variables.match
    some, more = ["b_1/k"], ["b/k", "b_1/k"]
    assert match(some, more) == match(more, some) == {"b_1/k": "b_1/k"}
    assert match(["a_1/k", "a_2/k"], ["a_5/k", "a_7/k", "c/k"]) == {
        "a_5/k": "a_1/k",
        "a_7/k": "a_2/k",
    }


@pytest.mark.parametrize(
    "other",
    [
        {"adagrad/iteration": np.int64(0), "adagrad/a": np.zeros(2)},
        {"adam/iteration": np.int64(0), "adam/a": np.zeros(3)},
        {"adam/iteration": np.int32(0), "adam/a": np.zeros(2)},
        {"adam/iteration": np.int64(0)},
        {"adam/a": np.zeros(2), "adam/iteration": np.int64(0)},
    ],
)
def test_optimizers_that_do_not_match(other):
    saved = {"adam_2/iteration": np.int64(0), "adam_2/a": np.zeros(2)}
    assert model_variables.match_in_order(saved, other) is None


def test_equal_paths_are_numbered():
    layers = [keras.layers.Dense(1, name="d") for _ in range(2)]
    for layer in layers:
        layer.build((None, 2))
    found = model_variables.by_path([v for la in layers for v in la.variables])
    assert list(found) == ["d/kernel", "d/bias", "d/kernel#2", "d/bias#2"]
