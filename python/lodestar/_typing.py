"""Types in signatures of several folders."""

import os
from collections.abc import Iterable
from typing import Literal, TypeAlias

import keras
import numpy.typing as npt
import tensorflow as tf

# A path, and one or more paths.
StrPath: TypeAlias = str | os.PathLike[str]
StrPaths: TypeAlias = StrPath | Iterable[StrPath]

# Input of `tf.convert_to_tensor`.
TensorLike: TypeAlias = tf.Tensor | npt.ArrayLike

# How rows of a bag are combined.
Combiner: TypeAlias = Literal["sum", "mean", "sqrtn", "max", "first", "last"]

# The dtype policy of a Keras layer, or the name of one.
DTypePolicy: TypeAlias = str | keras.DTypePolicy

# A static shape, as in Keras: None for an unknown dimension.
Shape: TypeAlias = tuple[int | None, ...]

# A dense, ragged or sparse tensor.
AnyTensor: TypeAlias = tf.Tensor | tf.RaggedTensor | tf.SparseTensor

# Gradients of the inputs of an op, or None.
Grads: TypeAlias = tuple[tf.Tensor | tf.IndexedSlices | None, ...]
