"""Clicks on the articles of a news site, and a model of them.

Articles appear while training runs. Each has an appeal of its own, each reader
a taste; what is clicked follows from both. Of a new article the model knows
nothing until it has been trained on its clicks.
"""

import keras
import numpy as np
import tensorflow as tf

import lodestar

READERS = 2000
_ARTICLES_AT_FIRST = 200
_BATCH_SIZE = 512
_RECENT = 40


class NewsSite:
    """Draws clicks; `publish` adds an article that everyone likes."""

    def __init__(self, seed: int = 7):
        self._rng = np.random.default_rng(seed)
        self._taste = self._rng.normal(size=READERS)
        self._appeal = list(self._rng.normal(size=_ARTICLES_AT_FIRST))

    def publish(self) -> int:
        """Returns the new article's id."""
        self._appeal.append(4.0)
        return len(self._appeal) - 1

    def batch(self) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Returns features, ids `[B, 1]`, and clicks `[B, 1]`, 0 or 1."""
        readers = self._rng.integers(0, READERS, _BATCH_SIZE)
        articles = self._rng.integers(0, len(self._appeal), _BATCH_SIZE)
        # Half of what is read was published a short time ago.
        recent = self._rng.random(_BATCH_SIZE) < 0.5
        articles[recent] = (
            len(self._appeal)
            - 1
            - (self._rng.integers(0, _RECENT, recent.sum()))
        )
        likes = np.array(self._appeal)[articles] + self._taste[readers] - 1.0
        clicks = self._rng.random(_BATCH_SIZE) < 1 / (1 + np.exp(-likes))
        return features(readers, articles), tf.constant(
            clicks[:, None], tf.float32
        )


def features(readers: np.ndarray, articles: np.ndarray) -> dict[str, tf.Tensor]:
    """What the model takes for pairs of a reader and an article."""
    return {
        "reader": tf.constant(readers[:, None], tf.int64),
        "article": tf.constant(articles[:, None], tf.int64),
    }


def build_model() -> keras.Model:
    """A model of the probability of a click."""
    inputs = {
        name: keras.Input((1,), dtype="int64", name=name)
        for name in ("reader", "article")
    }
    rows = [
        lodestar.layers.DynamicEmbedding(8, combiner="sum", name=f"{name}s")(x)
        for name, x in inputs.items()
    ]
    hidden = keras.layers.Dense(16, activation="relu")(
        keras.layers.Concatenate()(rows)
    )
    click = keras.layers.Dense(1, activation="sigmoid")(hidden)
    model = keras.Model(inputs, {"click": click})
    model.compile(
        lodestar.optimizers.Adagrad(0.1),
        "binary_crossentropy",
    )
    return model
