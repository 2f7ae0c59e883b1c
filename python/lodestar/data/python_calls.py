"""Python functions that datasets call: their owners, and the end of calls.

TensorFlow keeps every Python function that a graph calls, and everything it
refers to, until the process ends. This module therefore registers two functions
with TensorFlow, once. They look up a `PythonFunction` by its number and call it,
and the dataset owns the `PythonFunction`.

When the interpreter exits, it kills each thread that waits for it, even in the
middle of TensorFlow's work. An iterator that such a thread prefetches for is never
destroyed, and the process never ends. Therefore no call begins once Python's exit
handlers run, and running calls are waited for.
"""

import atexit
import functools
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from lodestar._library import gen_ops

_NUMBERS = itertools.count()


class PythonFunction:
    """A Python function that functions of tf.data call.

    >>> function = PythonFunction(lambda x: x + 1)
    >>> dataset = tf.data.Dataset.range(3).map(
    ...     lambda x: function.call([x], [tf.int64])[0])
    >>> function.belongs_to(dataset)
    """

    def __init__(self, function: Callable[..., Any]):
        """Registers the function, which is called with NumPy arrays.

        The function is freed with this object unless a dataset owns it.
        """
        self._function: Callable[..., Any] | None = function
        self._number = next(_NUMBERS)
        _functions[self._number] = self

    def belongs_to(self, dataset: tf.data.Dataset) -> None:
        """Makes a dataset, and the datasets derived from it, own the function.

        A function whose dataset is made inside a `tf.function` is kept until the
        process ends. There is one for each trace.
        """
        if tf.inside_function():
            _kept.append(self)
            return
        # The variant outlives the Python object where a function captures it.
        variant = tf.data.experimental.to_variant(dataset)
        weakref.finalize(variant, self._free).atexit = False

    def call(
        self, inputs: Sequence[tf.Tensor], dtypes: Sequence[tf.DType]
    ) -> list[tf.Tensor]:
        """Calls the function, which has no state, as `tf.numpy_function` does.

        Args:
            inputs: One or more arguments, not all of them constants.
            dtypes: One dtype for each array that the function returns.

        Raises:
            tf.errors.CancelledError: The interpreter ends.
        """
        _stop_at_exit()
        number = tf.constant(self._number, tf.int64)
        given = gen_ops.lodestar_python_call_begin(values=[number, *inputs])
        found = tf.raw_ops.PyFuncStateless(
            input=given.same, token=_call_token()[0], Tout=list(dtypes)
        )
        return gen_ops.lodestar_python_call_end(call=given.call, values=found)

    def generate(
        self, args: Sequence[tf.Tensor], signature: Any
    ) -> tf.data.Dataset:
        """Makes a dataset of a generator, as `Dataset.from_generator` does.

        Args:
            args: The arguments of the generator.
            signature: A TensorSpec, or a tuple of them.
        """
        variant = _generated(
            tuple(tf.TensorSpec.from_tensor(arg) for arg in args), signature
        )
        number = tf.constant(self._number, tf.int64)
        return tf.data.experimental.from_variant(
            variant(number, *args), signature
        )

    def _free(self) -> None:
        self._function = None


_functions: weakref.WeakValueDictionary[int, PythonFunction] = (
    weakref.WeakValueDictionary()
)
_kept: list[PythonFunction] = []


def _function_of(number: Any) -> Callable[..., Any]:
    found = _functions.get(int(number))
    function = None if found is None else found._function
    if function is None:
        raise RuntimeError(
            "What this iterator reads was freed with its dataset. Keep the "
            "dataset as long as its iterators."
        )
    return function


def _call(number: Any, *args: Any) -> Any:
    return _function_of(number)(*args)


def _generate(number: Any, *args: Any) -> Iterator[Any]:
    yield from _function_of(number)(*args)


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
    args: tuple[tf.TensorSpec, ...], signature: Any
) -> Callable[..., tf.Tensor]:
    """Returns a function that makes the variant of a dataset of `_generate`."""

    @tf.function(
        input_signature=[tf.TensorSpec([], tf.int64), *args], autograph=False
    )
    def variant(number: tf.Tensor, *args: tf.Tensor) -> tf.Tensor:
        dataset = tf.data.Dataset.from_generator(
            _generate, args=(number, *args), output_signature=signature
        )
        return tf.data.experimental.to_variant(dataset)

    return variant


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
