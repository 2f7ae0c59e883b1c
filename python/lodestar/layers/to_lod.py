"""ToLoD: sequences as a LoDTensor inside a model."""

from typing import Any

import keras

from lodestar.layers.sequence_layer import SequenceLayer, ragged_to_lod


@keras.saving.register_keras_serializable(package="lodestar")
class ToLoD(SequenceLayer):
    """Gives what follows in a model a LoDTensor; copies no values.

    For layers of one's own that work on offsets. Keras lets a layer take a
    LoDTensor by keyword, `layer(x=ToLoD()(ragged))`; the layers of sequences
    here take it as they take a RaggedTensor. `fit` and `predict` know no
    LoDTensor: end a model with `ToRagged`.

    Input: a RaggedTensor, or a LoDTensor, which stays as it is. Output: a
    LoDTensor of the same rows and levels; symbolically a ragged tensor like
    the input.

    Args:
        **kwargs: As for every Keras layer.

    Raises:
        ValueError: an input that is not ragged.
    """

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns `inputs` as a LoDTensor."""
        # Keras sees a RaggedTensor come out, which it knows.
        return ragged_to_lod(super().__call__(inputs, *args, **kwargs))

    def call(self, inputs: Any) -> Any:
        inputs = self.check_ragged(inputs)
        return inputs
