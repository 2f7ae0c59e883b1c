"""PerStep: any Keras layer on each step of ragged sequences."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import after, assert_true
from lodestar.layers.ragged_layer import RaggedLayer
from lodestar.ops import symbolic_build
from lodestar.ops.sequence_op import ragged_rows
from lodestar.sequence import nesting


@keras.saving.register_keras_serializable(package="lodestar")
class RowFunction(keras.layers.Lambda):
    """A function of rows of any dtype, which `Lambda` takes for floats."""

    def __init__(self, function: Callable[..., Any], **kwargs: Any):
        super().__init__(function, autocast=False, **kwargs)

    def compute_output_spec(self, inputs: Any, **_: Any) -> Any:
        """Traces the function to get the shapes and dtypes of its results."""
        return keras.Operation.compute_output_spec(self, inputs)


@keras.saving.register_keras_serializable(package="lodestar")
class PerStep(RaggedLayer):
    """Applies a Keras layer, or a function, to each step of ragged sequences.

    `keras.layers.TimeDistributed` does this for dense inputs. Here the layer gets the
    rows of all sequences as one batch `[N, ...]`, without padding, and the result has
    the sequences of the input.

    >>> ids = keras.Input((None,), dtype="int64", ragged=True)
    >>> rows = lodestar.layers.DynamicEmbedding(16)(ids)
    >>> rows = PerStep(keras.layers.Dense(32, activation="relu"))(rows)
    >>> rows = PerStep(keras.layers.Dropout(0.1))(rows)
    >>> model = keras.Model(ids, lodestar.sequence.pool(rows, "mean"))
    >>> model.output_shape
    (None, 32)

    A layer of several inputs gets the rows of each, for example
    `PerStep(keras.layers.Concatenate())([items, categories])`. Arithmetic on ragged
    rows needs no layer: `items + categories`.

    Input: a RaggedTensor or LoDTensor `[B, None, ...]` or deeper, or a list, tuple or
    dict of several with the same sequences. To use a dense tensor `[B, D]` in each
    step, repeat it with `lodestar.sequence.expand_as`.

    Output: The results of the layer, nested as the input.

    Args:
        layer: The layer, a model, or a function without weights that maps a batch of
            rows `[N, ...]` to one row each. To load a saved model, Keras needs the
            function to be registered.
        name: Name of the layer. Other arguments of Keras layers, such as `dtype`
            and `trainable`, belong to `layer`.

    Raises:
        TypeError: `layer` is not callable, or a layer for sequences.
        ValueError: An input is not ragged, inputs have other numbers of levels, or a
            function uses weights.
        tf.errors.InvalidArgumentError: Inputs have sequences of other lengths, or
            `layer` does not return a row for each row.
    """

    @explained()
    def __init__(
        self,
        layer: keras.layers.Layer | Callable[..., Any],
        name: str | None = None,
    ):
        if isinstance(layer, RaggedLayer):
            raise TypeError(
                f"`layer` must act on single rows, but {type(layer).__name__} acts on "
                "sequences. Call it on the ragged rows itself."
            )
        if not isinstance(layer, keras.layers.Layer):
            if not callable(layer) or inspect.isclass(layer):
                raise TypeError(
                    f"`layer` must be a Keras layer or a function, got {layer!r}."
                )
            layer = RowFunction(layer)
        super().__init__(name=name)
        self.layer = layer

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if args:
            raise TypeError(
                f"The layer '{self.name}' takes one argument, got {1 + len(args)}. "
                "Pass several tensors as a list. If `layer` does not take a list, "
                "pass a keras.Model that calls it."
            )
        # Before Keras looks at shapes, whose errors say less.
        self._ragged(inputs)
        return super().__call__(inputs, **kwargs)

    def build(self, input_shape: Any) -> None:
        """Does nothing: `layer` is built when it is called, with the right dtypes."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        named = self._ragged(inputs)
        rows, splits = nesting.aligned(named)
        if not self.layer.built:
            symbolic = [
                keras.Input(x.shape[1:], dtype=x.dtype.name) for x in rows
            ]
            self.layer(keras.tree.pack_sequence_as(inputs, symbolic))
        count = tf.shape(rows[0], tf.int64)[0]
        statistics = self._statistics(training)
        added = tf.zeros([], tf.int64)
        if statistics or (tf.executing_eagerly() and not count):
            # Some layers fail without rows, or compute NaN as their mean.
            added = tf.cast(tf.equal(count, 0), tf.int64)
            rows = [_with_zeros(x, added) for x in rows]
        before = [
            tf.identity(keras.ops.convert_to_tensor(w)) for w in statistics
        ]
        results = self._apply(keras.tree.pack_sequence_as(inputs, rows))
        for weight, old in zip(statistics, before, strict=True):
            new = keras.ops.convert_to_tensor(weight)
            weight.assign(tf.where(count > 0, new, old))
        like = next(iter(named.values()))

        def nest(result: Any) -> Any:
            result = self._checked(result, count + added)
            return nesting.pack_like(like, result[:count], splits)

        return keras.tree.map_structure(nest, results)

    def _ragged(self, inputs: Any) -> dict[str, Any]:
        """Returns the ragged tensors of a structure by names for errors."""
        xs = keras.tree.flatten(inputs)
        names = [f"inputs[{i}]" for i in range(len(xs))]
        if isinstance(inputs, Mapping):
            names = [f"inputs[{name!r}]" for name in sorted(inputs)]
        elif not isinstance(inputs, list | tuple):
            names = ["inputs"]
        return {
            name: self._as_ragged(name, x)
            for name, x in zip(names, xs, strict=True)
        }

    def _statistics(self, training: bool | None) -> list[keras.Variable]:
        """Returns weights that a call may change, as BatchNormalization does."""
        if not training or not self.layer.trainable:
            return []
        weights: list[keras.Variable] = self.layer.non_trainable_weights
        return weights

    def _apply(self, rows: Any) -> Any:
        """Calls the layer; ValueError if it is a function that uses weights."""
        if not isinstance(self.layer, RowFunction):
            return self.layer(rows)
        with tf.GradientTape() as tape:
            results = self.layer(rows)
        weights = tape.watched_variables()
        if weights:
            raise ValueError(
                f"The function of the layer '{self.name}' uses the variable "
                f"'{weights[0].name}', which would not be trained or saved. Pass a "
                "layer, or a keras.Model, in place of a function."
            )
        return results

    def _checked(self, result: Any, count: tf.Tensor) -> tf.Tensor:
        """Returns `result`, which must have `count` rows."""
        result = tf.convert_to_tensor(result)
        self._check_not_scalar(result.shape)
        found = tf.shape(result, tf.int64)[0]
        check = assert_true(
            tf.equal(found, count),
            [
                f"The layer '{self.layer.name}' must return a row for each step, got",
                *(found, "for", count, "steps"),
            ],
        )
        return after(check, result)

    def _check_not_scalar(self, shape: Sequence[int | None]) -> None:
        if len(shape) == 0:
            raise ValueError(
                f"The layer '{self.layer.name}' must return a row for each step, got "
                "a scalar."
            )

    def compute_output_spec(
        self, inputs: Any, training: bool | None = None
    ) -> Any:
        shape = next(iter(self._ragged(inputs).values())).shape
        levels = shape[: symbolic_build.ragged_rank(shape) + 1]

        def input_of(x: keras.KerasTensor) -> keras.KerasTensor:
            return keras.Input(x.shape[len(levels) :], dtype=x.dtype)

        def nest(result: keras.KerasTensor) -> keras.KerasTensor:
            self._check_not_scalar(result.shape)
            shape = (*levels, *result.shape[1:])
            return ragged_rows(self, shape, result.dtype)

        results = self.layer(keras.tree.map_structure(input_of, inputs))
        return keras.tree.map_structure(nest, results)

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "layer": keras.saving.serialize_keras_object(self.layer),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "PerStep":
        layer = keras.saving.deserialize_keras_object(config["layer"])
        return cls(layer, name=config["name"])


def _with_zeros(rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns rows `[N, ...]` followed by `count` rows of zeros or empty strings."""
    shape = tf.concat([[count], tf.shape(rows, tf.int64)[1:]], 0)
    return tf.concat([rows, tf.zeros(shape, rows.dtype)], 0)
