"""Sequence functions as operations of Keras functional models."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import keras
import tensorflow as tf

from lodestar import _private
from lodestar._checks import check_choice
from lodestar.ops.symbolic_build import ragged_rank

_Function = TypeVar("_Function", bound=Callable[..., Any])
# By the names in saved models.
_FUNCTIONS: dict[str, Callable[..., Any]] = {}


def takes_keras_tensors(function: _Function) -> _Function:
    """Makes a function of tensors accept KerasTensors, as `keras.ops` do.

    A call with a KerasTensor as an argument, or in a list of arguments, adds a
    `SequenceOp` to the functional model and returns KerasTensors.
    """
    operation = function.__name__.lstrip("_")
    _FUNCTIONS[operation] = function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _any_symbolic(args) or _any_symbolic(kwargs.values()):
            name = kwargs.pop("name", None)
            return SequenceOp(operation, name=name)(*args, **kwargs)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def _any_symbolic(arguments: Iterable[Any]) -> bool:
    return any(
        isinstance(x, keras.KerasTensor)
        or (isinstance(x, list | tuple) and _any_symbolic(x))
        for x in arguments
    )


@keras.saving.register_keras_serializable(package="lodestar")
class SequenceOp(keras.layers.Layer):
    """Calls a function registered by `takes_keras_tensors`.

    Keras saves the arguments of the call as part of the functional model. It is a layer
    because only a layer can prevent Keras from compiling the model with XLA.

    Args:
        function: Name of the function.
        **kwargs: Arguments of every Keras layer.
    """

    def __init__(self, function: str, **kwargs: Any):
        check_choice("function", function, list(_FUNCTIONS))
        if kwargs.get("name") is None:
            prefix = f"sequence_{function}"
            count = keras.backend.get_uid(prefix)
            kwargs["name"] = prefix if count == 1 else f"{prefix}_{count - 1}"
        super().__init__(**kwargs)
        self.function = function
        self.supports_jit = False
        self.built = True

    def __call__(self, *args: Any, training: Any = None, **kwargs: Any) -> Any:
        """Calls the function, or adds a node to a functional model.

        `Layer.__call__` would cast the arguments and refuse LoDTensors.
        """
        return keras.Operation.__call__(self, *args, **kwargs)

    def symbolic_call(self, *args: Any, **kwargs: Any) -> Any:
        """Adds the node, which `Layer` does in `__call__`."""
        return keras.Operation.symbolic_call(self, *args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return _FUNCTIONS[self.function](*args, **kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Traces the function to get the shapes and dtypes of its results."""
        arguments = (args, kwargs)
        symbolic = [x for x in keras.tree.flatten(arguments) if _is_symbolic(x)]
        outputs: list[Any] = []

        def trace(*placeholders: Any) -> None:
            for tensor, placeholder in zip(symbolic, placeholders, strict=True):
                if not tensor.ragged:
                    # For the error if it must be ragged.
                    _private.copy_history(tensor, placeholder)
            rest = iter(placeholders)
            args, kwargs = keras.tree.map_structure(
                lambda x: next(rest) if _is_symbolic(x) else x, arguments
            )
            results = self.call(*args, **kwargs)
            outputs.append(keras.tree.map_structure(_keras_tensor, results))

        function = tf.function(
            trace, [_type_spec(x) for x in symbolic], autograph=False
        )
        function.get_concrete_function()
        return outputs[0]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "function": self.function}


def _is_symbolic(x: Any) -> bool:
    return isinstance(x, keras.KerasTensor)


def _type_spec(x: keras.KerasTensor) -> tf.TypeSpec:
    if x.ragged:
        return tf.RaggedTensorSpec(x.shape, x.dtype, ragged_rank(x.shape))
    return tf.TensorSpec(x.shape, x.dtype)


def _keras_tensor(x: Any) -> keras.KerasTensor:
    """Returns a KerasTensor like `x`; a LoDTensor becomes ragged."""
    if hasattr(x, "to_ragged"):
        x = x.to_ragged()
    ragged = isinstance(x, tf.RaggedTensor)
    return keras.KerasTensor(
        tuple(x.shape.as_list()), x.dtype.name, ragged=ragged
    )
