"""The side of TensorFlow Recommenders Addons in peers_benchmark.

It needs another version of TensorFlow than Lodestar, so peers_benchmark starts
it in a separate interpreter, as `benchmarks.peers.steps` describes.
"""

import sys

import numpy as np
import tensorflow as tf
import tensorflow_recommenders_addons as tfra
from tensorflow_recommenders_addons import dynamic_embedding as de
from tf_keras.optimizers.legacy import Adagrad

from benchmarks.peers import steps

_PART = 2**18  # rows per call that fills a table


def _variable(name: str, keys: np.ndarray, matrix: np.ndarray) -> de.Variable:
    """Returns a table that holds `matrix`; constant initial values are its fastest."""
    variable = de.get_variable(
        name,
        key_dtype=tf.int64,
        value_dtype=tf.float32,
        dim=matrix.shape[1],
        devices=["/CPU:0"],
        initializer=0.0,
    )
    for begin in range(0, len(keys), _PART):
        part = slice(begin, begin + _PART)
        variable.upsert(tf.constant(keys[part]), tf.constant(matrix[part]))
    return variable


def _step(variable: de.Variable, keys: np.ndarray, upstream: np.ndarray):
    """Returns a step of lookup, gradient and Adagrad, with all slots created."""
    dim = upstream.shape[1]
    shadow = de.shadow_ops.ShadowVariable(variable, name="shadow")
    adagrad = Adagrad(0.01, initial_accumulator_value=0.1, epsilon=1e-7)
    optimizer = de.DynamicEmbeddingOptimizer(adagrad)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def step(ids):
        with tf.GradientTape() as tape:
            rows = de.shadow_ops.embedding_lookup_unique(shadow, ids, dim)
        gradients = tape.gradient(rows, [shadow], upstream)
        optimizer.apply_gradients(zip(gradients, [shadow]))
        return rows

    # A step creates the slots' table, and must not change the rows.
    before = variable.lookup(tf.constant(keys[:1]))
    step(tf.fill([len(upstream)], tf.constant(keys[0])))
    variable.upsert(tf.constant(keys[:1]), before)
    slots = shadow._optimizer_vars
    for slot in getattr(slots, "value", slots):
        for begin in range(0, len(keys), _PART):
            part = tf.constant(keys[begin : begin + _PART])
            slot.upsert(part, tf.fill([len(part), dim], 0.1))
    return step


def main() -> None:
    """Reports that it is ready, then times the works named on stdin."""
    data = np.load(sys.argv[1])
    keys, matrix = data["keys"], data["matrix"]
    table = _variable("looked_up", keys, matrix)
    works = {
        "lookup": tf.function(
            table.lookup, input_signature=[tf.TensorSpec([None], tf.int64)]
        ),
        "step": _step(
            _variable("trained", keys, matrix), keys, data["upstream"]
        ),
    }
    name = f"TFRA {tfra.__version__} (TensorFlow {tf.__version__})"
    feeds = [tf.constant(ids) for ids in data["ids"]]
    steps.answer({name: works}, feeds)


if __name__ == "__main__":
    main()
