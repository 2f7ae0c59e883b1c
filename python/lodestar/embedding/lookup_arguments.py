"""Checks of what an embedding variable and its look-ups are given."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lodestar.embedding import ids as ids_lib
from lodestar.ops import embedding_ops

ROW_DTYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16)


def row_dtype(dtype: Any) -> tf.DType:
    """Returns `dtype`, one that rows may have."""
    dtype = tf.as_dtype(dtype)
    if dtype not in ROW_DTYPES:
        wanted = ", ".join(known.name for known in ROW_DTYPES)
        raise ValueError(
            f"`dtype`={dtype.name} is not one of {wanted}, the dtypes that a "
            "table's rows may have."
        )
    return dtype


def missing_rows(
    missing: Any, dim: int, dtype: tf.DType
) -> tuple[str, np.ndarray]:
    """Returns the op's name for `missing`, and its vector or `[0]`."""
    if isinstance(missing, str):
        if missing not in ("zeros", "initial"):
            raise ValueError(
                f"`missing`={missing!r} is not 'zeros', 'initial', SharedRows "
                f"or a vector of {dim} numbers."
            )
        return missing, np.zeros([0], dtype.as_numpy_dtype)
    vector = np.asarray(missing, dtype.as_numpy_dtype)
    if vector.shape != (dim,):
        raise ValueError(
            f"`missing` has shape {vector.shape}, wanted ({dim},), or "
            "'zeros' or 'initial'."
        )
    return "vector", vector


def check_lookup(
    ids: ids_lib.IdTensor,
    training: Any,
    weights: Any,
    combiner: str | None,
    padding_id: int | None,
    default_id: int | None,
) -> None:
    """Raises ValueError for arguments that do not go together."""
    check_training(training)
    check_id("padding_id", padding_id)
    check_id("default_id", default_id)
    check_combiner(combiner)
    if combiner is None:
        if isinstance(ids, tf.SparseTensor):
            raise ValueError(
                "`ids` is sparse, which needs a combiner: one of "
                f"{embedding_ops.COMBINERS}."
            )
        if default_id is not None:
            raise ValueError(
                f"`default_id`={default_id} needs a combiner: it is what an "
                "empty bag reads."
            )
    if weights is not None and combiner not in embedding_ops.WEIGHTED_COMBINERS:
        raise ValueError(
            f"`weights` are given with combiner={combiner!r}; they need one of "
            f"{embedding_ops.WEIGHTED_COMBINERS}."
        )


def check_training(training: Any) -> None:
    """Raises ValueError unless `training` is a Python bool or None."""
    if training is None or isinstance(training, (bool, np.bool_)):
        return
    if isinstance(training, int) and training in (0, 1):
        return
    raise ValueError(
        f"`training`={training!r} is not a Python bool or None: whether a "
        "look-up adds rows is part of the graph, not of its input."
    )


def check_id(name: str, value: Any) -> None:
    """Raises ValueError unless `value` is an int64 or None."""
    if value is None:
        return
    if isinstance(value, (int, np.integer)) and -(2**63) <= value < 2**63:
        return
    raise ValueError(f"`{name}`={value!r} is not an integer of 64 bits.")


def check_integer(name: str, value: Any) -> int:
    """Returns `value` as an int; ValueError unless it is an int64."""
    if isinstance(value, bool) or value is None:
        raise ValueError(f"`{name}`={value!r} is not an integer of 64 bits.")
    check_id(name, value)
    return int(value)


def check_combiner(combiner: str | None) -> None:
    """Raises ValueError unless `combiner` is None or known."""
    if combiner is not None and combiner not in embedding_ops.COMBINERS:
        raise ValueError(
            f"`combiner`={combiner!r} is not None or one of "
            f"{embedding_ops.COMBINERS}."
        )


def get_optimizer(name: str, value: Any) -> keras.optimizers.Optimizer:
    """Returns `value`, or the optimizer of that name or config.

    Raises:
        ValueError: It is none of these.
    """
    try:
        return keras.optimizers.get(value)
    except ValueError as error:
        raise ValueError(
            f"`{name}`={value!r} is not a Keras optimizer, nor the name or "
            f"config of one, such as 'adam': {error}"
        ) from error
