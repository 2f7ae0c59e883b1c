"""Calls of Python in functions of tf.data, which end before the interpreter.

A thread that waits for the interpreter where that ends is ended by it, in the
middle of TensorFlow's work; an iterator that this thread prefetches for is then
never destroyed, and so the process never ends. So calls of ours begin no more
when Python's exit handlers run, and those that have begun are waited for.

An exception in such a function would reach the user inside a traceback of
TensorFlow's and our own frames. Errors in the data are returned as a value
instead, and an op raises them.
"""

import atexit
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._errors import DataError, describe_error
from lodestar._library import gen_ops

# Errors in the data, and not of a program.
_TOLD = (DataError, tf.errors.OpError)


def call_python(
    function: Callable[..., Any],
    inputs: Sequence[tf.Tensor],
    dtypes: Sequence[tf.DType],
) -> list[tf.Tensor]:
    """Calls a stateless function in a graph, like `tf.numpy_function`.

    Args:
        function: Takes NumPy arrays and returns one array per dtype.
        inputs: The arguments, at least one, not all of them constants.
        dtypes: The dtypes of the results.

    Raises:
        tf.errors.CancelledError: The interpreter ends.
        tf.errors.InvalidArgumentError: The function raises a DataError, whose
            message this error has.
        tf.errors.OpError: The function raises this error.
    """
    _stop_at_exit()

    @tf.autograph.experimental.do_not_convert
    def told(*arrays: Any) -> tuple[Any, ...]:
        try:
            values = function(*arrays)
        except _TOLD as error:
            return _encoded(error), *(_zeros([0], dtype) for dtype in dtypes)
        return b"", *(values if isinstance(values, (list, tuple)) else [values])

    given = gen_ops.lodestar_python_call_begin(values=inputs)
    found = tf.numpy_function(
        told, given.same, [tf.string, *dtypes], stateful=False
    )
    found = gen_ops.lodestar_python_call_end(call=given.call, values=found)
    return _result(*found)


def generated_elements(
    function: Callable[..., Iterable[Sequence[Any]]],
    inputs: Sequence[Any],
    specs: Sequence[tf.TensorSpec],
) -> tf.data.Dataset:
    """Returns a dataset of the tuples that a generator function yields.

    Args:
        function: Takes NumPy arrays and yields tuples of arrays.
        inputs: The arguments.
        specs: The components of a tuple.

    Raises:
        As `call_python`, but tf.errors.CancelledError, while reading.
    """

    def told(*arrays: Any) -> Iterator[tuple[Any, ...]]:
        try:
            for values in function(*arrays):
                yield b"", *values
        except _TOLD as error:
            none = [
                _zeros([dim or 0 for dim in spec.shape], spec.dtype)
                for spec in specs
            ]
            yield _encoded(error), *none

    dataset = tf.data.Dataset.from_generator(
        told,
        args=tuple(inputs),
        output_signature=(tf.TensorSpec([], tf.string), *specs),
    )

    @tf.autograph.experimental.do_not_convert
    def checked(*found: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(_result(*found))

    return dataset.map(checked)


def _encoded(error: BaseException) -> bytes:
    """What the op PythonResult takes as its error."""
    code = tf.errors.INVALID_ARGUMENT
    if isinstance(error, tf.errors.OpError):
        code = error.error_code
    return bytes([code]) + describe_error(error).encode(errors="replace")


def _zeros(shape: Sequence[int], dtype: tf.DType) -> np.ndarray:
    is_text = dtype == tf.string
    return np.zeros(shape, np.bytes_ if is_text else dtype.as_numpy_dtype)


def _result(error: tf.Tensor, *values: tf.Tensor) -> list[tf.Tensor]:
    return gen_ops.lodestar_python_result(error=error, values=values)


def before_calls_stop(function: Callable[[], None]) -> Callable[[], None]:
    """Has a function run as Python ends, where calls that are under way still are."""
    _before.append(function)
    return function


_before: list[Callable[[], None]] = []


@functools.cache
def _stop_at_exit() -> None:
    """Not before there is a call: to stop them starts TensorFlow's runtime."""
    atexit.register(_stop)


def _stop() -> None:
    for function in _before:
        function()
    gen_ops.lodestar_python_calls_stop()
