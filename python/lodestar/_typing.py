"""Types that signatures of several folders have in common."""

import os
from collections.abc import Iterable
from typing import TypeAlias

import numpy.typing as npt
import tensorflow as tf

# A path, and one or more of them.
StrPath: TypeAlias = str | os.PathLike[str]
StrPaths: TypeAlias = StrPath | Iterable[StrPath]

# What `tf.convert_to_tensor` takes.
TensorLike: TypeAlias = tf.Tensor | npt.ArrayLike

# A static shape, as Keras keeps it: None where a dimension is unknown.
Shape: TypeAlias = tuple[int | None, ...]

# A tensor that is dense, ragged or sparse.
AnyTensor: TypeAlias = tf.Tensor | tf.RaggedTensor | tf.SparseTensor

# Of an op, for each of its inputs; None for one that has none.
Grads: TypeAlias = tuple[tf.Tensor | tf.IndexedSlices | None, ...]
