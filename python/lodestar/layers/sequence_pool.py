"""SequencePool: pooling of sequences as a Keras layer."""

from typing import Any

import keras

from lodestar import sequence
from lodestar._checks import check_count
from lodestar._typing import Shape
from lodestar.layers.sequence_layer import SequenceLayer
from lodestar.ops.symbolic_build import ragged_rank
from lodestar.sequence import nesting
from lodestar.sequence.pool import check_combiner


@keras.saving.register_keras_serializable(package="lodestar")
class SequencePool(SequenceLayer):
    """Pools the sequences of a level of a ragged input to one row each.

    Input: a RaggedTensor or LoDTensor, `[B, None, ...]` or deeper; symbolic
    inputs are `keras.Input(..., ragged=True)`. Output: the input's shape
    without its innermost ragged dimension, or those from `level` on, of the
    same dtype whatever the dtype policy; see `lodestar.sequence.pool`.

    A dense input is refused: its padding would be pooled, too. `model.export`
    and `tf.saved_model.save` give models dense inputs, so export with
    `lodestar.export.save`.

    Args:
        combiner: "sum", "mean", "sqrtn", "max", "first" or "last".
        pad_value: What an empty sequence gives.
        level: The level whose units become a row each, straight from all rows
            they hold: 0 for the outermost; -1 is the last.
        **kwargs: As for every Keras layer.

    Raises:
        ValueError: another combiner; a level below -1; an input that is not
            ragged, or has no such level.
    """

    arguments = ("combiner", "pad_value", "level")

    def __init__(
        self,
        combiner: str = "sum",
        pad_value: float = 0.0,
        level: int = -1,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_combiner(combiner)
        check_count("level", level, -1)
        self.combiner = combiner
        self.pad_value = float(pad_value)
        self.level = int(level)

    def call(self, inputs: Any) -> Any:
        inputs = self.check_ragged(inputs)
        return sequence.pool(
            inputs, self.combiner, self.level, pad_value=self.pad_value
        )

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Returns the input's shape without the levels that are pooled."""
        levels = ragged_rank(input_shape)
        above = self._levels_above(levels)
        return (*input_shape[: above + 1], *input_shape[levels + 1 :])

    def compute_output_spec(
        self, inputs: keras.KerasTensor
    ) -> keras.KerasTensor:
        return self.symbolic_output(
            inputs, ragged=self._levels_above(ragged_rank(inputs.shape)) > 0
        )

    def _levels_above(self, levels: int) -> int:
        return nesting.check_level("level", self.level, levels)
