"""An exported model that reads tables in several ways, and its inputs."""

import keras
import numpy as np
import tensorflow as tf

import lodestar

VOCABULARY = ["red", "green", "blue"]


def batch(seed, size):
    """Returns features of `size` examples; most ids were seen in training."""
    rng = np.random.default_rng(seed)

    def ragged(values):
        splits = np.append(0, np.cumsum(rng.integers(0, 5, size)))
        return tf.RaggedTensor.from_row_splits(values(splits[-1]), splits)

    return {
        "clicks": ragged(lambda n: rng.integers(-(2**63), 2**63 - 1, n) >> 56),
        "words": ragged(
            lambda n: rng.integers(0, 90, n).astype("U").astype("S")
        ),
        "color": tf.constant(rng.choice([*VOCABULARY, "none"], size)),
        "number": tf.constant(rng.normal(size=[size, 3]).astype(np.float32)),
    }


def trained_model():
    """Returns a functional model of dicts, after two steps."""
    ragged = {"shape": (None,), "ragged": True}
    inputs = {
        "clicks": keras.Input(**ragged, dtype="int64", name="clicks"),
        "words": keras.Input(**ragged, dtype="string", name="words"),
        "color": keras.Input((), dtype="string", name="color"),
        "number": keras.Input((3,), name="number"),
    }
    embedding = lodestar.layers.DynamicEmbedding
    words = embedding(
        5, combiner="sqrtn", default_row=lodestar.SharedRows(7), salt="words"
    )
    color = lodestar.layers.IdLookup(vocabulary=VOCABULARY)(inputs["color"])
    rows = keras.layers.Concatenate(name="rows")(
        [
            embedding(4, combiner="mean", default_row="initial")(
                inputs["clicks"]
            ),
            words(inputs["words"]),
            keras.layers.Flatten()(
                embedding(2)(keras.ops.expand_dims(color, 1))
            ),
        ]
    )
    x = keras.layers.Concatenate()([rows, inputs["number"]])
    score = keras.layers.Dense(1, activation="sigmoid")(
        keras.layers.Dense(8, activation="relu")(x)
    )
    model = keras.Model(
        inputs, {"score": score, "rows": rows, "color_id": color}
    )
    model.compile(
        lodestar.optimizers.Adagrad(),
        {"score": "bce", "rows": None, "color_id": None},
    )
    for step in range(2):
        model.train_on_batch(batch(step, 64), {"score": np.ones((64, 1))})
    return model


def plain(features, signature="ragged"):
    """Returns the arguments of `serving_default` for `batch`'s features."""
    result = {}
    for name, value in features.items():
        if not isinstance(value, tf.RaggedTensor):
            result[name] = value
            continue
        result[f"{name}_values"] = value.values
        if signature == "ragged":
            result[f"{name}_row_splits"] = value.row_splits
        else:
            result[f"{name}_lengths"] = value.row_lengths()
    # Not as objects, which NumPy's files cannot hold.
    return {
        name: np.array(value).astype(np.bytes_)
        if value.dtype == tf.string
        else value.numpy()
        for name, value in result.items()
    }


def op_library():
    """The path of the shared object."""
    return str(lodestar._library.path)


def assert_same_outputs(got, want):
    """Checks that two models gave the same, perhaps by different executors.

    TensorFlow fuses dense layers when it runs them in a graph, so their last
    bit may differ. The outputs of Lodestar's ops are equal.
    """
    assert set(got) == set(want) == {"score", "rows", "color_id"}
    for name in ("rows", "color_id"):
        np.testing.assert_array_equal(got[name], want[name])
    np.testing.assert_allclose(
        got["score"], want["score"], rtol=1e-6, atol=1e-6
    )
