"""SequenceUnpad: padded steps back into sequences."""

from typing import Any

import keras

from lodestar import sequence
from lodestar._typing import Shape
from lodestar.layers.sequence_layer import (
    SequenceLayer,
    is_ragged,
    lengths_of,
)
from lodestar.ops import symbolic_build
from lodestar.ops.symbolic_build import ragged_rank


@keras.saving.register_keras_serializable(package="lodestar")
class SequenceUnpad(SequenceLayer):
    """Cuts a padded tensor into sequences, the way back from `SequencePad`.

    Takes `[padded, like]`. `padded` is dense, `[B, T, ...]`. `like` says how
    long each sequence is: the ragged tensor that was padded, with B innermost
    sequences, whose levels the result takes over, those above the last one
    too; or the lengths themselves, integers `[B]`. Output: ragged (a LoDTensor
    where `like` is one), of the dtype of `padded` whatever the dtype policy;
    see `lodestar.sequence.unpad`.

    Args:
        **kwargs: As for every Keras layer.

    Raises:
        ValueError: inputs other than `[padded, like]`; a ragged `padded`; a
            `like` that is neither ragged nor integers `[B]`.
        tf.errors.InvalidArgumentError: other than B lengths, or one beyond T.
    """

    def call(self, inputs: Any) -> Any:
        padded, like = self._pair(inputs)
        if not is_ragged(like):
            return sequence.unpad(padded, like)
        return sequence.unpad(padded, lengths_of(like), like)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Returns None: sequences have no padding."""
        return None

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Returns the nesting of `like` over the rows of `padded`."""
        padded, like = input_shape
        nesting_shape = (like[0], None)
        if len(like) > 1:
            nesting_shape = like[: ragged_rank(like) + 1]
        return (*nesting_shape, *padded[2:])

    def compute_output_spec(
        self, inputs: keras.KerasTensor
    ) -> keras.KerasTensor:
        padded, like = self._pair(inputs)
        return self.symbolic_of_two(padded, like)

    def _pair(self, inputs: Any) -> tuple[Any, Any]:
        padded, like = self.pair(inputs, "padded, like")
        like = symbolic_build.as_integers(symbolic_build.as_ragged(like))
        if is_ragged(padded):
            raise ValueError(
                f"{self.name} needs a dense `padded`, found a ragged one of "
                f"shape {padded.shape}"
            )
        if len(padded.shape) < 2:
            raise ValueError(
                f"{self.name} needs `padded` [B, T, ...], found the shape "
                f"{padded.shape}"
            )
        if not is_ragged(like):
            integers = keras.backend.is_int_dtype(like.dtype)
            if not integers or len(like.shape) != 1:
                raise ValueError(
                    f"{self.name} needs a ragged `like`, or integers [B], "
                    f"found a dense one of shape {like.shape} and dtype "
                    f"{like.dtype}"
                )
        return padded, like
