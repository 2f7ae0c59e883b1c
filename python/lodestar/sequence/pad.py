"""Sequences to a padded tensor, and back."""

from typing import overload

import tensorflow as tf

from lodestar import _private
from lodestar._checks import MOVED_DTYPES, after
from lodestar._typing import TensorLike
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ops.symbolic_build import as_integers
from lodestar.ragged import LoDTensor, padding
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested


def pad(
    x: tf.RaggedTensor | LoDTensor,
    pad_value: TensorLike | None = None,
    maxlen: int | None = None,
    *,
    level: int = -1,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Pads each sequence of a level to T steps, like Paddle's `sequence_pad`.

    Unlike in Paddle, the default T is at least 1. `unpad` restores the sequences. The
    padded tensor carries its Keras mask, so that recurrent layers, attention and other
    layers that support masks skip the padding.

    >>> padded, lengths = pad(tf.ragged.constant([[1, 2], [], [3]]), maxlen=3)
    >>> padded.numpy().tolist(), lengths.numpy().tolist()
    ([[1, 2, 0], [0, 0, 0], [3, 0, 0]], [2, 0, 1])

    In a functional model:

    >>> x = keras.Input((None, 8), ragged=True)
    >>> padded, lengths = pad(x)
    >>> y = keras.layers.GRU(16, return_sequences=True)(padded)
    >>> model = keras.Model(x, unpad(y, lengths, like=x))

    Args:
        x: RaggedTensor or LoDTensor of a float, integer, bool or string dtype,
            with rows `[N, ...]`.
        pad_value: A number, or one step `[...]`, of the dtype of x. Defaults to
            zero, False or the empty string.
        maxlen: T, a number or an int64 or int32 scalar. Defaults to the longest
            length, but at least 1, because recurrent layers need a step. With a
            number, T is static.
        level: The level whose units become rows of the result, each with all of
            its rows: 0 for the outermost; -1 is the last.
        name: Name of the op.

    Returns:
        The padded rows `[B, T, ...]` and the int64 lengths `[B]` of the
        sequences. Differentiable in x and `pad_value`. The mask of the
        padded rows, bool `[B, T]`, is False for padding.

    Raises:
        TypeError: x has another type or dtype, `pad_value` another dtype, or
            `maxlen` is a tensor of another dtype.
        ValueError: x has no such level, `pad_value` does not fit its dtype, or
            `maxlen` is not a scalar or negative.
        tf.errors.InvalidArgumentError: A sequence is longer than `maxlen`
            (names it), `pad_value` has another shape, or splits are invalid.
    """
    padded, lengths, mask = _pad(x, pad_value, maxlen, level=level, name=name)
    # For KerasTensors; `_pad` sets the mask of tensors.
    _private.set_keras_mask(padded, mask)
    return padded, lengths


@takes_keras_tensors
def _pad(
    x: tf.RaggedTensor | LoDTensor,
    pad_value: TensorLike | None,
    maxlen: int | None,
    *,
    level: int = -1,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the results of `pad` and the mask."""
    rows, splits = nesting.flatten("x", x, MOVED_DTYPES)
    with tf.name_scope(name or "sequence_pad"):
        units, _ = nesting.rows_of_units(splits, level)
        if maxlen is None:
            maxlen = tf.maximum(tf.reduce_max(units[1:] - units[:-1]), 1)
        padded, lengths = padding.to_padded(rows, units, pad_value, maxlen)
        mask = tf.sequence_mask(lengths, tf.shape(padded, tf.int64)[1])
        mask = tf.ensure_shape(mask, padded.shape[:2])
        _private.set_keras_mask(padded, mask)
        return padded, lengths, mask


@overload
def unpad(
    padded: TensorLike,
    lengths: TensorLike,
    like: None = None,
    *,
    level: int = -1,
    name: str | None = None,
) -> tf.RaggedTensor: ...


@overload
def unpad(
    padded: TensorLike,
    lengths: TensorLike,
    like: Nested,
    *,
    level: int = -1,
    name: str | None = None,
) -> Nested: ...


@takes_keras_tensors
def unpad(
    padded: TensorLike,
    lengths: TensorLike,
    like: tf.RaggedTensor | LoDTensor | None = None,
    *,
    level: int = -1,
    name: str | None = None,
) -> tf.RaggedTensor | LoDTensor:
    """Takes the first `lengths[b]` steps of each row b, like Paddle's `sequence_unpad`.

    >>> unpad(tf.constant([[1, 2, 0], [3, 0, 0]]), [2, 1]).to_list()
    [[1, 2], [3]]

    Args:
        padded: `[B, T, ...]` of a float, integer, bool or string dtype.
        lengths: int64 or int32 `[B]`, each 0 to T.
        like: RaggedTensor or LoDTensor with B sequences of `level`, such as the
            input of `pad`. The result gets its kind and upper levels.
        level: The `level` of `pad`. If `like` has levels below it, its sequences
            must have the given lengths, and the result gets those levels, too.
        name: Name of the op.

    Returns:
        A RaggedTensor with one level, or the kind of `like`. Differentiable in
        `padded`.

    Raises:
        TypeError: `padded` or `lengths` has another dtype, or `like` another
            type.
        ValueError: `padded` has a rank below 2, `lengths` is not a vector, or
            `like` has no such level.
        tf.errors.InvalidArgumentError: There are not B lengths, one is outside
            [0, T] (names it), or `like` does not have B sequences or, with levels
            below `level`, has others.
    """
    with tf.name_scope(name or "sequence_unpad"):
        rows, splits = padding.from_padded(padded, as_integers(lengths))
        if like is None:
            return tf.RaggedTensor.from_row_splits(rows, splits, validate=False)
        _, levels = nesting.flatten("like", like)
        units, level = nesting.rows_of_units(levels, level)
        checks = [
            tf.debugging.assert_equal(
                tf.size(units),
                tf.size(splits),
                "`like` must have as many sequences as `padded` has rows",
            )
        ]
        below = levels[level + 1 :]
        if below:
            splits = after(checks, splits)
            checks = [
                tf.debugging.assert_equal(
                    splits[1:] - splits[:-1],
                    units[1:] - units[:-1],
                    "`lengths` must be those of the sequences of `like`, which "
                    "has levels below `level`",
                )
            ]
            rows = after(checks, rows)
            return nesting.pack_like(like, rows, levels)
        splits = after(checks, splits)
        return nesting.pack_like(like, rows, (*levels[:level], splits))
