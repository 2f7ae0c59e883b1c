"""Sequence functions as operations of Keras functional models."""

import functools
from collections.abc import Callable, Iterable, Sequence
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

        def symbolic_result(result: Any) -> keras.KerasTensor:
            if hasattr(result, "to_ragged"):
                result = result.to_ragged()
            shape, dtype = tuple(result.shape.as_list()), result.dtype.name
            if not isinstance(result, tf.RaggedTensor):
                return keras.KerasTensor(shape, dtype)
            return ragged_rows(self, shape, dtype)

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
            outputs.append(keras.tree.map_structure(symbolic_result, results))

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


def ragged_rows(
    maker: keras.Operation, shape: Sequence[int | None], dtype: str
) -> keras.KerasTensor:
    """Returns a symbolic ragged result of `maker`.

    A Keras layer that is called on it raises.
    """
    _private.watch_consumers(maker, _refuse_layers_of_keras)
    return RaggedRows(shape, dtype, ragged=True)


def _operator(symbol: str, reflected: bool = False) -> Callable[..., Any]:
    """Returns a method that adds the operation of lodestar.sequence.arithmetic."""

    def method(self: keras.KerasTensor, other: Any) -> keras.KerasTensor:
        x, y = (other, self) if reflected else (self, other)
        return SequenceOp(symbol)(x, y)

    return method


class RaggedRows(keras.KerasTensor):
    """A ragged KerasTensor that arithmetic keeps ragged."""

    # Arrays on the left leave the operation to the methods below.
    __array_ufunc__ = None

    __add__ = _operator("add")
    __radd__ = _operator("add", reflected=True)
    __sub__ = _operator("sub")
    __rsub__ = _operator("sub", reflected=True)
    __mul__ = _operator("mul")
    __rmul__ = _operator("mul", reflected=True)
    __truediv__ = _operator("truediv")
    __rtruediv__ = _operator("truediv", reflected=True)
    __pow__ = _operator("pow")
    __rpow__ = _operator("pow", reflected=True)

    def __neg__(self) -> keras.KerasTensor:
        return 0 - self


_EACH_STEP = (
    "To apply it to each step, wrap it: lodestar.layers.PerStep({layer}(...)). "
    "Otherwise call it after lodestar.sequence.pool, or between "
    "lodestar.sequence.pad and unpad."
)
# What to use in place of layers that do not act on each step separately.
_INSTEAD: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("RNN", "Bidirectional"),
        "Call it on the padded tensor of lodestar.sequence.pad, which carries its "
        "mask, and use lodestar.sequence.unpad for the steps of its result.",
    ),
    (
        (
            "MultiHeadAttention",
            "GroupQueryAttention",
            "Attention",
            "AdditiveAttention",
        ),
        "Use lodestar.layers.SequenceAttention or TargetAttention, or "
        "lodestar.sequence.attention; or call it on the padded tensor of "
        "lodestar.sequence.pad, which carries its mask.",
    ),
    (
        ("GlobalAveragePooling1D", "GlobalMaxPooling1D"),
        "Use lodestar.sequence.pool, which also defines the result of an empty "
        "sequence.",
    ),
    (("Conv1D",), "Use lodestar.layers.SequenceConv."),
)


def _refuse_layers_of_keras(
    operation: keras.Operation, inputs: Sequence[keras.KerasTensor]
) -> None:
    """Raises TypeError if a layer of Keras is about to take ragged rows.

    The layer would return a KerasTensor that claims to be dense, and later fail with a
    TensorFlow error or compute NaN for an empty sequence. Models and user-defined
    layers are not checked, nor are integers, which layers for ids accept.
    """
    kind = type(operation)
    rows = [
        x
        for x in inputs
        if isinstance(x, RaggedRows) and keras.backend.is_float_dtype(x.dtype)
    ]
    of_keras = getattr(keras.layers, kind.__name__, None) is kind
    if not rows or not of_keras or isinstance(operation, keras.layers.Lambda):
        return
    advice = _EACH_STEP
    for names, instead in _INSTEAD:
        kinds = tuple(getattr(keras.layers, name) for name in names)
        if isinstance(operation, kinds):
            advice = instead
    raise TypeError(
        f"The layer '{operation.name}' ({kind.__name__}) got ragged rows of shape "
        f"{rows[0].shape}, but layers of Keras take dense tensors. "
        f"{advice.format(layer=kind.__name__)}"
    )
