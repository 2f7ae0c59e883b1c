"""Checks of what an embedding variable and its lookups are given."""

import os
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lodestar._checks import check_integer, check_size
from lodestar._typing import AnyTensor
from lodestar.embedding.rows import EmbeddingRows
from lodestar.ops import embedding_ops

_NUM_SHARDS = "LODESTAR_NUM_SHARDS"
_MAX_SHARDS = 4096
ROW_DTYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16)


def row_dtype(dtype: Any) -> tf.DType:
    """Returns `dtype`, one that rows may have."""
    name = dtype
    try:
        found = tf.as_dtype(dtype)
        name = found.name
    except TypeError:
        found = None
    if found not in ROW_DTYPES:
        wanted = ", ".join(known.name for known in ROW_DTYPES)
        raise ValueError(
            f"`dtype`={name} is not one of {wanted}, the dtypes that a "
            "table's rows may have."
        )
    return found


def missing_rows(
    default_row: Any, output_dim: int, dtype: tf.DType
) -> tuple[str, np.ndarray]:
    """Returns the op's name for `default_row`, and its vector or `[0]`."""
    if isinstance(default_row, str):
        if default_row not in ("zeros", "initial"):
            raise ValueError(
                f"`default_row`={default_row!r} is not 'zeros', 'initial', "
                f"SharedRows or a vector of {output_dim} numbers."
            )
        return default_row, np.zeros([0], dtype.as_numpy_dtype)
    try:
        # What the dtype cannot hold is refused below.
        with np.errstate(over="ignore"):
            vector = np.asarray(default_row, dtype.as_numpy_dtype)
        overflows = np.isinf(vector) & np.isfinite(default_row)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`default_row`={default_row!r} is not 'zeros', 'initial', "
            f"SharedRows(n) or a vector of {output_dim} numbers."
        ) from error
    if overflows.any():
        raise ValueError(
            f"`default_row` has numbers that are infinite as {dtype.name}, the "
            f"dtype of the rows: {default_row!r}."
        )
    if vector.shape != (output_dim,):
        raise ValueError(
            f"`default_row` has shape {vector.shape}, wanted ({output_dim},), "
            "or 'zeros' or 'initial'."
        )
    return "vector", vector


def check_lookup(
    ids: AnyTensor,
    training: Any,
    weights: Any,
    combiner: str | None,
    padding_id: int | None,
    default_id: int | None,
) -> None:
    """Raises ValueError for arguments that do not go together."""
    check_training(training)
    check_bags(combiner, padding_id, default_id)
    check_bag_axis("ids", ids, combiner)
    if combiner is None and isinstance(ids, tf.SparseTensor):
        raise ValueError(
            "`ids` is sparse, which needs a combiner: one of "
            f"{embedding_ops.COMBINERS}."
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
        "lookup adds rows is part of the graph, not of its input."
    )


def check_bags(
    combiner: str | None, padding_id: int | None, default_id: int | None
) -> None:
    """Raises ValueError unless bags can be combined so; ids are int64 or None."""
    for name, value in (("padding_id", padding_id), ("default_id", default_id)):
        if value is not None:
            check_integer(name, value)
    if combiner is not None and combiner not in embedding_ops.COMBINERS:
        raise ValueError(
            f"`combiner`={combiner!r} is not None or one of "
            f"{embedding_ops.COMBINERS}."
        )
    if default_id is not None and combiner is None:
        raise ValueError(
            f"`default_id`={default_id} needs a combiner: it is what an empty "
            "bag reads."
        )


def refuse_sizes(name: str, argument: str, *given: Any) -> None:
    """Raises of `given`, positional arguments as Keras's Embedding takes them.

    Raises:
        TypeError: There are several.
    """
    if len(given) == 1:
        return
    sizes = ", ".join(repr(value) for value in given)
    dim = repr(given[1]) if len(given) == 2 else "D"
    raise TypeError(
        f"{name.rpartition('.')[2]}({sizes}) has {len(given)} positional "
        f"arguments, and there is one, `{argument}`, the numbers of a row. Rows "
        "appear as ids are seen, so no number of ids is given: write "
        f"lodestar.{name}({argument}={dim})."
    )


def shard_count(num_shards: Any) -> int:
    """Returns the number of a table's shards; 0: the op's choice.

    Raises:
        ValueError: `num_shards`, or where it is None LODESTAR_NUM_SHARDS in the
            environment, is not as wanted.
    """
    if num_shards is not None:
        return check_size("num_shards", num_shards)
    text = os.environ.get(_NUM_SHARDS)
    if text is None:
        return 0
    digits = text.isascii() and text.isdigit() and len(text) < 10
    if not (digits and 0 < int(text) <= _MAX_SHARDS):
        raise ValueError(
            f"{_NUM_SHARDS}={text!r} in the environment is not a positive "
            f"integer of at most {_MAX_SHARDS}."
        )
    return int(text)


def check_bag_axis(name: str, ids: Any, combiner: str | None) -> None:
    """Raises ValueError for ids `[B]`, symbolic or not, and a combiner."""
    if combiner is None or tf.TensorShape(ids.shape).rank != 1:
        return
    raise ValueError(
        f"`{name}` has shape {tuple(ids.shape)}, and combiner={combiner!r} "
        "pools the last axis, which here is the batch: all examples would "
        "share one row. Give each example its own bag, [B, L] or [B, 1], as "
        f"by tf.expand_dims({name}, -1) or keras.Input((1,), dtype='int64'); "
        "or say combiner=None, which gives the row of each id."
    )


def check_import(rows: Any, mode: str) -> None:
    """Raises ValueError unless a table may be asked to import `rows`."""
    if mode not in ("replace", "merge"):
        raise ValueError(f"`mode`={mode!r} is not 'replace' or 'merge'.")
    if not isinstance(rows, EmbeddingRows):
        raise ValueError(
            f"`rows` is a {type(rows).__name__}, wanted a "
            "lodestar.EmbeddingRows."
        )
    slots = rows.optimizer_slots
    if slots and not (rows.optimizer and set(slots) == set(rows.slot_inits)):
        raise ValueError(
            f"`rows` has the optimizer slots {sorted(slots)}, but its "
            f"`optimizer` is {rows.optimizer!r} and its `slot_inits` name "
            f"{sorted(rows.slot_inits)}."
        )


def get_optimizer(name: str, value: Any) -> keras.optimizers.Optimizer:
    """Returns `value`, or the optimizer of that name or config.

    Raises:
        ValueError: It is none of these.
    """
    text = (
        f"`{name}`={value!r} is not a Keras optimizer, nor the name or config "
        "of one, such as 'adam'"
    )
    if value is None:  # for which Keras returns None
        raise ValueError(f"{text}.")
    try:
        return keras.optimizers.get(value)
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from error
