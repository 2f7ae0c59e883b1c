"""Checks of what an embedding variable and its look-ups are given."""

from typing import Any

import numpy as np
import tensorflow as tf

from lodestar.embedding import ids as ids_lib
from lodestar.ops import embedding_ops


def missing_rows(missing: Any, dim: int) -> tuple[str, np.ndarray]:
    """Returns the op's name for `missing`, and its vector or `[0]`."""
    if isinstance(missing, str):
        if missing not in ("zeros", "initial"):
            raise ValueError(
                f"`missing`={missing!r} is not 'zeros', 'initial', SharedRows "
                f"or a vector of {dim} numbers."
            )
        return missing, np.zeros([0], np.float32)
    vector = np.asarray(missing, np.float32)
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
    default_id: int | None,
) -> None:
    """Raises ValueError for arguments that do not go together."""
    if training is not None and not isinstance(training, (bool, np.bool_, int)):
        raise ValueError(
            f"`training`={training!r} is not a Python bool or None."
        )
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


def check_combiner(combiner: str | None) -> None:
    """Raises ValueError unless `combiner` is None or known."""
    if combiner is not None and combiner not in embedding_ops.COMBINERS:
        raise ValueError(
            f"`combiner`={combiner!r} is not None or one of "
            f"{embedding_ops.COMBINERS}."
        )
