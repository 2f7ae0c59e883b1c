"""Compares tables on a GPU with Keras's Embedding on the same GPU.

Times a lookup, a training step with Adagrad, and the step of a click model with
26 features, each as a `tf.function`. To check the program without a GPU, use
`--device /CPU:0 --small`.
"""

import keras
import measure
import numpy as np
import tensorflow as tf

import lodestar


def zipf(rng, shape, vocabulary):
    """Draws ids from [0, vocabulary); a few are frequent."""
    return (rng.zipf(1.05, shape) - 1) % vocabulary


def timed(function, feeds, runs):
    """Returns the seconds of each call, after 20 calls to warm up."""
    for feed in feeds[:20]:
        function(feed).numpy()
    return measure.call_seconds(
        lambda feed: function(feed).numpy(), feeds[20 : 20 + runs]
    )


def compare(work, sides, feeds, runs, **fields):
    """Prints the medians of both sides, and their ratio."""
    seconds = {name: timed(side, feeds, runs) for name, side in sides.items()}
    medians = {
        name: float(np.median(values)) for name, values in seconds.items()
    }
    ours, keras_s = medians["lodestar"], medians["keras"]
    measure.print_line(
        work=work,
        lodestar_ms=ours * 1e3,
        keras_ms=keras_s * 1e3,
        ratio=keras_s / ours,
        runs=runs,
        **fields,
    )


def step_of(model, optimizer):
    """Returns a training step of a model whose loss is the mean of its output."""

    @tf.function(reduce_retracing=True)
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(ids, training=True))
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    return step


def ours(optimizer):
    """Wraps an optimizer so that it trains tables."""
    return lodestar.optimizers.wrap(optimizer)


def adagrad():
    """Returns the optimizer of all steps."""
    return keras.optimizers.Adagrad(0.05)


def single(args, device):
    """Compares a lookup and a training step of one table."""
    vocabulary, batch = (1000, 256) if args.small else (1_000_000, 65_536)
    dim = 32
    rng = np.random.default_rng(1)
    with tf.device(device):
        feeds = [
            tf.constant(zipf(rng, batch, vocabulary), tf.int64)
            for _ in range(20 + args.runs)
        ]
        plain = keras.layers.Embedding(vocabulary, dim)
        plain.build(())
        table = lodestar.layers.DynamicEmbedding(dim)
        table(tf.range(vocabulary, dtype=tf.int64), training=True)

        def lookup(layer):
            return tf.function(
                lambda ids: tf.reduce_sum(layer(ids, training=False)[:1])
            )

        compare(
            "lookup",
            {"lodestar": lookup(table), "keras": lookup(plain)},
            feeds,
            args.runs,
            ids=batch,
            dim=dim,
        )
        models = {}
        for name, layer in (("lodestar", table), ("keras", plain)):
            ids = keras.Input((), dtype="int64")
            models[name] = keras.Model(ids, layer(ids))
        steps = {
            "lodestar": step_of(models["lodestar"], ours(adagrad())),
            "keras": step_of(models["keras"], adagrad()),
        }
        compare("step", steps, feeds, args.runs, ids=batch, dim=dim)


def click(args, device):
    """Compares steps of a model with 26 features of one id each."""
    features, dim = 26, 16
    vocabulary, batch = (1000, 64) if args.small else (100_000, 2048)
    rng = np.random.default_rng(2)
    names = [f"c{i}" for i in range(features)]

    def tower():
        return keras.Sequential(
            [
                keras.layers.Dense(256, activation="relu"),
                keras.layers.Dense(1),
            ]
        )

    with tf.device(device):
        feeds = [
            {
                name: tf.constant(zipf(rng, (batch, 1), vocabulary), tf.int64)
                for name in names
            }
            for _ in range(20 + args.runs)
        ]
        inputs = {
            name: keras.Input((1,), dtype="int64", name=name) for name in names
        }
        collection = lodestar.layers.EmbeddingCollection(
            {name: lodestar.Feature(dim, combiner="sum") for name in names},
            devices=[device],
        )
        pooled = collection(inputs)
        first = keras.Model(
            inputs,
            tower()(keras.layers.Concatenate()([pooled[n] for n in names])),
        )
        rows = [
            keras.layers.Embedding(vocabulary, dim)(inputs[n]) for n in names
        ]
        rows = keras.layers.Concatenate(axis=2)(rows)
        second = keras.Model(
            inputs, tower()(keras.layers.Reshape((features * dim,))(rows))
        )
        steps = {
            "lodestar": step_of(first, ours(adagrad())),
            "keras": step_of(second, adagrad()),
        }
        compare("click model", steps, feeds, args.runs, batch=batch, dim=dim)


if __name__ == "__main__":
    arguments = measure.arguments(
        __doc__, ["single", "click"], **{"--device": "such as /GPU:0"}
    )
    for name in arguments.works:
        globals()[name](arguments, arguments.device or "/GPU:0")
