"""Placeholders that Keras passes to `call` to build or export a model.

Keras builds a subclassed model from recorded shapes. It runs `call` in a graph
that never runs, with a dense float32 placeholder for each input. An exception there
leaves later layers unbuilt, and `load_model` skips the weights of unbuilt layers.
Code that takes ragged tensors, strings or integers must therefore accept these
placeholders.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lodestar import _private
from lodestar._checks import after, assert_true
from lodestar.ops.flat_values import map_flat


def traced_function() -> str:
    """Returns the name of the function being traced."""
    return getattr(tf.compat.v1.get_default_graph(), "name", "graph")


def is_default_signature() -> bool:
    """Whether Keras traces the default signature of a layer that is being saved.

    The inputs of a subclassed model are then floats, even if the caller passes
    another signature.
    """
    return traced_function() == "serving_default"


def refuse_when_run(x: Any, dtype: tf.DType, message: str) -> Any:
    """Returns `x` as `dtype`, in a graph that fails with `message` when it runs.

    Used for floats in place of keys or ids. Keras traces a subclassed model with float
    inputs in every export, and an exception there would leave tables out, so this only
    warns while tracing.
    """
    if not _private.is_symbolic_build():
        warnings.warn(
            f"The function '{traced_function()}', which is being traced, fails "
            f"when it runs: {message} To export a subclassed model, pass its "
            "`input_signature`, or use lodestar.export.save(model, path, "
            "inputs=...).",
            stacklevel=2,
        )
    check = assert_true(tf.constant(False), [message])
    return map_flat(lambda flat: after(check, tf.zeros_like(flat, dtype)), x)


def as_ragged(x: Any, dtypes: Sequence[tf.DType] | None = None) -> Any:
    """Returns a placeholder as the RaggedTensor that it represents.

    Casts it to the first of `dtypes` unless it has one of them. Returns other values,
    tensors of rank 0 or 1, and everything outside of a build unchanged.
    """
    if not isinstance(x, tf.Tensor) or not _private.is_symbolic_build():
        return x
    if x.shape.rank is None or x.shape.rank < 2:
        return x
    if dtypes is not None and x.dtype not in dtypes:
        x = tf.zeros_like(x, dtypes[0])
    return tf.RaggedTensor.from_tensor(x, ragged_rank=ragged_rank(x.shape))


def as_integers(x: Any) -> Any:
    """Returns a dense float placeholder as int64, anything else unchanged."""
    if not isinstance(x, tf.Tensor) or not _private.is_symbolic_build():
        return x
    return tf.cast(x, tf.int64) if x.dtype.is_floating else x


def ragged_rank(shape: Any) -> int:
    """Returns the number of ragged dimensions of a symbolic ragged input.

    Keras does not record which dimensions are ragged, so this counts those from the
    batch to the last one of unknown size.
    """
    unknown = [i for i, d in enumerate(shape) if i > 0 and d is None]
    return unknown[-1] if unknown else 1
