"""The names of a model's variables are the same when it is built again."""

import keras
import numpy as np
import pytest

import lodestar
from lodestar.snapshot import model_variables


def model():
    ids = keras.Input((2,), dtype="int64")
    rows = lodestar.layers.DynamicEmbedding(
        3, combiner="sum", name="user", optimizer="adagrad"
    )(ids)
    x = keras.layers.Dropout(0.5)(keras.layers.Dense(3)(rows))
    m = keras.Model(ids, keras.layers.Dense(1)(x))
    m.compile(
        lodestar.optimizers.Adam(),
        "mse",
        metrics=["mae"],
    )
    m.fit(np.ones((4, 2), np.int64), np.ones((4, 1)), verbose=0)
    return m


def test_weights_and_seeds_without_hooks_and_metrics():
    paths = [p.split("/")[-1] for p in model_variables.weights(model())]
    assert sorted(paths) == [
        "bias",
        "bias",
        "kernel",
        "kernel",
        "seed_generator_state",
    ]


def test_variables_of_all_optimizers():
    m = model()
    tables = {"user": m.get_layer("user").table}
    paths = model_variables.optimizer_variables(m, tables)
    ends = [p.split("/")[-1] for p in paths]
    assert ends.count("iteration") == 2 and len(paths) == 12
    assert any(p.startswith("adagrad") for p in paths)


def test_a_model_made_again_matches_the_first():
    first, second = model(), model()
    saved = model_variables.weights(first)
    here = model_variables.weights(second)
    assert set(saved) != set(here)
    names = model_variables.match(list(saved), list(here))
    assert list(names) == list(here) and list(names.values()) == list(saved)
    saved, here = (
        model_variables.optimizer_variables(
            m, {"user": m.get_layer("user").table}
        )
        for m in (first, second)
    )
    names = model_variables.match_in_order(saved, here)
    assert list(names) == list(here) and list(names.values()) == list(saved)


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


def test_difference_names_both_sides():
    variable = keras.Variable(np.zeros((2, 3), np.float32))
    assert (
        model_variables.difference(np.zeros((2, 3), np.float32), variable)
        is None
    )
    assert model_variables.difference(np.zeros((3, 2)), variable) == (
        "shape (3, 2) and dtype float64 in the snapshot, but shape (2, 3) and "
        "dtype float32 here"
    )
