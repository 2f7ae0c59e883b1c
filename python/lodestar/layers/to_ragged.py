"""ToRagged: sequences as a RaggedTensor inside a model."""

from typing import Any

import keras

from lodestar.layers.sequence_layer import SequenceLayer, lod_to_ragged


@keras.saving.register_keras_serializable(package="lodestar")
class ToRagged(SequenceLayer):
    """Gives what follows in a model a RaggedTensor; copies no values.

    The way back from `ToLoD`, and from layers of one's own that give
    LoDTensors. Input: a LoDTensor, or a RaggedTensor, which stays as it is.
    Output: a RaggedTensor of the same rows and levels.

    Args:
        **kwargs: As for every Keras layer.

    Raises:
        ValueError: an input that is not ragged.
    """

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns `inputs` as a RaggedTensor."""
        return super().__call__(lod_to_ragged(inputs), *args, **kwargs)

    def call(self, inputs: Any) -> Any:
        inputs = self.check_ragged(inputs)
        return inputs
