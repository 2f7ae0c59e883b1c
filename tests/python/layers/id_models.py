"""Models whose only input, `_id`, is looked up."""

import keras

import lodestar
from lodestar import layers


def embedding(ids, **options):
    return layers.DynamicEmbedding(2, combiner="sum", **options)(ids)


def collection(ids, **options):
    feature = lodestar.Feature(output_dim=2, combiner="sum", **options)
    return layers.EmbeddingCollection({"_id": feature})({"_id": ids})["_id"]


def lookup(ids, **options):
    mask = options.get("padding_id")
    return layers.IdLookup(
        [1, 2, 3],
        mask_token=mask,
        output_mode="count",
        max_tokens=5,
        pad_to_max_tokens=True,
    )(ids)


FRONTS = [embedding, collection, lookup]


def model_of(front, ids, inputs=None, **options):
    score = keras.layers.Dense(1)(front(ids, **options))
    model = keras.Model({"_id": ids if inputs is None else inputs}, score)
    optimizer = lodestar.optimizers.SGD(0.1)
    model.compile(optimizer, "mse", metrics=["mae"])
    return model
