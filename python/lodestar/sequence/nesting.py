"""What every op takes: rows, and the splits of the levels over them."""

import numbers
from collections.abc import Sequence

import tensorflow as tf

from lodestar.ragged import LoDTensor
from lodestar.ragged.arguments import after, as_int64

FLOAT_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
INT_DTYPES = (tf.int32, tf.int64)
# Of ops that move rows and do not compute with them.
MOVED_DTYPES = (
    *FLOAT_DTYPES,
    *(tf.int8, tf.int16, tf.int32, tf.int64),
    *(tf.uint8, tf.uint16, tf.uint32, tf.uint64),
    tf.bool,
    tf.string,
)


def check_dtype(
    name: str, x: tf.Tensor, dtypes: Sequence[tf.DType]
) -> tf.Tensor:
    """Returns `x`; TypeError, calling it `name`, unless of one of `dtypes`."""
    if x.dtype not in dtypes:
        raise TypeError(
            f"`{name}` has dtype {x.dtype.name}, wanted one of "
            f"{', '.join(dtype.name for dtype in dtypes)}"
        )
    return x


def check_count(name: str, count, least: int = 1) -> None:
    """Raises ValueError, calling it `name`, unless an int64 from `least` on."""
    if (
        not isinstance(count, numbers.Integral)
        or not least <= count <= tf.int64.max
    ):
        raise ValueError(
            f"`{name}` is {count!r}, wanted an integer of {least} or more"
        )


def check_level(name: str, level: int, num_levels: int) -> int:
    """Returns which level is meant, from 0 on; -1 is the last.

    Raises:
        ValueError: there is no such level (calls it `name`).
    """
    if not isinstance(level, numbers.Integral) or not -1 <= level < num_levels:
        raise ValueError(
            f"`{name}` is {level!r}, wanted -1 to {num_levels - 1}"
        )
    return num_levels - 1 if level == -1 else int(level)


def as_maxlen(maxlen) -> tf.Tensor:
    """Returns a number of steps, a scalar tensor or a number, as int64."""
    if isinstance(maxlen, numbers.Number):
        check_count("maxlen", maxlen, 0)
        maxlen = int(maxlen)
    return as_int64("maxlen", maxlen, 0)


def flatten(
    name: str, x, dtypes: Sequence[tf.DType] | None = None
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Returns the rows of `x` and its int64 splits, outermost level first.

    Args:
        name: What messages call `x`.
        x: RaggedTensor or LoDTensor.
        dtypes: Those that its rows may have; None is any.

    Raises:
        TypeError: x is neither, or of another dtype.
        ValueError: x has no level.
    """
    if isinstance(x, LoDTensor):
        rows, splits = x.values, x.lod
    elif isinstance(x, tf.RaggedTensor):
        rows, splits = x.flat_values, x.nested_row_splits
    else:
        raise TypeError(
            f"`{name}` must be a RaggedTensor or LoDTensor, found {type(x)}"
        )
    if not splits:
        raise ValueError(f"`{name}` has no level, wanted one or more")
    if dtypes is not None:
        check_dtype(name, rows, dtypes)
    return rows, tuple(tf.cast(level, tf.int64) for level in splits)


def check_one_a_row(name: str, rows: tf.Tensor, what: str) -> None:
    """Raises ValueError if rows are known to be other than `[N]` or `[N, 1]`."""
    if rows.shape.rank == 1 or rows.shape[1:].is_compatible_with([1]):
        return
    raise ValueError(
        f"`{name}` must have rows of one {what}, [N] or [N, 1], found "
        f"{rows.shape}"
    )


def one_a_row(name: str, rows: tf.Tensor, what: str) -> tf.Tensor:
    """Returns rows `[N]` or `[N, 1]` as `[N]`, checked at run time, too."""
    check_one_a_row(name, rows, what)
    if rows.shape.rank == 2:
        return tf.squeeze(rows, 1)
    return tf.reshape(rows, [-1])


def pack_like(x, rows: tf.Tensor, splits: Sequence[tf.Tensor]):
    """Nests `rows` as `x` is: LoDTensor, RaggedTensor or, without splits, rows.

    The splits are taken to be right; a RaggedTensor keeps the dtype of x's.

    Raises:
        tf.errors.InvalidArgumentError: more rows than x's int32 splits can
            count.
    """
    if not splits:
        return rows
    if isinstance(x, LoDTensor):
        return LoDTensor(rows, tuple(splits))
    dtype = x.row_splits.dtype
    if dtype == tf.int32:
        check = tf.debugging.assert_less_equal(
            splits[-1][-1:],
            tf.constant(tf.int32.max, tf.int64),
            "the result has more than 2^31 - 1 rows, too many for its "
            "`row_splits` of int32; give a RaggedTensor with int64 ones",
        )
        splits = [*splits[:-1], after(check, splits[-1])]
    return tf.RaggedTensor.from_nested_row_splits(
        rows,
        [tf.cast(level, dtype) for level in splits],
        validate=False,
    )
