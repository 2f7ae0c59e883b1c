"""SequencePad: sequences padded to a dense tensor with its Keras mask."""

from typing import Any

import keras
import tensorflow as tf

from lodestar import sequence
from lodestar._checks import check_count
from lodestar._typing import Shape
from lodestar.layers.sequence_layer import (
    SequenceLayer,
    lengths_of,
)
from lodestar.ops import symbolic_build
from lodestar.ops.symbolic_build import ragged_rank


@keras.saving.register_keras_serializable(package="lodestar")
class SequenceMask(keras.Operation):
    """Where `SequencePad` puts rows and where padding.

    A Keras operation, since the mask of a layer's symbolic output goes into
    the graph of a functional model as an input of the layers that take it.
    """

    def __init__(self, maxlen: int | None = None, *, name: str | None = None):
        super().__init__(name=name)
        self.maxlen = maxlen

    def call(self, x: Any) -> Any:
        """Returns bool `[B, T]`."""
        lengths = lengths_of(symbolic_build.as_ragged(x))
        return tf.sequence_mask(lengths, _steps(lengths, self.maxlen))

    def compute_output_spec(self, x: keras.KerasTensor) -> keras.KerasTensor:
        return keras.KerasTensor(
            _padded_shape(x.shape, self.maxlen)[:2], "bool"
        )


@keras.saving.register_keras_serializable(package="lodestar")
class SequencePad(SequenceLayer):
    """Pads the innermost sequences to `[B, T, ...]`, with a Keras mask.

    Recurrent layers, attention and whatever else knows masks pass over the
    padding; `SequenceUnpad` puts the result back into sequences:

    >>> x = keras.Input((None, 8), ragged=True)
    >>> y = keras.layers.GRU(16, return_sequences=True)(SequencePad()(x))
    >>> y = SequenceUnpad()([y, x])

    Input: a RaggedTensor or LoDTensor, `[B, None, ...]` or deeper; symbolic
    inputs are `keras.Input(..., ragged=True)`. Of several levels the last one
    is padded, and B counts its sequences over all units above. T is `maxlen`
    or else the longest length of the batch, 1 at least, since recurrent layers
    take no fewer steps. Output: of the input's dtype whatever the dtype
    policy; see `lodestar.sequence.pad`. The mask, bool `[B, T]`, is False where
    there is padding, so all over the row of an empty sequence.

    Args:
        maxlen: T, 1 or more.
        pad_value: The number that padding holds, of the input's dtype; None is
            zero, False or the empty string.
        **kwargs: As for every Keras layer.

    Raises:
        ValueError: another `maxlen`; an input that is not ragged.
        tf.errors.InvalidArgumentError: a sequence longer than `maxlen`.
    """

    arguments = ("maxlen", "pad_value")

    def __init__(
        self,
        maxlen: int | None = None,
        pad_value: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if maxlen is not None:
            check_count("maxlen", maxlen)
        self.maxlen = None if maxlen is None else int(maxlen)
        self.pad_value = pad_value

    def call(self, inputs: Any) -> Any:
        inputs = self.check_ragged(inputs)
        steps = _steps(lengths_of(inputs), self.maxlen)
        padded, _ = sequence.pad(inputs, self.pad_value, steps)
        return padded

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Returns where there is no padding, bool `[B, T]`."""
        return SequenceMask(self.maxlen)(inputs)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Returns `[B, T, ...]`, with None for what only the batch says."""
        return _padded_shape(input_shape, self.maxlen)

    def compute_output_spec(
        self, inputs: keras.KerasTensor
    ) -> keras.KerasTensor:
        return self.symbolic_output(inputs, ragged=False)


def _steps(lengths: tf.Tensor, maxlen: int | None) -> Any:
    if maxlen is not None:
        return maxlen
    return tf.maximum(tf.reduce_max(lengths), 1)


def _padded_shape(shape: Any, maxlen: int | None) -> tuple[int | None, ...]:
    rank = ragged_rank(shape)
    batch = shape[0] if rank == 1 else None
    return (batch, maxlen, *shape[rank + 1 :])
