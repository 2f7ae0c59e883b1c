"""Conversion between nested inputs, and rows with the splits of their levels."""

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import keras
import tensorflow as tf

from lodestar import _private
from lodestar._checks import after, assert_true
from lodestar.ops import lod_ops, symbolic_build
from lodestar.ragged import LoDTensor
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
    return lod_ops.lod_to_absolute(splits)[level], level


def move_units(
    nested: Sequence[tuple[tf.Tensor, tuple[tf.Tensor, ...]]],
    level: int,
    move: Callable[[list[tf.Tensor]], tuple[tf.Tensor, tf.Tensor]],
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Moves units of the level below `level`, or rows if that is the last.

    Units move with their rows and levels.

    Args:
        nested: Rows and splits of one or more inputs with as many levels.
        level: A level, or -1 for the last.
        move: Called with the rows of each input, or with the numbers of its
            units from the first input to the last. Returns the rows or numbers
            of the result, and the splits of `level`.

    Returns:
        The rows and splits of the result; the levels above are those of the
        first input.

    Raises:
        ValueError: There is no such level.
    """
    lods = [splits for _, splits in nested]
    level = check_level("level", level, len(lods[0]))
    if level + 1 == len(lods[0]):
        rows, moved = move([rows for rows, _ in nested])
        return rows, (*lods[0][:level], moved)
    units, numbers, count = [], [], tf.constant(0, tf.int64)
    for rows, splits in nested:
        # The first check is of all splits.
        checks = [
            lod_ops.lod_to_absolute(splits),
            tf.debugging.assert_equal(
                splits[-1][-1],
                tf.shape(rows, tf.int64)[0],
                "the last level must end at the number of rows",
            ),
        ]
        rows = after(checks, rows)
        below = tf.RaggedTensor.from_nested_row_splits(
            rows, splits[level + 1 :], validate=False
        )
        units.append(below)
        numbers.append(tf.range(count, count + below.nrows()))
        count += below.nrows()
    order, moved = move(numbers)
    ordered = tf.gather(tf.concat(units, 0), order)
    return ordered.flat_values, (
        *lods[0][:level],
        moved,
        *ordered.nested_row_splits,
    )


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
    differ = tf.not_equal(after(number, splits), wanted)
    return assert_true(
        tf.logical_not(tf.reduce_any(differ)),
        [
            f"`{name}` and `{of}` must have sequences of the same lengths; the first "
            "that differs is sequence",
            tf.argmax(differ) - 1,
        ],
    )


def check_same_number(
    name: str, splits: tf.Tensor, of: str, wanted: tf.Tensor
) -> Any:
    """Returns a check, for `after`, of the number of sequences."""
    return assert_true(
        tf.equal(tf.size(splits), tf.size(wanted)),
        [
            f"`{name}` and `{of}` must have equally many sequences, got",
            tf.size(splits) - 1,
            "and",
            tf.size(wanted) - 1,
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
