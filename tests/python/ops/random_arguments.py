"""Parts of random calls, with arguments that no wrapper passes to an op."""

import re

import numpy as np
import tensorflow as tf

import lodestar
from lodestar._library import gen_ops

DIM = 4
MIN, MAX = -(2**63), 2**63 - 1

_SHAPES = [
    (), (0,), (1,), (2,), (3,), (4,), (5,), (0, 0), (0, DIM), (2, 2), (2, DIM),
    (3, 1), (3, DIM), (3, DIM + 1), (0, 3, DIM), (1, 3, DIM), (2, 3, DIM),
    (1, 1, 1, 1),
]  # fmt: skip
_VALUES = {
    tf.int64: [MIN, -2, -1, 0, 1, 2, 3, 1000, 2**31, 2**32 - 1, 2**62, MAX],
    tf.float32: [np.nan, np.inf, -np.inf, -1.0, 0.0, 1.0, 1e38, 1e-45],
    tf.float64: [np.nan, np.inf, -1.0, 0.0, 0.5, 1.0, 1e300],
    tf.float16: [np.nan, np.inf, -1.0, 0.0, 0.5, 1.0, 1e-7, 65504.0],
    tf.bfloat16: [np.nan, np.inf, -1.0, 0.0, 0.5, 1.0, 1e38],
    tf.string: ["", "adam", "adagrad", "lamb", "momentum", "x" * 10000],
    tf.int32: [-(2**31), -1, 0, 1, 2, 2**31 - 1],
    tf.bool: [True, False],
    tf.uint8: [0, 1, 255],
}


def op_def(name):
    """Returns the definition of `Lodestar>name`."""
    return tf.Graph().op_def_for_type(f"Lodestar>{name}")


def default_dtype(name, argument):
    """Returns the dtype of `argument` of `Lodestar>name`, or its default."""
    if not argument.type_attr:
        return tf.as_dtype(argument.type)
    attrs = {attr.name: attr for attr in op_def(name).attr}
    return tf.as_dtype(attrs[argument.type_attr].default_value.type or "float")


def call(name, **arguments):
    """Calls `Lodestar>name`."""
    stem = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    return getattr(gen_ops, f"lodestar_{stem}")(**arguments)


def table():
    """Returns a table of three rows."""
    t = lodestar.EmbeddingVariable(
        DIM, embeddings_initializer="ones", name="raw"
    )
    t.lookup([1, 2, 3], training=True)
    return t


def content(t):
    """Returns the complete content of a table, for comparison."""
    return [
        repr(x.tolist()) if x.dtype == object else x.tobytes()
        for x in map(np.asarray, t._export_all().values())
    ]


def tensor(value, dtype):
    """Returns `value` as a tensor, numbers cast to `dtype`."""
    return tf.constant(np.asarray(value, dtype.as_numpy_dtype), dtype)


def random_tensor(rng, dtype):
    """Returns a tensor of random shape with unusual values."""
    shape = _SHAPES[rng.integers(len(_SHAPES))]
    values = _VALUES[dtype]
    drawn = rng.integers(len(values), size=shape)
    if dtype == tf.int64 and rng.integers(2):
        return tf.constant(rng.integers(-1, 3, size=shape), dtype)
    flat = [values[i] for i in np.ravel(drawn)]
    return tf.reshape(tf.constant(flat, dtype), shape)


def random_number(rng):
    """Returns an int64 for an attribute."""
    numbers = [MIN, -(2**31), -1, 0, 1, 2, 3, 2**31 - 1, MAX]
    return numbers[rng.integers(len(numbers))]
