"""Python functions that datasets call: ownership, errors and shutdown.

TensorFlow keeps every Python function that a graph calls, with everything it refers
to, until the process ends. This module therefore registers just two functions with
TensorFlow. They call a `PythonFunction` by its number, which its dataset owns.

TensorFlow reports an exception from such a function inside its own traceback. Both
functions therefore return an error in the data as a value, and the op PythonResult
raises it.

When the interpreter exits, it kills each thread that waits for it, even inside
TensorFlow. An iterator that such a thread prefetches for would never be destroyed,
and the process would not end. Therefore no call begins once Python's exit handlers
run, and running calls are waited for.
"""

import atexit
import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._errors import DataError, describe_error
from lodestar._library import gen_ops

_NUMBERS = itertools.count()
# Errors in the data. Any other exception is a bug and keeps its traceback.
_DATA_ERRORS = (DataError, tf.errors.OpError)


class PythonFunction:
    """A Python function that functions of tf.data call.

    A DataError in the function becomes a tf.errors.InvalidArgumentError with the same
    message. A tf.errors.OpError is raised unchanged.

    >>> function = PythonFunction(
    ...     lambda x: [x + 1], [tf.TensorSpec([], tf.int64)])
    >>> dataset = tf.data.Dataset.range(3).map(lambda x: function.call(x)[0])
    >>> function.belongs_to(dataset)
    """

    def __init__(
        self, function: Callable[..., Any], specs: Iterable[tf.TensorSpec]
    ):
        """Registers the function until this object or its dataset is freed.

        Args:
            function: Called with NumPy arrays. Returns a sequence with one array
                per spec, or is a generator function of such sequences.
            specs: Dtypes and shapes of the arrays, all of known rank.
        """
        self.function: Callable[..., Any] | None = function
        self.specs = tuple(specs)
        self._number = next(_NUMBERS)
        _functions[self._number] = self

    def belongs_to(self, dataset: tf.data.Dataset) -> None:
        """Makes a dataset, and the datasets derived from it, own the function.

        Inside a `tf.function`, the function is kept until the process ends,
        once per trace.
        """
        if tf.inside_function():
            _kept.append(self)
            return
        # The variant outlives the Python object if a function captures it.
        variant = tf.data.experimental.to_variant(dataset)
        weakref.finalize(variant, self._free).atexit = False

    def call(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        """Calls the stateless function; at least one input must not be constant."""
        _stop_at_exit()
        number = tf.constant(self._number, tf.int64)
        given = gen_ops.lodestar_python_call_begin(values=[number, *inputs])
        found = tf.raw_ops.PyFuncStateless(
            input=given.same,
            token=_call_token()[0],
            Tout=[tf.string, *(spec.dtype for spec in self.specs)],
        )
        found = gen_ops.lodestar_python_call_end(call=given.call, values=found)
        values = _result(*found)
        for value, spec in zip(values, self.specs, strict=True):
            value.set_shape(spec.shape)
        return values

    def generate(self, *inputs: tf.Tensor) -> tf.data.Dataset:
        """Returns a dataset of the tuples that the generator function yields."""
        variant = _generated(
            tuple(tf.TensorSpec.from_tensor(x) for x in inputs), self.specs
        )
        number = tf.constant(self._number, tf.int64)
        return tf.data.experimental.from_variant(
            variant(number, *inputs), self.specs
        )

    def error_result(self, error: BaseException) -> tuple[Any, ...]:
        """Returns an error, and empty values, as inputs of PythonResult."""
        code = tf.errors.INVALID_ARGUMENT
        if isinstance(error, tf.errors.OpError):
            code = error.error_code
        text = bytes([code]) + describe_error(error).encode(errors="replace")
        return text, *map(_zeros, self.specs)

    def _free(self) -> None:
        self.function = None


_functions: weakref.WeakValueDictionary[int, PythonFunction] = (
    weakref.WeakValueDictionary()
)
_kept: list[PythonFunction] = []


def _call(number: Any, *args: Any) -> tuple[Any, ...]:
    """Calls a function; returns inputs of PythonResult."""
    python, function = _find(number)
    try:
        return b"", *function(*args)
    except _DATA_ERRORS as error:
        return python.error_result(error)


def _generate(number: Any, *args: Any) -> Iterator[tuple[Any, ...]]:
    """Calls a generator function; yields inputs of PythonResult."""
    python, function = _find(number)
    try:
        for values in function(*args):
            yield b"", *values
    except _DATA_ERRORS as error:
        yield python.error_result(error)


def _find(number: Any) -> tuple[PythonFunction, Callable[..., Any]]:
    python = _functions.get(int(number))
    function = None if python is None else python.function
    if python is None or function is None:
        raise RuntimeError(
            "The data of this iterator was freed with its dataset. Keep the "
            "dataset as long as its iterators."
        )
    return python, function


def _zeros(spec: tf.TensorSpec) -> np.ndarray:
    dtype = np.bytes_ if spec.dtype == tf.string else spec.dtype.as_numpy_dtype
    return np.zeros([dim or 0 for dim in spec.shape], dtype)


def _result(error: tf.Tensor, *values: tf.Tensor) -> list[tf.Tensor]:
    return gen_ops.lodestar_python_result(error=error, values=values)


@functools.cache
def _call_token() -> tuple[str, tf.Graph]:
    """Returns TensorFlow's token for `_call`, and the graph that keeps it valid."""
    graph = tf.Graph()
    with graph.as_default():
        called = tf.numpy_function(
            _call, [tf.constant(0)], tf.int64, stateful=False
        )
    return called.op.get_attr("token").decode(), graph


@functools.cache
def _generated(
    inputs: tuple[tf.TensorSpec, ...], specs: tuple[tf.TensorSpec, ...]
) -> Callable[..., tf.Tensor]:
    """Returns a function that makes the variant of a dataset of `_generate`."""

    @tf.autograph.experimental.do_not_convert
    def checked(*found: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(_result(*found))

    @tf.function(
        input_signature=[tf.TensorSpec([], tf.int64), *inputs], autograph=False
    )
    def variant(number: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
        dataset = tf.data.Dataset.from_generator(
            _generate,
            args=(number, *inputs),
            output_signature=(tf.TensorSpec([], tf.string), *specs),
        )
        return tf.data.experimental.to_variant(dataset.map(checked))

    return variant


def before_calls_stop(function: Callable[[], None]) -> Callable[[], None]:
    """Registers a function to run at exit, while calls still work."""
    _before.append(function)
    return function


_before: list[Callable[[], None]] = []


@functools.cache
def _stop_at_exit() -> None:
    """Registers the exit handler on the first call: it starts TensorFlow's runtime."""
    atexit.register(_stop)


def _stop() -> None:
    for function in _before:
        function()
    gen_ops.lodestar_python_calls_stop()
