"""Tables on GPUs and on the CPU with the same rows, and comparisons of them."""

import numpy as np
import pytest
import tensorflow as tf

import lodestar

GPUS = ["/GPU:0", "/GPU:1"]
# One GPU, and a table that is partitioned over two.
DEVICES = pytest.mark.parametrize(
    "devices", [GPUS[:1], GPUS], ids=["one", "two"]
)
GRAPH = pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])


def table(devices=None, dim=4, **kwargs):
    """Returns a table; all start with the same rows."""
    kwargs = {"seed": (1, 3)} | kwargs
    with tf.device("/CPU:0"):
        return lodestar.EmbeddingVariable(dim, devices=devices, **kwargs)


def pair(devices, **kwargs):
    """Returns a table on the CPU and one on `devices`."""
    return table(**kwargs), table(devices, **kwargs)


def content(table):
    """Returns the complete content of a table by name."""
    return {k: np.asarray(v) for k, v in table._export_all().items()}


def assert_same(a, b, exact=True, atol=1e-6):
    """Checks that both tables have the same content, or nearly the same rows."""
    a, b = content(a), content(b)
    assert a.keys() == b.keys()
    for name in a:
        if exact or a[name].dtype.kind != "f":
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)
        else:
            np.testing.assert_allclose(
                a[name], b[name], rtol=1e-5, atol=atol, err_msg=name
            )


def some_ids(rng, shape):
    """Returns ids from the whole range and close ones, with some repeated."""
    near = rng.integers(-20, 20, shape)
    far = rng.choice([2**63 - 1, -(2**63), 2**40], shape)
    return np.where(rng.random(shape) < 0.2, far, near)


def bags(rng, count=9, most=6, ids=15):
    """Returns ragged ids with repeated ids and some empty bags."""
    lengths = rng.integers(0, most, count)
    return tf.RaggedTensor.from_row_lengths(
        rng.integers(-ids, ids, lengths.sum()), lengths
    )
