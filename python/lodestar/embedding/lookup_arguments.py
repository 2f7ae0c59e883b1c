"""Checks the arguments of embedding variables and their lookups."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import keras
import numpy as np
import tensorflow as tf

from lodestar._checks import (
    check_choice,
    check_count,
    check_flag,
    check_integer,
    did_you_mean,
)
from lodestar._typing import AnyTensor, Combiner
from lodestar.embedding.policies import SharedRows, serialize
from lodestar.embedding.rows import EmbeddingRows
from lodestar.ops import embedding_ops
from lodestar.ops.compile_line import NAMES
from lodestar.ops.embedding_collection_ops import FeatureAttrs

_NUM_SHARDS = "LODESTAR_NUM_SHARDS"
# As in tf_ops/core: kMaxDim of rows/row_type.h and the shards of embedding_store.cc.
_MAX_DIM = 65536
_MAX_SHARDS = 4096
ROW_DTYPES = (tf.float32, tf.float16, tf.bfloat16)
DefaultRow: TypeAlias = (
    Literal["zeros", "initial"] | Sequence[float] | np.ndarray | SharedRows
)
Rounding: TypeAlias = Literal["nearest", "stochastic"]
# How rows are loaded into a table.
LoadMode: TypeAlias = Literal["replace", "merge"]


def check_dim(dim: Any, name: str = "output_dim") -> int:
    """Returns an embedding dimension; ValueError unless rows can have it."""
    return check_count(name, dim, most=_MAX_DIM)


def row_dtype(dtype: Any) -> tf.DType:
    """Returns `dtype` as a tf.DType that rows can have."""
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
            "table's rows can have."
        )
    return found


def rounding(value: Rounding, dtype: tf.DType) -> Rounding:
    """Returns the `rounding` of rows of `dtype`."""
    check_choice("rounding", value, get_args(Rounding))
    if value == "stochastic" and dtype.size != 2:
        raise ValueError(
            f"`rounding`='stochastic' is for float16 and bfloat16 rows, but the "
            f"rows are {dtype.name}. Set `dtype`, or leave `rounding` out."
        )
    return value


def missing_rows(
    default_row: Any, output_dim: int, dtype: tf.DType
) -> tuple[str, np.ndarray, SharedRows | None]:
    """Returns the op's name for `default_row`, its vector or `[0]`, SharedRows."""
    if isinstance(default_row, Mapping):
        default_row = keras.saving.deserialize_keras_object(default_row)
    no_vector = np.zeros([0], dtype.as_numpy_dtype)
    if isinstance(default_row, SharedRows):
        return "shared", no_vector, default_row
    if isinstance(default_row, str) and default_row in ("zeros", "initial"):
        return default_row, no_vector, None
    try:
        # Overflow is refused below.
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
            f"`default_row` must have shape ({output_dim},), or be 'zeros' or "
            f"'initial', got shape {vector.shape}."
        )
    return "vector", vector, None


def default_row_config(
    missing: str, vector: np.ndarray, shared: SharedRows | None
) -> Any:
    """Returns the argument that `missing_rows` read, for a config."""
    if missing == "shared":
        return serialize(shared)
    return vector.astype(np.float64).tolist() if len(vector) else missing


def check_lookup(
    ids: AnyTensor,
    training: Any,
    weights: Any,
    combiner: Combiner | None,
    padding_id: int | None,
    default_id: int | None,
) -> None:
    """Raises ValueError for arguments that exclude each other."""
    check_training(training)
    for name, value in (("padding_id", padding_id), ("default_id", default_id)):
        if value is not None:
            check_integer(name, value)
    check_bags(combiner, default_id)
    check_bag_axis("ids", ids, combiner)
    if combiner is None and isinstance(ids, tf.SparseTensor):
        raise ValueError(
            f"Sparse `ids` need a `combiner`, one of {embedding_ops.COMBINERS}."
        )
    if weights is not None and combiner not in embedding_ops.WEIGHTED_COMBINERS:
        raise ValueError(
            f"`weights` need a `combiner` of {embedding_ops.WEIGHTED_COMBINERS},"
            f" got {combiner!r}."
        )


def check_training(training: Any) -> None:
    """Raises ValueError unless `training` is a Python bool or None."""
    if training is None or isinstance(training, (bool, np.bool_)):
        return
    if isinstance(training, int) and training in (0, 1):
        return
    raise ValueError(
        f"`training`={training!r} is not a Python bool or None. Whether a "
        "lookup adds rows is part of the graph, not an input."
    )


def check_admit(admit: Any, grow: bool) -> bool | None:
    """Returns `admit`; ValueError if it is not a bool or contradicts `grow`."""
    if admit is None:
        return None
    if check_flag("admit", admit) and not grow:
        raise ValueError(
            "`admit`=True gives unseen ids rows, which `grow`=False forbids; "
            "leave one of them out."
        )
    return bool(admit)


def check_bags(combiner: Combiner | None, default_id: int | str | None) -> None:
    """Raises ValueError unless the options of bags are valid."""
    if combiner is not None and combiner not in embedding_ops.COMBINERS:
        raise ValueError(
            f"`combiner`={combiner!r} is not None or one of "
            f"{embedding_ops.COMBINERS}."
            f"{did_you_mean(combiner, embedding_ops.COMBINERS)}"
        )
    if default_id is not None and combiner is None:
        raise ValueError(
            f"`default_id`={default_id!r}, which replaces empty bags, needs a "
            "`combiner`."
        )


def check_padding_counts(
    value: Any,
    combiner: Combiner | None,
    padding_id: int | str | None,
    default_id: int | str | None,
) -> bool:
    """Returns `padding_counts`, or raises ValueError if it does not apply."""
    counts = check_flag("padding_counts", value)
    if counts and (
        combiner != "mean" or padding_id is None or default_id is not None
    ):
        raise ValueError(
            "`padding_counts` needs combiner='mean', a `padding_id` and no "
            f"`default_id`, got combiner={combiner!r}, "
            f"padding_id={padding_id!r} and default_id={default_id!r}."
        )
    return counts


def feature_attrs(
    combiner: Combiner | None,
    padding_id: int | None,
    default_id: int | None,
    padding_counts: Any,
) -> FeatureAttrs:
    """Returns the attributes of a lookup, after checking `padding_counts`."""
    counts = check_padding_counts(
        padding_counts, combiner, padding_id, default_id
    )
    return FeatureAttrs(
        combiner="sum" if counts else combiner,
        padding_id=padding_id,
        default_id=default_id,
    )


def refuse_sizes(name: str, *given: Any) -> None:
    """Raises TypeError for the positional arguments of Keras's Embedding."""
    sizes = ", ".join(repr(value) for value in given)
    dim = repr(given[1]) if len(given) == 2 else "D"
    raise TypeError(
        f"{name.rpartition('.')[2]}({sizes}) takes one positional argument, "
        f"`output_dim` (the embedding dimension), but {len(given)} were given. "
        "Rows are added as ids are seen, so there is no number of ids: write "
        f"lodestar.{name}(output_dim={dim})."
    )


def shard_count(num_shards: Any) -> int:
    """Returns the number of shards, or 0 for the default of the op.

    If `num_shards` is None, it is read from LODESTAR_NUM_SHARDS.
    """
    if num_shards is not None:
        return check_count("num_shards", num_shards, most=_MAX_SHARDS)
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


def check_bag_axis(name: str, ids: Any, combiner: Combiner | None) -> None:
    """Raises ValueError for ids of shape `[B]` with a combiner."""
    if combiner is None or tf.TensorShape(ids.shape).rank != 1:
        return
    raise ValueError(
        f"`{name}` has shape {tuple(ids.shape)}, and combiner={combiner!r} "
        "pools the last axis, which here is the batch: all examples would "
        "share one row. Give each example its own bag, [B, L] or [B, 1], with "
        f"tf.expand_dims({name}, -1) or keras.Input((1,), dtype='int64'), or "
        "use combiner=None to get one row per id."
    )


def check_import(rows: Any, mode: LoadMode) -> None:
    """Raises ValueError unless `rows` and `mode` are valid for `load_rows`."""
    if mode not in get_args(LoadMode):
        raise ValueError(f"`mode`={mode!r} is not 'replace' or 'merge'.")
    if not isinstance(rows, EmbeddingRows):
        raise ValueError(
            "`rows` must be a lodestar.EmbeddingRows, got a "
            f"{type(rows).__name__}."
        )
    slots = rows.optimizer_slots
    if slots and not (rows.optimizer and set(slots) == set(rows.slot_inits)):
        raise ValueError(
            f"`rows` has the optimizer slots {sorted(slots)}, but its "
            f"`optimizer` is {rows.optimizer!r} and its `slot_inits` name "
            f"{sorted(rows.slot_inits)}."
        )


def get_optimizer(name: str, value: Any) -> keras.optimizers.Optimizer:
    """Returns `value`, or the optimizer with that name or config."""
    text = (
        f"`{name}`={value!r} is not a Keras optimizer, nor the name or config "
        "of one, such as 'adam' or 'RowWiseAdagrad'"
    )
    if value is None:  # Keras returns None for None
        raise ValueError(f"{text}.")
    if isinstance(value, str) and value.lower() == "rowwiseadagrad":
        value = "lodestar>RowWiseAdagrad"
    try:
        return keras.optimizers.get(value)
    except ValueError as error:
        near = did_you_mean(value, (*NAMES, "RowWiseAdagrad"))
        raise ValueError(
            f"{text}.{near}" if near else f"{text}: {error}"
        ) from error
