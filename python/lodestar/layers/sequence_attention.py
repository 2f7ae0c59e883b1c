"""SequenceAttention: multi-head attention inside sequences as a Keras layer."""

from collections.abc import Sequence
from typing import Any

import keras

from lodestar._arguments import explained
from lodestar._checks import check_count, check_flag
from lodestar._typing import DTypePolicy, KerasLike, Shape
from lodestar.layers.ragged_layer import RaggedLayer
from lodestar.ops.flat_values import map_flat
from lodestar.ops.sequence_op import ragged_rows
from lodestar.sequence.attention import attend


@keras.saving.register_keras_serializable(package="lodestar")
class SequenceAttention(RaggedLayer):
    """Multi-head attention inside each innermost sequence of a ragged input.

    Equals `keras.layers.MultiHeadAttention` on the padded sequences with their mask,
    and has the same weights in the same order, but pads only sequences of similar
    length together; see `lodestar.sequence.attention`.

    A Transformer block, as of SASRec:

    >>> ids = keras.Input((None,), dtype="int64", ragged=True)
    >>> x = lodestar.layers.DynamicEmbedding(16)(ids)
    >>> x = x + SequenceAttention(num_heads=2, key_dim=8, causal=True)(x)
    >>> x = lodestar.layers.PerStep(keras.layers.LayerNormalization())(x)

    Input: `query`, and optionally `value` and `key`: RaggedTensors or LoDTensors
    `[B, None, D]` or deeper with a static D. Without `value`, the query attends to
    itself; without `key`, the values are also the keys. A dense `query` `[B, D]` is one
    query for each sequence of `value`.

    Output: Like `query`, with rows of `output_dim` numbers. A query of an empty
    sequence gets the bias of the output only.

    Args:
        num_heads: Number of heads.
        key_dim: Dimension of the queries and keys of each head.
        value_dim: Dimension of the values of each head. Defaults to `key_dim`.
        causal: Whether each step attends only to itself and to steps before it.
        output_dim: Dimension of the output. Defaults to the dimension of `query`.
        use_bias: Whether the projections have biases.
        dropout: Rate of dropout of the attention weights.
        seed: Seed of the dropout.
        kernel_initializer: Initializer of the kernels.
        bias_initializer: Initializer of the biases.
        kernel_regularizer: Regularizer of the kernels.
        bias_regularizer: Regularizer of the biases.
        trainable: Whether the weights are trained.
        dtype: Keras dtype policy of the layer.
        name: Name of the layer.

    Raises:
        ValueError: A size is less than 1, an input is not ragged, or has no static D.
        tf.errors.InvalidArgumentError: Inputs have other numbers or, where they must
            be the same, lengths of sequences.
    """

    _plain = (
        "num_heads",
        "key_dim",
        "value_dim",
        "causal",
        "output_dim",
        "use_bias",
        "dropout",
        "seed",
    )
    _serialized = {
        "kernel_initializer": keras.initializers,
        "bias_initializer": keras.initializers,
        "kernel_regularizer": keras.regularizers,
        "bias_regularizer": keras.regularizers,
    }

    @explained()
    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        causal: bool = False,
        output_dim: int | None = None,
        use_bias: bool = True,
        dropout: float = 0.0,
        seed: int | None = None,
        kernel_initializer: KerasLike = "glorot_uniform",
        bias_initializer: KerasLike = "zeros",
        kernel_regularizer: KerasLike | None = None,
        bias_regularizer: KerasLike | None = None,
        trainable: bool = True,
        dtype: DTypePolicy | None = None,
        name: str | None = None,
    ):
        super().__init__(trainable=trainable, dtype=dtype, name=name)
        for name, size in (
            ("num_heads", num_heads),
            ("key_dim", key_dim),
            ("value_dim", value_dim),
            ("output_dim", output_dim),
        ):
            if size is not None:
                check_count(name, size)
        self.num_heads = int(num_heads)
        self.key_dim = int(key_dim)
        self.value_dim = int(key_dim if value_dim is None else value_dim)
        self.causal = check_flag("causal", causal)
        self.output_dim = None if output_dim is None else int(output_dim)
        self.use_bias = bool(use_bias)
        self.dropout = dropout
        self.seed = seed
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self._dropout = keras.layers.Dropout(
            dropout, seed=seed, dtype=self.dtype_policy, name="dropout"
        )

    def __call__(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(query, list | tuple):
            raise TypeError(
                f"The layer '{self.name}' takes `query`, `value` and `key` as separate "
                "arguments, got a list."
            )
        return super().__call__(query, *args, **kwargs)

    def build(
        self,
        query_shape: Sequence[int | None],
        value_shape: Sequence[int | None] | None = None,
        key_shape: Sequence[int | None] | None = None,
    ) -> None:
        value_shape = query_shape if value_shape is None else value_shape
        key_shape = value_shape if key_shape is None else key_shape
        heads = self.num_heads
        self._query = self._projection(
            "query", query_shape[-1:], "nd,dhk->nhk", (heads, self.key_dim)
        )
        self._key = self._projection(
            "key", key_shape[-1:], "nd,dhk->nhk", (heads, self.key_dim)
        )
        self._value = self._projection(
            "value", value_shape[-1:], "nd,dhk->nhk", (heads, self.value_dim)
        )
        self._output = self._projection(
            "output",
            (heads, self.value_dim),
            "nhk,hkd->nd",
            (self.output_dim or query_shape[-1],),
        )

    def _projection(
        self, name: str, row: Sequence[int | None], equation: str, output: Shape
    ) -> keras.layers.EinsumDense:
        """Returns a layer for rows of shape `row`, with the weights of Keras's own."""
        if None in row:
            raise ValueError(
                f"`{name}` of the layer '{self.name}' must have a static last "
                "dimension, got None."
            )
        layer = keras.layers.EinsumDense(
            equation,
            output,
            bias_axes=equation.split(">n")[1] if self.use_bias else None,
            name=name,
            dtype=self.dtype_policy,
            **{
                argument: kind.serialize(getattr(self, argument))
                for argument, kind in self._serialized.items()
            },
        )
        layer.build((None, *row))
        return layer

    def call(
        self,
        query: Any,
        value: Any = None,
        key: Any = None,
        training: bool | None = None,
    ) -> Any:
        query, value, key = self._inputs(query, value, key)
        heads = attend(
            map_flat(self._query, query),
            map_flat(self._key, key),
            map_flat(self._value, value),
            self.causal,
            change_weights=lambda weights: self._dropout(
                weights, training=training
            ),
        )
        return map_flat(self._output, heads)

    def compute_output_spec(
        self,
        query: Any,
        value: Any = None,
        key: Any = None,
        training: bool | None = None,
    ) -> keras.KerasTensor:
        query, *_ = self._inputs(query, value, key)
        shape = self.compute_output_shape(query.shape)
        if query.ragged:
            return ragged_rows(self, shape, self.compute_dtype)
        return keras.KerasTensor(shape, self.compute_dtype)

    def _inputs(self, query: Any, value: Any, key: Any) -> tuple[Any, Any, Any]:
        """Returns the inputs as ragged tensors; `query` may also be one per sequence.

        Raises:
            ValueError: Another input is dense.
        """
        if value is None:
            query = value = self._as_ragged("query", query)
        else:
            value = self._as_ragged("value", value)
            if len(query.shape) > 2:
                # Two axes are one query per sequence.
                query = self._as_ragged("query", query)
        return (
            query,
            value,
            value if key is None else self._as_ragged("key", key),
        )

    def compute_output_shape(
        self,
        query_shape: Sequence[int | None],
        value_shape: Sequence[int | None] | None = None,
        key_shape: Sequence[int | None] | None = None,
    ) -> Shape:
        """Returns the shape of the query with the output's dimension as its last."""
        return (*query_shape[:-1], self.output_dim or query_shape[-1])
