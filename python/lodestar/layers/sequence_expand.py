"""SequenceExpand and SequenceExpandAs: repetition as Keras layers."""

from typing import Any

import keras

from lodestar import sequence
from lodestar._checks import check_count
from lodestar._typing import Shape
from lodestar.layers.sequence_layer import (
    SequenceLayer,
    is_ragged,
)
from lodestar.ops.symbolic_build import ragged_rank


class _Repetition(SequenceLayer):
    def _x_and_y(self, inputs: Any) -> tuple[Any, Any]:
        x, y = self.pair(inputs, "x, y")
        return x, self.check_ragged(y, "`y`")


@keras.saving.register_keras_serializable(package="lodestar")
class SequenceExpand(_Repetition):
    """Repeats unit i of `x`, as a whole, as often as unit i of `y` is long.

    Takes `[x, y]`. `x` is ragged of one level, whose sequences are the units,
    or dense `[B, ...]`, whose rows are; `y` is ragged, of as many units, and
    only its lengths are read. Output: a unit for each repetition, ragged or
    dense as `x` is, of its dtype whatever the dtype policy; see
    `lodestar.sequence.expand`. To give each row of a sequence what belongs to
    the sequence, take `SequenceExpandAs`.

    Args:
        ref_level: The level of `y` to take, 0 for the outermost; -1 is the
            last.
        **kwargs: As for every Keras layer.

    Raises:
        ValueError: inputs other than `[x, y]`; a `y` that is not ragged, or has
            no such level; an `x` of more than one level.
        tf.errors.InvalidArgumentError: different numbers of units.
    """

    arguments = ("ref_level",)

    def __init__(self, ref_level: int = -1, **kwargs: Any):
        super().__init__(**kwargs)
        check_count("ref_level", ref_level, -1)
        self.ref_level = int(ref_level)

    def call(self, inputs: Any) -> Any:
        x, y = self._x_and_y(inputs)
        return sequence.expand(x, y, self.ref_level)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Returns the shape of `x` with None for the number of units."""
        x, _ = input_shape
        return (None, *x[1:])

    def compute_output_spec(
        self, inputs: keras.KerasTensor
    ) -> keras.KerasTensor:
        x, y = self._x_and_y(inputs)
        levels = ragged_rank(y.shape)
        if not -1 <= self.ref_level < levels:
            raise ValueError(
                f"{self.name} has `ref_level` {self.ref_level}, wanted -1 to "
                f"{levels - 1} for a `y` of shape {y.shape}"
            )
        if is_ragged(x) and ragged_rank(x.shape) > 1:
            raise ValueError(
                f"{self.name} needs an `x` of one level, found the shape "
                f"{x.shape}"
            )
        return self.symbolic_of_two(x, y, ragged=is_ragged(x))


@keras.saving.register_keras_serializable(package="lodestar")
class SequenceExpandAs(_Repetition):
    """Gives each row of the innermost sequence i of `y` the row i of `x`.

    Takes `[x, y]`: `x` has a row for each innermost sequence of `y`, for
    example what `SequencePool` makes of `y`, dense or ragged; of `y`, ragged,
    only the lengths are read. Output: ragged, nested as `y` is, with rows of
    `x` in its dtype whatever the dtype policy; see
    `lodestar.sequence.expand_as`.

    >>> user = keras.Input((8,))
    >>> items = keras.Input((None, 16), ragged=True)
    >>> user_of_item = SequenceExpandAs()([user, items])    # [B, None, 8]

    Args:
        **kwargs: As for every Keras layer.

    Raises:
        ValueError: inputs other than `[x, y]`; a `y` that is not ragged.
        tf.errors.InvalidArgumentError: other than a row for each sequence.
    """

    def call(self, inputs: Any) -> Any:
        x, y = self._x_and_y(inputs)
        return sequence.expand_as(x, y)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Returns the nesting of `y` over the rows of `x`."""
        x, y = input_shape
        levels_of_x = ragged_rank(x) if None in x[1:] else 0
        return (*y[: ragged_rank(y) + 1], *x[levels_of_x + 1 :])

    def compute_output_spec(
        self, inputs: keras.KerasTensor
    ) -> keras.KerasTensor:
        x, y = self._x_and_y(inputs)
        return self.symbolic_of_two(x, y)
