"""TargetAttention: a history weighted by its relevance to a target."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from lodestar import sequence
from lodestar._arguments import explained
from lodestar._checks import check_count, check_flag
from lodestar._typing import DTypePolicy, Shape
from lodestar.layers.ragged_layer import RaggedLayer
from lodestar.ops.flat_values import flat_values
from lodestar.ops.sequence_op import ragged_rows


@keras.saving.register_keras_serializable(package="lodestar")
class TargetAttention(RaggedLayer):
    """Sums the steps of a history, weighted by their relevance to a target.

    The local activation unit of the Deep Interest Network (Zhou et al., 2018,
    https://arxiv.org/abs/1706.06978): a small network maps the target, a step, their
    difference and their product to the weight of the step. Nothing is padded.

    >>> target = keras.Input((16,))
    >>> history = keras.Input((None, 16), ragged=True)
    >>> interest = TargetAttention((36,))(target, history)
    >>> interest.shape
    (None, 16)

    Input: `target` `[B, D]`, one for each innermost sequence of `history`, a
    RaggedTensor or LoDTensor `[B, None, D]` or deeper with a static D.

    Output: `[B, D]`, or ragged with the upper levels of a deeper history. An empty
    history gives zeros.

    Args:
        units: Sizes of the hidden layers of the network.
        activation: Activation of the hidden layers.
        normalize: Whether the weights of a sequence go through a softmax. The
            network's paper keeps them as they are, so that their sum shows how strong
            an interest is.
        trainable: Whether the weights are trained.
        dtype: Keras dtype policy of the layer.
        name: Name of the layer.

    Raises:
        TypeError: `units` is not a list, or `activation` is a layer.
        ValueError: A size is less than 1, `history` is not ragged, or D is unknown or
            differs.
        tf.errors.InvalidArgumentError: There is not one target for each sequence.
    """

    _plain = ("units", "normalize")
    _serialized = {"activation": keras.activations}

    @explained()
    def __init__(
        self,
        units: Sequence[int] = (80, 40),
        activation: str | Callable[..., Any] = "sigmoid",
        normalize: bool = False,
        trainable: bool = True,
        dtype: DTypePolicy | None = None,
        name: str | None = None,
    ):
        super().__init__(trainable=trainable, dtype=dtype, name=name)
        if not isinstance(units, list | tuple):
            raise TypeError(f"`units` must be a list of sizes, got {units!r}.")
        if isinstance(activation, keras.layers.Layer):
            raise TypeError(
                "`activation` must be a name or a function, got the layer "
                f"{activation.name!r}, which all hidden layers would share."
            )
        for size in units:
            check_count("units", size)
        self.units = tuple(int(size) for size in units)
        self.activation = keras.activations.get(activation)
        self.normalize = check_flag("normalize", normalize)
        self._network = [
            keras.layers.Dense(
                size,
                self.activation,
                dtype=self.dtype_policy,
                name=f"hidden_{i}",
            )
            for i, size in enumerate(self.units)
        ]
        self._network.append(
            keras.layers.Dense(1, dtype=self.dtype_policy, name="weight")
        )

    def build(
        self,
        target_shape: Sequence[int | None],
        history_shape: Sequence[int | None],
    ) -> None:
        dim = history_shape[-1]
        if len(target_shape) != len(history_shape) - 1:
            raise ValueError(
                f"`target` of the layer '{self.name}' must have one row for each "
                f"sequence of `history`, whose shape is {tuple(history_shape)}, got "
                f"shape {tuple(target_shape)}."
            )
        if dim is None or target_shape[-1] != dim:
            raise ValueError(
                f"`target` and `history` of the layer '{self.name}' must have the same "
                f"static last dimension, got {target_shape[-1]} and {dim}."
            )
        size = 4 * dim
        for layer in self._network:
            layer.build((None, size))
            size = layer.units

    def call(self, target: Any, history: Any) -> Any:
        history = self._as_ragged("history", history)
        steps = tf.cast(history.flat_values, self.compute_dtype)
        targets = tf.cast(flat_values(target), self.compute_dtype)
        targets = sequence.expand_as(targets, history).flat_values
        weights = tf.concat(
            [targets, steps, targets - steps, targets * steps], -1
        )
        for layer in self._network:
            weights = layer(weights)
        if self.normalize:
            weights = sequence.softmax(
                history.with_flat_values(weights)
            ).flat_values
        return sequence.pool(history.with_flat_values(weights * steps), "sum")

    def compute_output_spec(
        self, target: keras.KerasTensor, history: keras.KerasTensor
    ) -> keras.KerasTensor:
        self._as_ragged("history", history)
        shape = self.compute_output_shape(target.shape, history.shape)
        if len(shape) > 2:
            return ragged_rows(self, shape, self.compute_dtype)
        return keras.KerasTensor(shape, self.compute_dtype)

    def compute_output_shape(
        self,
        target_shape: Sequence[int | None],
        history_shape: Sequence[int | None],
    ) -> Shape:
        """Returns the shape of the history without its innermost sequences."""
        return (*history_shape[:-2], history_shape[-1])
