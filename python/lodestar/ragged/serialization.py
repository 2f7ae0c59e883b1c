"""LoDTensors as a dict of tensors, and as one string.

The string is a serialized string vector: the serialized values, then the serialized
levels, outermost first, all by `tf.io.serialize_tensor`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from lodestar._checks import after, assert_true, check_count
from lodestar._typing import TensorLike
from lodestar.ragged.arguments import Parts, as_levels, as_values, validated


def names(num_levels: int, prefix: str) -> list[str]:
    """Returns the names of the values and the levels."""
    levels = (f"lod_{k}" for k in range(num_levels))
    return [prefix + name for name in ("values", *levels)]


def from_components(components: Mapping[str, Any], prefix: str) -> Parts:
    """Returns the values and levels from named tensors."""
    own = [name for name in components if name.startswith(prefix)]
    num_levels = max(len(own) - 1, 0)
    wanted = names(num_levels, prefix)
    if sorted(own) != sorted(wanted):
        raise ValueError(
            f"`components` must have {prefix}values, {prefix}lod_0, "
            f"{prefix}lod_1 and so on, got {', '.join(sorted(own)) or 'none'}."
        )
    values, *levels = (components[name] for name in wanted)
    return validated(as_values(values), as_levels("lod", levels))


def serialize(values: tf.Tensor, levels: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns a string scalar."""
    parts = [tf.io.serialize_tensor(part) for part in (values, *levels)]
    return tf.io.serialize_tensor(tf.stack(parts))


def parse(serialized: TensorLike, dtype: tf.DType, num_levels: int) -> Parts:
    """Returns the values and levels from the result of `serialize`."""
    check_count("num_levels", num_levels, 0)
    parts = tf.io.parse_tensor(serialized, tf.string)
    found = tf.shape(parts)
    wanted = tf.constant([num_levels + 1])
    check = assert_true(
        tf.reduce_all(tf.equal(tf.size(found), 1))
        & tf.reduce_all(tf.equal(found[:1], wanted)),
        [
            f"`serialized` must have {num_levels + 1} parts, the values and "
            f"{num_levels} levels, got shape",
            found,
        ],
    )
    parts = tf.ensure_shape(after(check, parts), [num_levels + 1])
    values = tf.io.parse_tensor(parts[0], dtype)
    levels = [
        tf.io.parse_tensor(part, tf.int64) for part in tf.unstack(parts[1:])
    ]
    return validated(values, levels)
