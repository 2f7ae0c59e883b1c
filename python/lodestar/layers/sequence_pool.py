"""SequencePool: pooling of sequences as a Keras layer."""

import keras
import tensorflow as tf

from lodestar import sequence
from lodestar.ragged import LoDTensor
from lodestar.sequence.pool import check_combiner


@keras.saving.register_keras_serializable(package="lodestar")
class SequencePool(keras.layers.Layer):
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
        # A cast in Keras would make a symbolic ragged input a dense one.
        kwargs.pop("autocast", None)
        super().__init__(autocast=False, **kwargs)
        check_combiner(combiner)
        self.combiner = combiner
        self.pad_value = float(pad_value)
        self.supports_jit = False

    def __call__(self, inputs, **kwargs):
        """Pools `inputs`; a LoDTensor passes as the RaggedTensor it is."""
        # Keras takes only the kinds of tensors it knows as inputs.
        if not isinstance(inputs, LoDTensor):
            return super().__call__(inputs, **kwargs)
        pooled = super().__call__(inputs.to_ragged(), **kwargs)
        if isinstance(pooled, tf.RaggedTensor):
            return LoDTensor.from_ragged(pooled)
        return pooled

    def call(self, inputs):
        """Pools `inputs`."""
        if not isinstance(inputs, tf.RaggedTensor):
            raise self._dense_error(inputs)
        return sequence.pool(inputs, self.combiner, pad_value=self.pad_value)

    def compute_output_shape(self, input_shape):
        """Returns the input's shape without its innermost ragged dimension."""
        ragged_rank = self._ragged_rank(input_shape)
        return (*input_shape[:ragged_rank], *input_shape[ragged_rank + 1 :])

    def compute_output_spec(self, inputs):
        """Returns the symbolic output of a symbolic ragged input."""
        if not getattr(inputs, "ragged", False):
            raise self._dense_error(inputs)
        ragged_rank = self._ragged_rank(inputs.shape)
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape),
            dtype=inputs.dtype,
            ragged=ragged_rank > 1,
        )

    def _dense_error(self, inputs) -> ValueError:
        return ValueError(
            f"{self.name} needs a ragged input, found a dense one of shape "
            f"{inputs.shape}; use keras.Input(..., ragged=True), and to export "
            "lodestar.export.saved_model"
        )

    @staticmethod
    def _ragged_rank(shape) -> int:
        # Keras does not say which unknown dimensions are ragged: those after
        # the batch that are unknown are.
        unknown = [i for i, d in enumerate(shape) if i > 0 and d is None]
        return unknown[-1] if unknown else 1

    def get_config(self):
        """Returns what `from_config` needs."""
        config = super().get_config()
        config.pop("autocast", None)
        return {
            **config,
            "combiner": self.combiner,
            "pad_value": self.pad_value,
        }
