"""SequencePool: pooling of sequences as a Keras layer."""

import keras

from lodestar import sequence
from lodestar.layers.sequence_layer import SequenceLayer, ragged_rank
from lodestar.sequence.pool import check_combiner


@keras.saving.register_keras_serializable(package="lodestar")
class SequencePool(SequenceLayer):
    """Pools the innermost sequences of a ragged input to one row each.

    Input: a RaggedTensor or LoDTensor, `[B, None, ...]` or deeper; symbolic
    inputs are `keras.Input(..., ragged=True)`. Output: the input's shape
    without its innermost ragged dimension, of the same dtype whatever the
    dtype policy; see `lodestar.sequence.pool`.

    A dense input is refused: its padding would be pooled, too. `model.export`
    and `tf.saved_model.save` give models dense inputs, so export with
    `lodestar.export.saved_model`.

    Args:
      combiner: "sum", "mean", "sqrtn", "max", "first" or "last".
      pad_value: What an empty sequence gives.
      **kwargs: As for every Keras layer.

    Raises:
      ValueError: another combiner; an input that is not ragged.
    """

    def __init__(self, combiner: str = "sum", pad_value: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        check_combiner(combiner)
        self.combiner = combiner
        self.pad_value = float(pad_value)

    def call(self, inputs):
        """Pools `inputs`."""
        self.check_ragged(inputs)
        return sequence.pool(inputs, self.combiner, pad_value=self.pad_value)

    def compute_output_shape(self, input_shape):
        """Returns the input's shape without its innermost ragged dimension."""
        rank = ragged_rank(input_shape)
        return (*input_shape[:rank], *input_shape[rank + 1 :])

    def compute_output_spec(self, inputs):
        """Returns the symbolic output of a symbolic ragged input."""
        return self.symbolic_output(
            inputs, ragged=ragged_rank(inputs.shape) > 1
        )

    def get_config(self):
        """Returns what `from_config` needs."""
        return {
            **super().get_config(),
            "combiner": self.combiner,
            "pad_value": self.pad_value,
        }
