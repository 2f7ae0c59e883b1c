"""Conversion between nested inputs, and rows with the splits of their levels."""

import numbers
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import keras
import tensorflow as tf

from lodestar import _private
from lodestar._checks import after, assert_none
from lodestar.ops import symbolic_build
from lodestar.ragged import LoDTensor, levels
from lodestar.ragged.arguments import nested

# A RaggedTensor or LoDTensor, also for results of the input's kind.
Nested = TypeVar("Nested", bound=tf.RaggedTensor | LoDTensor)


def check_level(name: str, level: int, num_levels: int) -> int:
    """Returns the index of a level, where -1 is the last; ValueError if invalid."""
    if not isinstance(level, numbers.Integral) or not -1 <= level < num_levels:
        raise ValueError(
            f"`{name}` must be an integer in [-1, {num_levels - 1}], got "
            f"{level!r}."
        )
    return num_levels - 1 if level == -1 else int(level)


def lengths(splits: tf.Tensor) -> tf.Tensor:
    """Returns the length of each sequence."""
    return splits[1:] - splits[:-1]


def rows_of_units(
    splits: Sequence[tf.Tensor], level: int
) -> tuple[tf.Tensor, int]:
    """Returns the offsets of the rows of each unit of a level, and its index.

    Raises:
        ValueError: There is no such level.
    """
    level = check_level("level", level, len(splits))
    if level + 1 == len(splits):
        return splits[level], level
    return levels.absolute(splits)[level], level


def take_units(
    rows: tf.Tensor,
    splits: Sequence[tf.Tensor],
    order: tf.Tensor,
    inverse: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Returns the rows and splits of units in another order.

    Args:
        rows: Rows of the units.
        splits: Splits of the units and of the levels below; without any, units are
            rows.
        order: The number of each unit of the result; none may repeat.
        inverse: If all units are taken, the place of each unit in `order`.
    """
    if splits:
        units = tf.RaggedTensor.from_nested_row_splits(
            rows, splits, validate=False
        )
        taken = tf.gather(units, order)
        return taken.flat_values, taken.nested_row_splits
    if inverse is None:
        return _gather_once(rows, order), ()
    return permute(rows, order, inverse), ()


@tf.custom_gradient
def _gather_once(x: tf.Tensor, order: tf.Tensor) -> Any:
    """Gathers rows at most once each; the gradient is dense."""
    count = tf.shape(x, tf.int64)[0]

    def gradient(upstream: tf.Tensor) -> Any:
        return tf.math.unsorted_segment_sum(upstream, order, count), None

    return tf.gather(x, order), gradient


@tf.custom_gradient
def permute(x: tf.Tensor, order: tf.Tensor, inverse: tf.Tensor) -> Any:
    """Gathers each row once, so that the gradient is a gather, not a sum."""

    def gradient(upstream: tf.Tensor) -> Any:
        # Not `permute`: SavedModels do not contain gradients of gradients, and
        # TensorFlow warns of that when it loads them.
        return tf.gather(upstream, inverse), None, None

    return tf.gather(x, order), gradient


def how_to_get_ragged(x: Any) -> str:
    """Returns advice for a dense tensor or KerasTensor in place of a ragged one."""
    maker = _private.maker_from_ragged(x)
    if maker is None:
        return (
            "Declare an input of a Keras model with keras.Input(..., "
            "ragged=True), pass such inputs to clone_model as `input_tensors`, "
            "and export the model with lodestar.export.save."
        )
    kind = type(maker)
    made = f"'{maker.name}' ({kind.__name__}) made it from a ragged tensor."
    if kind.__module__.startswith("lodestar."):
        return (
            f"{made} Pass ragged rows, such as those of a DynamicEmbedding "
            "without `combiner`, or of lodestar.sequence.unpad."
        )
    if kind.__module__.partition(".")[0] != "keras" or isinstance(
        maker, keras.Model
    ):
        return (
            f"{made} Keras does not know that its result is ragged. Define its method "
            "`compute_output_spec` to return keras.KerasTensor(shape, dtype, "
            "ragged=True), or call its layers instead of a model."
        )
    return (
        f"{made} Layers and operations of Keras return dense tensors. Apply them to "
        "each step with lodestar.layers.PerStep, or call them after pooling or "
        "between lodestar.sequence.pad and unpad."
    )


def flatten(
    name: str, x: Any, dtypes: Sequence[tf.DType] | None = None
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Returns the rows of `x` and its int64 splits, outermost level first.

    Raises:
        TypeError: `x` has another type, or a dtype that is not in `dtypes`.
        ValueError: `x` has no level.
    """
    x = symbolic_build.as_ragged(x, dtypes)
    if isinstance(x, LoDTensor):
        rows, splits = x.values, x.lod
    elif isinstance(x, tf.RaggedTensor):
        rows, splits = x.flat_values, x.nested_row_splits
    else:
        found = f"an object of type {type(x).__name__}"
        if isinstance(x, tf.Tensor):
            found = f"a dense tensor of shape {x.shape}"
        raise TypeError(
            f"`{name}` must be a RaggedTensor or LoDTensor, got {found}. "
            f"{how_to_get_ragged(x)}"
        )
    return nested(name, rows, splits, dtypes)


def aligned(
    xs: Mapping[str, Any], dtypes: Sequence[tf.DType] | None = None
) -> tuple[list[tf.Tensor], tuple[tf.Tensor, ...]]:
    """Returns the rows of inputs by name, and the splits that all of them have.

    Raises:
        TypeError: An input has another type, or a dtype that is not in `dtypes`.
        ValueError: Numbers of levels differ.
        tf.errors.InvalidArgumentError: Lengths of sequences differ.
    """
    (first, *others), lods = zip(
        *(flatten(name, x, dtypes) for name, x in xs.items()), strict=True
    )
    of, *names = xs
    rows = [first]
    for name, x, lod in zip(names, others, lods[1:], strict=True):
        if len(lod) != len(lods[0]):
            raise ValueError(
                f"`{name}` must have {len(lods[0])} levels, like `{of}`, got "
                f"{len(lod)}."
            )
        checks = [
            check_same_lengths(name, splits, of, wanted)
            for splits, wanted in zip(lod, lods[0], strict=True)
            if splits is not wanted
        ]
        rows.append(after(checks, x))
    return rows, lods[0]


def check_same_lengths(
    name: str, splits: tf.Tensor, of: str, wanted: tf.Tensor
) -> Any:
    """Returns a check, for `after`, that the sequences of two levels are as long."""
    number = check_same_number(name, splits, of, wanted)
    return assert_none(
        tf.not_equal(after(number, splits), wanted),
        lambda i: [
            f"`{name}` and `{of}` must have sequences of the same lengths; the first "
            "that differs is sequence ",
            *(i - 1, "."),
        ],
    )


def check_same_number(
    name: str, splits: tf.Tensor, of: str, wanted: tf.Tensor
) -> Any:
    """Returns a check, for `after`, of the number of sequences."""
    return assert_none(
        tf.not_equal(tf.size(splits), tf.size(wanted)),
        lambda _: [
            f"`{name}` and `{of}` must have equally many sequences, got ",
            *(tf.size(splits) - 1, " and ", tf.size(wanted) - 1, "."),
        ],
    )


def check_one_a_row(name: str, rows: tf.Tensor, what: str) -> None:
    """Raises ValueError if rows are known not to be `[N]` or `[N, 1]`."""
    if rows.shape.rank == 1 or rows.shape[1:].is_compatible_with([1]):
        return
    raise ValueError(
        f"`{name}` must have rows of one {what}, [N] or [N, 1], got "
        f"{rows.shape}."
    )


def one_a_row(name: str, rows: tf.Tensor, what: str) -> tf.Tensor:
    """Returns rows `[N]` or `[N, 1]` as `[N]`, checked also at run time."""
    check_one_a_row(name, rows, what)
    if rows.shape.rank == 2:
        return tf.squeeze(rows, 1)
    return tf.reshape(rows, [-1])


def pack_like(x: Any, rows: tf.Tensor, splits: Sequence[tf.Tensor]) -> Any:
    """Nests `rows` in the kind of `x`; without splits, returns the rows.

    Requires: valid splits. A RaggedTensor keeps the dtype of x's splits.

    Raises:
        tf.errors.InvalidArgumentError: Too many rows for int32 splits.
    """
    if not splits:
        return rows
    if isinstance(x, LoDTensor):
        return LoDTensor(rows, tuple(splits))
    dtype = symbolic_build.as_ragged(x).row_splits.dtype
    if dtype == tf.int32:
        check = tf.debugging.assert_less_equal(
            splits[-1][-1:],
            tf.constant(tf.int32.max, tf.int64),
            "the result has more than 2^31 - 1 rows, the maximum for int32 "
            "`row_splits`; use a RaggedTensor with int64 `row_splits`",
        )
        splits = [*splits[:-1], after(check, splits[-1])]
    return tf.RaggedTensor.from_nested_row_splits(
        rows,
        [tf.cast(level, dtype) for level in splits],
        validate=False,
    )
