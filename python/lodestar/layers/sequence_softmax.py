"""SequenceSoftmax: softmax inside sequences as a Keras layer."""

from typing import Any

import keras

from lodestar import sequence
from lodestar.layers.sequence_layer import SequenceLayer


@keras.saving.register_keras_serializable(package="lodestar")
class SequenceSoftmax(SequenceLayer):
    """Takes the softmax inside each innermost sequence, column by column.

    Makes scores of rows the weights of an attention. Input: a RaggedTensor or
    LoDTensor of a float dtype, `[B, None, ...]` or deeper; symbolic inputs are
    `keras.Input(..., ragged=True)`. Output: of the input's shape, nesting and
    dtype, whatever the dtype policy; see `lodestar.sequence.softmax`.

    Args:
        **kwargs: As for every Keras layer.

    Raises:
        TypeError: an input of another dtype.
        ValueError: an input that is not ragged.
    """

    def call(self, inputs: Any) -> Any:
        inputs = self.check_ragged(inputs)
        return sequence.softmax(inputs)

    def compute_output_spec(
        self, inputs: keras.KerasTensor
    ) -> keras.KerasTensor:
        if not keras.backend.is_float_dtype(inputs.dtype):
            raise TypeError(
                f"{self.name} needs an input of a float dtype, found "
                f"{inputs.dtype}"
            )
        return super().compute_output_spec(inputs)
