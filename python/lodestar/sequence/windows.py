"""Windows over sequences: n-grams of ids, and convolution."""

import numbers
from typing import Any

import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import FLOAT_DTYPES, INT_DTYPES, as_dtype_of, check_count
from lodestar.ops import sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested


@takes_keras_tensors
def enumerate(
    x: Nested,
    win_size: int,
    pad_value: int = 0,
    *,
    level: int = -1,
    name: str | None = None,
) -> Nested:
    """Returns the `win_size` ids from each id on, like Paddle's `sequence_enumerate`.

    A window does not reach into the next sequence and is padded with `pad_value`.

    >>> enumerate(tf.ragged.constant([[1, 2, 3], [4]]), 2).to_list()
    [[[1, 2], [2, 3], [3, 0]], [[4, 0]]]
    >>> sentences = tf.ragged.constant([[[1, 2], [3]], [[4]]])
    >>> enumerate(sentences, 2, level=0).to_list()
    [[[[1, 2], [2, 3]], [[3, 0]]], [[[4, 0]]]]

    Args:
        x: RaggedTensor or LoDTensor of int32 or int64, with rows `[N]` or
            `[N, 1]`.
        win_size: Number of ids per window, 1 or more. It may exceed the lengths.
        pad_value: An id of the dtype of x.
        level: The level whose sequences windows do not leave: 0 for the
            outermost; -1 is the last.
        name: Name of the op.

    Returns:
        Rows `[N, win_size]`, nested like x. No gradient.

    Raises:
        TypeError: x has another type or dtype, or `pad_value` another dtype.
        ValueError: x has no such level or other rows, `win_size` is below 1, or
            `pad_value` does not fit the dtype of x.
        tf.errors.InvalidArgumentError: Splits are invalid.
    """
    check_count("win_size", win_size)
    ids, splits = nesting.flatten("x", x, INT_DTYPES)
    nesting.check_one_a_row("x", ids, "id")
    with tf.name_scope(name or "sequence_enumerate"):
        row_splits, _ = nesting.rows_of_units(splits, level)
        windows = sequence_ops.sequence_context(
            nesting.one_a_row("x", ids, "id"),
            row_splits,
            as_dtype_of("pad_value", pad_value, ids.dtype, "`x`"),
            0,
            win_size,
        )
        return nesting.pack_like(x, windows, splits)


def rows_around(filter_size: int, start: int | None) -> tuple[int, int]:
    """Returns how many rows filters reach above and below a sequence."""
    start = _start(filter_size, start)
    return max(-start, 0), max(start + filter_size - 1, 0)


def _start(filter_size: int, start: int | None) -> int:
    check_count("filter_size", filter_size)
    if start is None:
        return -(filter_size // 2)
    if not isinstance(start, numbers.Integral) or abs(start) > 2**31:
        raise ValueError(
            f"`start` must be an integer in [-2^31, 2^31], got {start!r}."
        )
    return start


def _convolve(
    rows: tf.Tensor,
    splits: tf.Tensor,
    weight: tf.Tensor,
    start: int,
    filter_size: int,
) -> tf.Tensor:
    """Returns windows of the rows times `weight`, of its dtype."""
    windows = sequence_ops.sequence_context(
        rows, splits, tf.zeros([], rows.dtype), start, filter_size
    )
    # -1 fails if there are no rows.
    shape = tf.shape(windows, out_type=tf.int64)
    flat = tf.reshape(windows, tf.stack([shape[0], tf.reduce_prod(shape[1:])]))
    flat = tf.ensure_shape(flat, [None, weight.shape[0]])
    return tf.matmul(tf.cast(flat, weight.dtype), weight)


def _convolved_padding(
    padding: tf.Tensor,
    splits: tf.Tensor,
    weight: tf.Tensor,
    start: int,
    filter_size: int,
) -> tf.Tensor:
    """Returns the contribution of the rows around sequences to each row of the result.

    It depends only on the distance of a row from the ends of its sequence, so it is
    computed once per distance and gathered for each row.
    """
    above, below = rows_around(filter_size, start)

    def one(rows: tf.Tensor, count: Any, start: Any) -> tf.Tensor:
        return _convolve(
            rows, tf.constant([0, count], tf.int64), weight, start, filter_size
        )

    def picked(table: tf.Tensor, places: tf.Tensor, count: Any) -> tf.Tensor:
        # Rows further away get the zero at the end.
        table = tf.pad(table, [[0, 1], [0, 0]])
        return tf.gather(table, tf.minimum(places, count))

    rows = tf.range(splits[-1])
    begins, ends = (
        sequence_ops.sequence_expand_as(ends, splits)
        for ends in (splits[:-1], splits[1:])
    )
    # A filter i rows after the first sees the rows above from the i-th on.
    upper = one(padding[:above], above, 0)
    # A filter i rows before the last sees all but the last i rows below.
    lower = one(padding[above:], below, 1 - filter_size)[::-1]
    return picked(upper, rows - begins, above) + picked(
        lower, ends - 1 - rows, below
    )


@explained()
@takes_keras_tensors
def conv(
    x: Nested,
    weight: tf.Tensor,
    filter_size: int = 3,
    stride: int = 1,
    *,
    start: int | None = None,
    bias: tf.Tensor | None = None,
    padding: tf.Tensor | None = None,
    level: int = -1,
    name: str | None = None,
) -> Nested:
    """Convolves each sequence with one filter bank, like Paddle's `sequence_conv`.

    Row i of the result is the concatenation of rows `i + start` to
    `i + start + filter_size - 1` of the same sequence, times `weight`. Around a
    sequence there are zeros, or the rows of `padding`. Keeps
    `[N, filter_size * dim]` numbers for the gradient.

    >>> x = tf.RaggedTensor.from_row_lengths([[1.0], [2.0], [4.0]], [2, 1])
    >>> conv(x, [[1.0], [1.0], [1.0]]).to_list()
    [[[3.0], [3.0]], [[4.0]]]
    >>> conv(x, [[1.0], [1.0], [1.0]], padding=[[10.0], [20.0]]).to_list()
    [[[13.0], [23.0]], [[34.0]]]

    Args:
        x: RaggedTensor or LoDTensor of float16, bfloat16, float32 or float64,
            with rows `[N, dim]`. 16-bit floats are computed in float32.
        weight: `[filter_size * dim, out]`, of the dtype of x.
        filter_size: Rows of a filter, 1 or more.
        stride: Only 1, as in Paddle.
        start: First row of a filter, relative to its row. Defaults to
            `-(filter_size // 2)`.
        bias: `[out]` of the dtype of x, added to each row, or None.
        padding: `[above + below, dim]` of the dtype of x, used for every
            sequence: the `above = max(0, -start)` rows before it, then the
            `below = max(0, start + filter_size - 1)` rows after it. Paddle's
            `PaddingData` of `paddingTrainable`. Defaults to zeros.
        level: The level whose sequences filters do not leave: 0 for the
            outermost; -1 is the last.
        name: Name of the op.

    Returns:
        Rows `[N, out]`, nested like x. Differentiable in x, weight, bias and
        padding.

    Raises:
        TypeError: x has another type or dtype.
        ValueError: x has no such level or other rows, `filter_size`, `stride` or
            `start` is out of range, or a static shape does not fit.
        tf.errors.InvalidArgumentError: Splits are invalid, or shapes do not fit
            at run time.
    """
    start = _start(filter_size, start)
    if stride != 1:
        raise ValueError(f"`stride` must be 1, got {stride!r}.")
    rows, splits = nesting.flatten("x", x, FLOAT_DTYPES)
    if rows.shape.rank not in (None, 2):
        raise ValueError(f"`x` must have rows [N, dim], got {rows.shape}.")
    with tf.name_scope(name or "sequence_conv"):
        row_splits, _ = nesting.rows_of_units(splits, level)
        weight = tf.convert_to_tensor(weight, rows.dtype)
        dim = rows.shape[1] if rows.shape.rank else None
        height = None if dim is None else filter_size * dim
        if not weight.shape.is_compatible_with([height, None]):
            raise ValueError(
                "`weight` must have shape [filter_size * dim, out] with "
                f"{filter_size} * {dim} rows, got {weight.shape}."
            )
        compute = tf.float32 if rows.dtype.size == 2 else rows.dtype
        wide = tf.cast(weight, compute)
        wide = tf.ensure_shape(wide, [height, None])
        convolved = _convolve(rows, row_splits, wide, start, filter_size)
        if padding is not None:
            padding = tf.convert_to_tensor(padding, rows.dtype)
            around = sum(rows_around(filter_size, start))
            if not padding.shape.is_compatible_with([around, dim]):
                raise ValueError(
                    f"`padding` must have shape ({around}, {dim}), got "
                    f"{padding.shape}."
                )
            padding = tf.ensure_shape(padding, [around, dim])
            # Requires valid splits. On a CPU the convolution has checked them;
            # on a GPU the expansion does.
            with tf.control_dependencies([convolved]):
                convolved += _convolved_padding(
                    padding, row_splits, wide, start, filter_size
                )
        if bias is not None:
            bias = tf.convert_to_tensor(bias, rows.dtype)
            if not bias.shape.is_compatible_with(weight.shape[1:]):
                raise ValueError(
                    f"`bias` must have shape {weight.shape[1:]}, got "
                    f"{bias.shape}."
                )
            convolved = tf.nn.bias_add(convolved, tf.cast(bias, compute))
        return nesting.pack_like(x, tf.cast(convolved, rows.dtype), splits)
