"""What the layers of sequences share."""

from typing import Any

import keras
import tensorflow as tf

from lodestar._typing import Shape
from lodestar.ops import symbolic_build
from lodestar.ragged import LoDTensor
from lodestar.sequence import nesting


class SequenceLayer(keras.layers.Layer):
    """A layer of sequences: RaggedTensors or LoDTensors in, never cast.

    A LoDTensor passes as the RaggedTensor it is, and with one among the inputs
    the ragged results are LoDTensors.
    """

    # Arguments beside those of every layer, kept as attributes of their names.
    arguments: tuple[str, ...] = ()

    def __init__(self, **kwargs: Any):
        if kwargs.get("activity_regularizer") is not None:
            raise ValueError(
                f"{type(self).__name__} takes no `activity_regularizer`: Keras "
                "has none for ragged outputs"
            )
        # A cast in Keras would make a symbolic ragged input a dense one.
        kwargs.pop("autocast", None)
        super().__init__(autocast=False, **kwargs)
        self.supports_jit = False

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the layer; Keras takes only the tensors it knows as inputs."""
        if not any(
            isinstance(x, LoDTensor) for x in keras.tree.flatten(inputs)
        ):
            return super().__call__(inputs, *args, **kwargs)
        inputs = keras.tree.map_structure(lod_to_ragged, inputs)
        outputs = super().__call__(inputs, *args, **kwargs)
        return keras.tree.map_structure(ragged_to_lod, outputs)

    def check_ragged(self, x: Any, name: str = "input") -> Any:
        """Returns a ragged `x`, or what a placeholder of Keras represents.

        Raises:
            ValueError: `x` is dense.
        """
        x = symbolic_build.as_ragged(x)
        if is_ragged(x):
            return x
        raise ValueError(
            f"{self.name} needs a ragged {name}, found a dense one of shape "
            f"{x.shape}; use keras.Input(..., ragged=True), and to export "
            "lodestar.export.save"
        )

    def pair(self, inputs: Any, names: str) -> tuple[Any, Any]:
        """Returns both; ValueError unless `inputs` is a list or tuple of two."""
        if isinstance(inputs, (list, tuple)) and len(inputs) == 2:
            return tuple(inputs)
        found = type(inputs).__name__
        if isinstance(inputs, (list, tuple)):
            found = f"{len(inputs)} inputs"
        raise ValueError(f"{self.name} takes [{names}], found {found}")

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Returns the input's shape, which is the output's unless overridden."""
        return tuple(input_shape)

    def compute_output_spec(
        self, inputs: keras.KerasTensor
    ) -> keras.KerasTensor:
        return self.symbolic_output(inputs)

    def get_config(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in self.arguments}
        return {**super().get_config(), **own}

    def symbolic_of_two(
        self, x: keras.KerasTensor, y: keras.KerasTensor, ragged: bool = True
    ) -> keras.KerasTensor:
        """Returns a symbolic output for two inputs, of the dtype of the first."""
        shape = self.compute_output_shape([x.shape, y.shape])
        return keras.KerasTensor(shape, x.dtype, ragged=ragged)

    def symbolic_output(
        self,
        x: keras.KerasTensor,
        dtype: str | None = None,
        ragged: bool = True,
    ) -> keras.KerasTensor:
        """Returns a symbolic output for `x`, which must be ragged."""
        self.check_ragged(x)
        return keras.KerasTensor(
            self.compute_output_shape(x.shape), dtype or x.dtype, ragged=ragged
        )


def lengths_of(x: tf.RaggedTensor | LoDTensor) -> tf.Tensor:
    """Returns the lengths of the innermost sequences."""
    _, splits = nesting.flatten("input", x)
    return splits[-1][1:] - splits[-1][:-1]


def is_ragged(x: Any) -> bool:
    """Returns whether `x` is a RaggedTensor or a symbolic ragged input."""
    return isinstance(x, tf.RaggedTensor) or (
        isinstance(x, keras.KerasTensor) and bool(x.ragged)
    )


def ragged_to_lod(x: Any) -> Any:
    """Returns a RaggedTensor's LoDTensor, anything else as it is."""
    if not isinstance(x, tf.RaggedTensor):
        return x
    return LoDTensor(x.flat_values, x.nested_row_splits)


def lod_to_ragged(x: Any) -> Any:
    """Returns a LoDTensor's RaggedTensor, anything else as it is."""
    return x.to_ragged() if isinstance(x, LoDTensor) else x
