"""Types in signatures of several folders."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

import keras
import numpy.typing as npt
import tensorflow as tf

# A path, and one or more paths.
StrPath: TypeAlias = str | os.PathLike[str]
StrPaths: TypeAlias = StrPath | Iterable[StrPath]

# Input of `tf.convert_to_tensor`.
TensorLike: TypeAlias = tf.Tensor | npt.ArrayLike

# The dtype policy of a Keras layer, or the name of one.
DTypePolicy: TypeAlias = str | keras.DTypePolicy

# What Keras makes initializers, regularizers and constraints from.
KerasLike: TypeAlias = str | Mapping[str, Any] | Callable[..., Any]

# A static shape, as in Keras: None for an unknown dimension.
Shape: TypeAlias = tuple[int | None, ...]

# How a lookup or a pooling combines rows.
Combiner: TypeAlias = Literal["sum", "mean", "sqrtn", "max", "first", "last"]

# Number of batches, or once per epoch.
Every: TypeAlias = int | Literal["epoch"]

# Learning rate of a Keras optimizer: a number or a schedule.
LearningRate: TypeAlias = float | Callable[..., Any]


# TensorFlow and Keras have no types, so for mypy their objects fit everywhere. These
# classes refuse other objects, such as a path in place of a model.
class HasVariables(Protocol):
    """A Keras model or layer, or a `tf.Module`."""

    @property
    def trainable_variables(self) -> Any:
        """The variables that training changes."""


class Model(HasVariables, Protocol):
    """A `keras.Model`."""

    @property
    def distribute_strategy(self) -> Any:
        """The strategy in whose scope the model was made, or None."""

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the metrics."""

    def get_layer(self, name: Any = None, index: Any = None) -> Any:
        """Returns a layer."""


class SavedModel(Protocol):
    """What `tf.saved_model.load` returns."""

    @property
    def signatures(self) -> Any:
        """The functions to serve."""


class Optimizer(Protocol):
    """A `keras.optimizers.Optimizer`."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Updates variables."""


class Configurable(Protocol):
    """An object with a Keras config, such as an initializer."""

    def get_config(self) -> Any:
        """Returns the config."""


# What `keras.optimizers.get` takes.
OptimizerLike: TypeAlias = str | Mapping[str, Any] | Optimizer

# A dense, ragged or sparse tensor, and what is converted to one, such as ids.
AnyTensor: TypeAlias = tf.Tensor | tf.RaggedTensor | tf.SparseTensor
AnyTensorLike: TypeAlias = AnyTensor | npt.ArrayLike

# Input of `tf.as_dtype`.
DTypeLike: TypeAlias = tf.DType | npt.DTypeLike

# Gradients of the inputs of an op, or None.
Grads: TypeAlias = tuple[tf.Tensor | tf.IndexedSlices | None, ...]
