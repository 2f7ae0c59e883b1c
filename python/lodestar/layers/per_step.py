"""PerStep: any Keras layer on each step of ragged sequences."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import after, assert_true
from lodestar._typing import Shape
from lodestar.layers.ragged_layer import RaggedLayer
from lodestar.ops import symbolic_build
from lodestar.ops.sequence_op import ragged_rows
from lodestar.sequence import nesting


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
        layer: The layer, a model, or a function that maps a batch of rows
            `[N, ...]` to one row each. To load a saved model, Keras needs the function
            to be registered.
        name: Name of the layer. Other arguments of Keras layers, such as `dtype`
            and `trainable`, belong to `layer`.

    Raises:
        TypeError: `layer` is not callable.
        ValueError: An input is not ragged, or inputs have other numbers of levels.
        tf.errors.InvalidArgumentError: Inputs have sequences of other lengths, or
            `layer` does not return a row for each row.
    """

    @explained()
    def __init__(
        self,
        layer: keras.layers.Layer | Callable[..., Any],
        name: str | None = None,
    ):
        if not isinstance(layer, keras.layers.Layer):
            if not callable(layer):
                raise TypeError(
                    f"`layer` must be a Keras layer or a function, got {layer!r}."
                )
            layer = keras.layers.Lambda(layer)
        super().__init__(name=name)
        self.layer = layer

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        # Before `build`, whose errors would be about shapes.
        self._ragged(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def build(self, input_shape: Any) -> None:
        if not self.layer.built:
            # Unlike `layer.build`, a call also builds layers inside the layer.
            self.layer(
                keras.tree.map_shape_structure(
                    lambda shape: keras.Input(shape[_num_axes(shape) :]),
                    input_shape,
                )
            )

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        named = self._ragged(inputs)
        rows, splits = nesting.aligned(named)
        count = tf.shape(rows[0], tf.int64)[0]
        results = self._apply(
            keras.tree.pack_sequence_as(inputs, rows), count, training
        )
        like = next(iter(named.values()))

        def nest(result: Any) -> Any:
            return nesting.pack_like(like, self._checked(result, count), splits)

        return keras.tree.map_structure(nest, results)

    def _apply(self, rows: Any, count: tf.Tensor, training: bool | None) -> Any:
        """Calls the layer, but does not train its statistics without rows."""
        if not training or not _has_statistics(self.layer):
            return self.layer(rows)
        # The mean of no rows is NaN, which BatchNormalization would keep.
        return tf.cond(
            count > 0,
            lambda: self.layer(rows),
            lambda: self.layer(rows, training=False),
        )

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

    def _checked(self, result: Any, count: tf.Tensor) -> tf.Tensor:
        """Returns `result`, which must have `count` rows."""
        result = tf.convert_to_tensor(result)
        wanted = (
            f"The layer '{self.layer.name}' must return a row for each step,"
        )
        if result.shape.rank == 0:
            raise ValueError(f"{wanted} got a scalar.")
        found = tf.shape(result, tf.int64)[0]
        check = assert_true(
            tf.equal(found, count),
            [wanted, "got", found, "for", count, "steps"],
        )
        return after(check, result)

    def compute_output_spec(
        self, inputs: Any, training: bool | None = None
    ) -> Any:
        named = self._ragged(inputs)
        shape = next(iter(named.values())).shape
        levels = shape[: _num_axes(shape)]
        results = self.layer(
            keras.tree.map_structure(
                lambda x: keras.Input(
                    x.shape[_num_axes(x.shape) :], dtype=x.dtype
                ),
                inputs,
            )
        )
        return keras.tree.map_structure(
            lambda y: ragged_rows(self, (*levels, *y.shape[1:]), y.dtype),
            results,
        )

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "layer": keras.saving.serialize_keras_object(self.layer),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "PerStep":
        layer = keras.saving.deserialize_keras_object(config["layer"])
        return cls(layer, name=config["name"])


def _num_axes(shape: Shape) -> int:
    """Returns the number of axes above the rows in a symbolic ragged shape."""
    return symbolic_build.ragged_rank(shape) + 1


def _has_statistics(layer: keras.layers.Layer) -> bool:
    """Whether a call with `training` may change weights, as BatchNormalization."""
    takes_training = "training" in inspect.signature(layer.call).parameters
    return takes_training and bool(layer.non_trainable_weights)
