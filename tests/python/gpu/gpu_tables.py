"""Devices and ids of the tests of this folder."""

import pytest
import tensorflow as tf

GPUS = ["/GPU:0", "/GPU:1"]
# One GPU, and a table that is partitioned over two.
DEVICES = pytest.mark.parametrize(
    "devices", [GPUS[:1], GPUS], ids=["one", "two"]
)
GRAPH = pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])


def bags(rng, count=9, most=6, ids=15):
    """Returns ragged ids with repeated ids and some empty bags."""
    lengths = rng.integers(0, most, count)
    return tf.RaggedTensor.from_row_lengths(
        rng.integers(-ids, ids, lengths.sum()), lengths
    )
