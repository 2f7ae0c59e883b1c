"""SequenceConv: convolution along sequences as a Keras layer."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from lodestar import sequence
from lodestar._arguments import explained
from lodestar._checks import check_count
from lodestar._typing import DTypePolicy, KerasLike, Shape
from lodestar.layers.ragged_layer import RaggedLayer
from lodestar.ops.sequence_op import ragged_rows
from lodestar.sequence import nesting
from lodestar.sequence.windows import rows_around


@keras.saving.register_keras_serializable(package="lodestar")
class SequenceConv(RaggedLayer):
    """Convolves each innermost sequence of a ragged input.

    Row i of the output is `activation(window @ kernel + bias)`, where the window
    is rows `i + start` to `i + start + kernel_size - 1` of the same sequence; see
    `lodestar.sequence.conv`. Sequences are padded with zeros or with trainable
    rows. With zeros, an odd `kernel_size` and the default `start`, the result
    equals `keras.layers.Conv1D` with padding "same" on each sequence, and its
    weights are compatible.

    Input: a RaggedTensor or LoDTensor `[B, None, D]` or deeper with a static D.
    Declare symbolic inputs with `keras.Input(..., ragged=True)`.

    Output: rows of `filters` numbers, nested as the input. Rows and weights are
    cast to the compute dtype; 16-bit floats are summed in float32.

    Args:
        filters: Number of filters (the last dimension of the output).
        kernel_size: Number of rows in a window.
        start: Offset of the window from its row. Defaults to
            `-(kernel_size // 2)`; `1 - kernel_size` is causal.
        activation: Activation, as in `Conv1D`.
        use_bias: Whether to add a bias.
        kernel_initializer: Initializer of the kernel
            `[kernel_size, D, filters]`.
        bias_initializer: Initializer of the bias `[filters]`.
        kernel_regularizer: Regularizer of the kernel.
        bias_regularizer: Regularizer of the bias.
        kernel_constraint: Constraint of the kernel.
        bias_constraint: Constraint of the bias.
        padding_trainable: Whether to pad with trainable rows, shared by all
            sequences, instead of zeros (`paddingTrainable` in Paddle).
        padding_initializer: Initializer of the padding `[above + below, D]`:
            the rows that windows reach before and after a sequence.
        trainable: Whether the weights are trained.
        dtype: Keras dtype policy of the layer.
        name: Name of the layer.

    Raises:
        ValueError: If a size is less than 1, or an input is not ragged, has
            another rank or no static D.
    """

    _plain = (
        "filters",
        "kernel_size",
        "start",
        "use_bias",
        "padding_trainable",
    )
    _serialized = {
        "activation": keras.activations,
        "kernel_initializer": keras.initializers,
        "bias_initializer": keras.initializers,
        "kernel_regularizer": keras.regularizers,
        "bias_regularizer": keras.regularizers,
        "kernel_constraint": keras.constraints,
        "bias_constraint": keras.constraints,
        "padding_initializer": keras.initializers,
    }

    @explained(
        refused={
            "activity_regularizer": "Keras cannot compute one for ragged outputs."
        }
    )
    def __init__(
        self,
        filters: int,
        kernel_size: int = 3,
        start: int | None = None,
        activation: str | Callable[..., Any] | None = None,
        use_bias: bool = True,
        kernel_initializer: KerasLike = "glorot_uniform",
        bias_initializer: KerasLike = "zeros",
        kernel_regularizer: KerasLike | None = None,
        bias_regularizer: KerasLike | None = None,
        kernel_constraint: KerasLike | None = None,
        bias_constraint: KerasLike | None = None,
        padding_trainable: bool = False,
        padding_initializer: KerasLike = "zeros",
        trainable: bool = True,
        dtype: DTypePolicy | None = None,
        name: str | None = None,
    ):
        super().__init__(trainable=trainable, dtype=dtype, name=name)
        for name, size in (("filters", filters), ("kernel_size", kernel_size)):
            check_count(name, size)
        if start is not None:
            check_count("start", start, -(2**63))
        self.filters = int(filters)
        self.kernel_size = int(kernel_size)
        self.start = None if start is None else int(start)
        self.activation = keras.activations.get(activation)
        self.use_bias = bool(use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.padding_trainable = bool(padding_trainable)
        self.padding_initializer = keras.initializers.get(padding_initializer)

    def build(self, input_shape: Sequence[int | None]) -> None:
        self._check_rows(input_shape)
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.kernel_size, input_shape[-1], self.filters),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias",
                shape=(self.filters,),
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self.padding = None
        if self.padding_trainable:
            around = sum(rows_around(self.kernel_size, self.start))
            self.padding = self.add_weight(
                name="padding",
                shape=(around, input_shape[-1]),
                initializer=self.padding_initializer,
            )

    def call(self, inputs: Any) -> Any:
        inputs = self._as_ragged("inputs", inputs)
        dtype = self.compute_dtype

        def cast(weight: Any) -> Any:
            return None if weight is None else keras.ops.cast(weight, dtype)

        convolved = sequence.conv(
            inputs.with_flat_values(tf.cast(inputs.flat_values, dtype)),
            tf.reshape(cast(self.kernel), [-1, self.filters]),
            self.kernel_size,
            start=self.start,
            bias=cast(self.bias),
            padding=cast(self.padding),
        )
        rows, splits = nesting.flatten("input", convolved)
        return nesting.pack_like(convolved, self.activation(rows), splits)

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> Shape:
        """Returns the input's shape with `filters` as its last dimension."""
        self._check_rows(input_shape)
        return (*input_shape[:-1], self.filters)

    def compute_output_spec(
        self, inputs: keras.KerasTensor
    ) -> keras.KerasTensor:
        self._as_ragged("inputs", inputs)
        return ragged_rows(
            self, self.compute_output_shape(inputs.shape), self.compute_dtype
        )

    def _check_rows(self, shape: Any) -> None:
        if len(shape) < 3 or shape[-1] is None:
            raise ValueError(
                f"{self.name} needs a ragged input [B, None, D] or deeper with "
                f"a static D, got shape {tuple(shape)}."
            )
