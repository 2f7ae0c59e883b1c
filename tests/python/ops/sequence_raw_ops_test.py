"""Raw ops of sequences, given what no wrapper would give them.

Whatever the tensors hold, an op returns or raises an error of TensorFlow; it
never ends the process.
"""

import numpy as np
import pytest
import tensorflow as tf
from random_arguments import MAX, MIN, call, op_def, random_tensor

ROWS = np.ones([3, 4], np.float32)
# A call that each op takes. Random calls begin with these.
CALLS = {
    "SequenceExpand": {
        "values": ROWS,
        "row_splits": [0, 1, 3],
        "ref_splits": [0, 2, 3],
    },
    "SequenceExpandGradient": {
        "gradient": np.ones([4, 4], np.float32),
        "row_splits": [0, 1, 3],
        "ref_splits": [0, 2, 3],
    },
    "SequenceExpandAs": {"values": ROWS, "row_splits": [0, 2, 2, 5]},
    "SequencePad": {
        "values": ROWS,
        "row_splits": [0, 1, 3],
        "pad_value": np.float32(7),
        "maxlen": -1,
    },
    "SequenceUnpad": {
        "padded": np.ones([2, 3, 4], np.float32),
        "lengths": [1, 3],
    },
}
# Either small, or beyond any memory; for what a larger machine might have,
# TensorFlow asks again for ten seconds.
OFFSETS = [MIN, -1, *(0, 1, 2, 3) * 2, 4, 5, 40, 2**62, MAX - 1, MAX]


def usual_arguments(name, dtype):
    """Returns a call that the op takes, with rows of `dtype`."""
    arguments = {}
    for argument in op_def(name).input_arg:
        value = np.asarray(CALLS[name][argument.name])
        if argument.type_attr and dtype == tf.string:
            value = value.astype(str)
        wanted = dtype if argument.type_attr else tf.int64
        arguments[argument.name] = tf.constant(
            value.astype(wanted.as_numpy_dtype), wanted
        )
    return arguments


def random_offsets(rng):
    """Returns offsets that are splits, nearly so, or not at all."""
    count = rng.integers(0, 6)
    kind = rng.integers(5)
    if kind == 0:
        return tf.constant(rng.choice(OFFSETS, size=count), tf.int64)
    if kind == 1:
        return tf.constant(rng.choice(OFFSETS, size=[(), (2, 2)][count % 2]))
    if kind == 2:
        return tf.constant(np.sort(rng.choice(OFFSETS, size=count)), tf.int64)
    splits = np.cumsum(rng.integers(0, 3, size=count))
    splits -= splits[:1].sum()
    if kind == 3 and count:
        splits[rng.integers(count)] = rng.choice(OFFSETS)
    return tf.constant(splits, tf.int64)


@pytest.mark.parametrize("name", sorted(CALLS))
@pytest.mark.parametrize(
    "dtype", [tf.float32, tf.float64, tf.string], ids=lambda d: d.name
)
def test_random_arguments_are_taken_or_refused(name, dtype, rng):
    if dtype == tf.string and name.endswith("Gradient"):
        pytest.skip("strings have none")
    call(name, **usual_arguments(name, dtype))
    taken = refused = 0
    tensors = list(op_def(name).input_arg)
    for _ in range(400):
        arguments = usual_arguments(name, dtype)
        for _ in range(rng.integers(1, 3)):
            changed = tensors[rng.integers(len(tensors))]
            if changed.type_attr:
                value = random_tensor(rng, dtype)
            elif changed.name == "maxlen" and rng.integers(4):
                value = tf.constant(rng.choice(OFFSETS), tf.int64)
            else:
                value = random_offsets(rng)
            arguments[changed.name] = value
        try:
            call(name, **arguments)
        except tf.errors.OpError:
            refused += 1
        else:
            taken += 1
    assert taken
    assert refused
