"""Arithmetic on ragged rows of functional models."""

import operator
from typing import Any

import tensorflow as tf

from lodestar.ops import symbolic_build
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.sequence import nesting


def _arithmetic(symbol: str, x: Any, y: Any) -> Any:
    """Computes `operator.symbol(x, y)` for each number of ragged rows.

    Args:
        symbol: Name of a function of the `operator` module.
        x: Ragged rows, or a number or tensor that is the same for all rows.
        y: The same. Requires: one of them is ragged.

    Raises:
        ValueError: A dense tensor has more axes than a row, or rows of the inputs have
            other ranks.
        tf.errors.InvalidArgumentError: Lengths of sequences differ.
    """
    # Keras also runs this with dense placeholders, for rows but not for numbers.
    given = {"x": symbolic_build.as_ragged(x), "y": symbolic_build.as_ragged(y)}
    ragged = {k: v for k, v in given.items() if isinstance(v, tf.RaggedTensor)}
    rows, splits = nesting.aligned(ragged)
    rank = rows[0].shape.rank
    for name, flat in zip(ragged, rows, strict=True):
        if flat.shape.rank != rank:
            raise ValueError(
                f"Ragged rows must have the same number of axes, got rows of shape "
                f"{rows[0].shape[1:]} and {flat.shape[1:]}."
            )
        if flat.dtype != rows[0].dtype:
            raise TypeError(
                f"Ragged rows must have the same dtype, got {rows[0].dtype.name} and "
                f"{flat.dtype.name}."
            )
        given[name] = flat
    for name in given.keys() - ragged.keys():
        dense = tf.convert_to_tensor(given[name], rows[0].dtype)
        if dense.shape.rank is None or dense.shape.rank >= rank:
            raise ValueError(
                f"A dense operand of ragged rows must be a number or one row of shape "
                f"{rows[0].shape[1:]}, got shape {dense.shape}. To use another row "
                "for each sequence, repeat it with lodestar.sequence.expand_as."
            )
        given[name] = dense
    result = getattr(operator, symbol)(given["x"], given["y"])
    return nesting.pack_like(next(iter(ragged.values())), result, splits)


def _register(symbol: str) -> None:
    """Makes the function of the operators of symbolic ragged rows."""

    def function(x: Any, y: Any) -> Any:
        return _arithmetic(symbol, x, y)

    function.__name__ = symbol
    takes_keras_tensors(function)


for _symbol in ("add", "sub", "mul", "truediv", "pow"):
    _register(_symbol)
