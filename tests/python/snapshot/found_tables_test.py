"""Which tables a call gets, and under which names."""

import keras
import pytest
import tensorflow as tf

import lodestar
from lodestar.snapshot.found_tables import find_tables, tables_of_optimizer


def names(tables):
    found = find_tables(tables)
    return sorted(found.embeddings), sorted(found.id_tables)


def model():
    words = keras.Input((2,), dtype="string")
    ids = lodestar.layers.IdLookup(["a", "b"], name="words")(words)
    user = lodestar.layers.DynamicEmbedding(4, combiner="sum", name="user")
    both = lodestar.EmbeddingVariable(4, name="both")
    pair = lodestar.layers.EmbeddingCollection(
        {
            "x": lodestar.Feature(both, combiner="sum"),
            "y": lodestar.Feature(both, combiner="sum"),
        }
    )({"x": ids, "y": ids})
    out = keras.layers.Dense(1)(user(ids) + pair["x"] + pair["y"])
    return keras.Model(words, out)


def test_tables_themselves_and_lists():
    a = lodestar.EmbeddingVariable(2, name="a")
    b = lodestar.lookup.IdTable(["k"], name="b")
    assert names(a) == (["a"], [])
    assert names([a, [b], (a,)]) == (["a"], ["b"])
    assert find_tables([a]).embeddings["a"] is a


def test_names_of_your_own():
    a = lodestar.EmbeddingVariable(2, name="t")
    b = lodestar.EmbeddingVariable(2, name="t")
    layer = lodestar.layers.DynamicEmbedding(2, name="t")
    found = find_tables({"one": a, "two": b, "three": layer})
    assert found.embeddings == {"one": a, "two": b, "three": layer.table}


def test_those_of_a_model_once_each():
    m = model()
    assert names(m) == (["both", "user"], ["words"])
    assert names(m.layers[1]) == ([], ["words"])


def test_those_of_a_module():
    module = tf.Module()
    module.parts = [lodestar.EmbeddingVariable(2, name="t")]
    module.keys = lodestar.lookup.IdTableWithHashBuckets(
        lodestar.lookup.IdTable(["k"], name="keys"), 2
    )
    assert names(module) == (["t"], ["keys"])
    assert names(module.keys) == ([], ["keys"])
    assert names({"k": module.keys}) == ([], ["k"])


def test_tables_of_the_optimizer_are_separate():
    m = model()
    m.compile(
        lodestar.optimizers.SGD(gradient_accumulation_steps=2),
        "mse",
    )
    m.optimizer.build(m.trainable_variables)
    assert names(m) == (["both", "user"], ["words"])
    assert sorted(tables_of_optimizer(m)) == [
        "both_gradient_sum",
        "user_gradient_sum",
    ]
    assert tables_of_optimizer(None) == {}


def table(name, dim=2):
    return lodestar.EmbeddingVariable(dim, name=name)


T = table("t")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: [], r"`model` holds no table: \[\]"),
        (lambda: {}, "`model` holds no table: {}"),
        (lambda: keras.layers.Dense(1), "`model` holds no table: <Dense"),
        (lambda: "t", "`model` must be an EmbeddingVariable.* got 't'"),
        (lambda: [3], "`model` must be .* got 3"),
        (
            lambda: {"x": keras.layers.Dense(1)},
            r"`model\['x'\]` must hold one table, got \[\]",
        ),
        (
            lambda: {"x": model()},
            r"`model\['x'\]` must hold one table, got \['.*', '.*', '.*'\]",
        ),
        (
            lambda: {3: keras.layers.Dense(1)},
            "keys of `model` must be .* got 3",
        ),
        (lambda: {"x": T, "y": T}, "under two names, 'x' and 'y'"),
        (
            lambda: [T, table("t", 3)],
            "two tables of the name 't': <Emb.*_dim=2 .*> and <Emb.*_dim=3 ",
        ),
        (
            lambda: [T, lodestar.lookup.IdTable(["k"], name="t")],
            "two tables of the name 't'",
        ),
    ],
)
def test_other_objects_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        find_tables(make())
