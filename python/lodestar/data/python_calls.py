"""Calls of Python in functions of tf.data, which end before the interpreter.

A thread that waits for the interpreter where that ends is ended by it, in the
middle of TensorFlow's work; an iterator that this thread prefetches for is then
never destroyed, and so the process never ends. So calls of ours begin no more
when Python's exit handlers run, and those that have begun are waited for.
"""

import atexit
import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from lodestar._library import gen_ops


def call_python(
    function: Callable[..., Any],
    inputs: Sequence[tf.Tensor],
    dtypes: Sequence[tf.DType],
) -> list[tf.Tensor]:
    """What a function without state returns, as `tf.numpy_function` does.

    Args:
        function: Called with NumPy arrays; returns as many as there are dtypes.
        inputs: Its arguments, one or more, not all of them constants.
        dtypes: Of what it returns.

    Raises:
        tf.errors.CancelledError: The interpreter ends.
    """
    _stop_at_exit()
    given = gen_ops.lodestar_python_call_begin(values=inputs)
    found = tf.numpy_function(function, given.same, dtypes, stateful=False)
    return gen_ops.lodestar_python_call_end(call=given.call, values=found)


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
