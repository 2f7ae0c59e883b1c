"""For any splits, an op raises an error or agrees with NumPy.

A LoDTensor or RaggedTensor that is created without validation may have invalid
splits.
"""

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.ragged import LoDTensor

ROWS = 5
NUMBERS = [-(2**63), -1, 0, 0, 1, 2, 3, 4, 5, 5, 6, 2**31, 2**62, 2**63 - 1]

sequence = lodestar.sequence


def ids(splits, kind):
    return kind(tf.range(ROWS, dtype=tf.int64), splits)


def floats(splits, kind):
    return kind(tf.reshape(tf.range(2.0 * ROWS), [ROWS, 2]), splits)


def lod_tensor(rows, splits):
    return LoDTensor(rows, (tf.constant(splits, tf.int64),))


def ragged(rows, splits):
    return tf.RaggedTensor.from_row_splits(
        rows, tf.constant(splits, tf.int64), validate=False
    )


def sound(kind, x):
    """Returns an input with as many sequences as x, one row each."""
    count = max(
        int(tf.size(x.lod[0] if kind is lod_tensor else x.row_splits)), 1
    )
    return kind(tf.zeros([count - 1], tf.int64), np.arange(count))


def some(splits):
    return np.zeros(max(len(splits) - 1, 0), np.int64)


OPS = {
    "slice": lambda s, k: sequence.slice(floats(s, k), some(s), some(s)),
    "concat": lambda s, k: sequence.concat([ids(s, k), sound(k, ids(s, k))]),
    "concat second": lambda s, k: sequence.concat(
        [sound(k, ids(s, k)), ids(s, k)]
    ),
    "enumerate": lambda s, k: sequence.enumerate(ids(s, k), 3),
    "conv": lambda s, k: sequence.conv(floats(s, k), tf.ones([6, 2])),
    "erase": lambda s, k: sequence.erase(ids(s, k), [1]),
    "reshape": lambda s, k: sequence.reshape(floats(s, k), 1),
    "scatter": lambda s, k: sequence.scatter(
        tf.zeros([max(len(s) - 1, 0), ROWS], tf.int64), ids(s, k), ids(s, k)
    ),
    "topk_avg_pooling": lambda s, k: sequence.topk_avg_pooling(
        k(tf.range(1.0 * ROWS), s),
        sound(k, ids(s, k)),
        ids(s, k),
        [1, 2],
        1,
    ),
    "topk_avg_pooling row": lambda s, k: sequence.topk_avg_pooling(
        k(tf.range(1.0 * ROWS), s), ids(s, k), sound(k, ids(s, k)), [1], 1
    ),
}


def are_splits(splits):
    return (
        len(splits) > 0
        and splits[0] == 0
        and splits[-1] == ROWS
        and all(a <= b for a, b in zip(splits[:-1], splits[1:], strict=True))
    )


@pytest.mark.parametrize("kind", [lod_tensor, ragged])
@pytest.mark.parametrize("name", OPS)
def test_random_splits(name, kind, rng):
    outcomes = set()
    for trial in range(150):
        splits = [
            NUMBERS[i] for i in rng.integers(len(NUMBERS), size=trial % 5)
        ]
        if trial % 3 == 0:
            splits = [0, *sorted(rng.integers(0, ROWS + 1, trial % 5)), ROWS]
        try:
            result = OPS[name](splits, kind)
        except tf.errors.InvalidArgumentError:
            assert not are_splits(splits), splits
            outcomes.add("refused")
            continue
        assert are_splits(splits), splits
        if isinstance(result, LoDTensor):
            result = result.to_ragged()
        if isinstance(result, tf.RaggedTensor):
            # Reads every row by the returned splits.
            result = tf.RaggedTensor.from_row_splits(
                result.flat_values, result.row_splits, validate=True
            )
        outcomes.add("done")
    assert outcomes == {"refused", "done"}
