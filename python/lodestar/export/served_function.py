"""The function `serve` of an export, whose errors name the input at fault."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar import _private
from lodestar._checks import did_you_mean
from lodestar._errors import noting_graph_errors
from lodestar.export.batches import describe
from lodestar.export.signatures import Specs

# TensorFlow's name for the function of a callable object.
_FUNCTION = "__call__"


@_private.saved_class
class ServedFunction(tf.Module):
    """A model as a function of its inputs by name, or of its only input.

    A SavedModel loads with this class. Without the package, TensorFlow loads an object
    that can be called with a dict of the inputs.

    Args:
        function: A tf.function with the signature of a dict of inputs. TensorFlow sets
            it when it loads the object.
    """

    def __init__(self, function: Callable[..., Any] | None = None):
        super().__init__(name="served_function")
        if function is not None:
            setattr(self, _FUNCTION, function)

    @classmethod
    def of(cls, loaded: Any) -> "ServedFunction":
        """Returns a loaded `serve` as an object of this class."""
        if isinstance(loaded, cls):
            return loaded
        return cls(vars(loaded)[_FUNCTION])

    @tf.autograph.experimental.do_not_convert
    @noting_graph_errors()
    def __call__(self, features: Any) -> dict[str, Any]:
        """Returns output name -> tensor.

        Args:
            features: Input name -> tensor, or the tensor if there is one input.

        Raises:
            ValueError: An input is missing, unknown, or of another type.
        """
        if not isinstance(features, Mapping):
            features = self._by_name(features)
        for name, value in features.items():
            if isinstance(value, (np.ndarray, np.generic, list, tuple)):
                _check_numbers(name, value, self._specs.get(name))
        try:
            return vars(self)[_FUNCTION](features)
        except (TypeError, ValueError):
            reason = _why_refused(features, self._specs)
            if reason is None:
                raise
        raise ValueError(reason)

    @functools.cached_property
    def _specs(self) -> Specs:
        with tf.init_scope():
            concrete = vars(self)[_FUNCTION].get_concrete_function()
        ((specs,), _) = concrete.structured_input_signature
        return dict(specs)

    def _by_name(self, feature: Any) -> dict[str, Any]:
        if len(self._specs) != 1:
            raise ValueError(
                f"`features` must be a dict of the inputs {sorted(self._specs)}, "
                f"got a {type(feature).__name__}."
            )
        return dict.fromkeys(self._specs, feature)


def _why_refused(features: Mapping[str, Any], specs: Specs) -> str | None:
    """Returns why TensorFlow refused `features`, or None if their types are right."""
    missing = [name for name in specs if name not in features]
    unknown = [name for name in features if name not in specs]
    if missing:
        asked = (did_you_mean(str(name), missing) for name in unknown)
        return (
            f"`features` must have the inputs {sorted(specs)}, but {missing} "
            f"are missing, got {list(features)}."
            f"{next(filter(None, asked), '')}"
        )
    if unknown:
        return (
            f"`features` must have only the inputs {sorted(specs)}, got also "
            f"{unknown}. Leave them out."
        )
    for name, spec in specs.items():
        found = _spec_of(features[name])
        if found is None:
            return (
                f"The input {name!r} must be {describe(spec)}, got the "
                f"type {type(features[name]).__name__}."
            )
        if not spec.is_compatible_with(found):
            return (
                f"The input {name!r} must be {describe(spec)}, got "
                f"{describe(found)}.{_advice(spec, found)}"
            )
    return None


def _check_numbers(name: str, value: Any, spec: tf.TypeSpec | None) -> None:
    """Raises ValueError for numbers that TensorFlow would cut or wrap."""
    if not isinstance(spec, tf.TensorSpec) or not spec.dtype.is_integer:
        return
    try:
        array = np.asarray(value)
    except ValueError:  # Lists of different lengths, which TensorFlow refuses.
        return
    limits = np.iinfo(spec.dtype.as_numpy_dtype)
    what = ""
    if array.dtype.kind in "iu" and array.size:
        # uint64 ids are those of the same bits.
        if array.dtype.itemsize <= limits.dtype.itemsize or (
            limits.min <= array.min() and array.max() <= limits.max
        ):
            return
        what = f" with numbers outside of [{limits.min}, {limits.max}]"
    elif array.dtype.kind == "b" or not array.size:
        return
    found = _spec_of(array)
    if found is not None:
        raise ValueError(
            f"The input {name!r} must be {describe(spec)}, got "
            f"{describe(found)}{what}."
        )


def _spec_of(value: Any) -> Any:
    if not tf.is_tensor(value) and not isinstance(value, tf.TypeSpec):
        try:
            value = np.asarray(value)
            dtype = tf.as_dtype(value.dtype)
        except (TypeError, ValueError):
            return None
        texts = all(isinstance(x, (str, bytes)) for x in value.flat)
        if value.dtype == object and not texts:
            return None
        return tf.TensorSpec(value.shape, dtype)
    return tf.type_spec_from_value(value)


def _advice(spec: Any, found: Any) -> str:
    if isinstance(spec, tf.RaggedTensorSpec) and isinstance(
        found, tf.TensorSpec
    ):
        return " Use tf.ragged.constant, or tf.RaggedTensor.from_tensor with `padding`."
    if type(spec) is type(found) and spec.shape.is_compatible_with(found.shape):
        if tf.string not in (spec.dtype, found.dtype):
            return f" Convert it with tf.cast(x, tf.{spec.dtype.name})."
    return ""
