"""Python calls in tf.data functions, and the end of the interpreter."""

import functools
import gc
import os
import subprocess
import sys
import weakref

import numpy as np
import pytest
import tensorflow as tf

from lodestar._errors import DataError, describe_error
from lodestar._library import gen_ops
from lodestar.ops.python_calls import PythonFunction

NUMBER, TEXT = tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.string)


def run(code, *args):
    """Runs a program that ends normally, with all exit handlers."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_return_values_of_calls():
    def both(x):
        return x + 1, str(x).encode()

    function = PythonFunction(both, [NUMBER, TEXT])

    @tf.function
    def called(x):
        return function.call(x)

    following, text = called(tf.constant(6, tf.int64))
    assert following.numpy() == 7
    assert text.numpy() == b"6"


FAULTS = [
    (DataError("in.csv: is cut"), tf.errors.InvalidArgumentError),
    (tf.errors.NotFoundError(None, None, "in.csv"), tf.errors.NotFoundError),
    (DataError("a\udce9 \xe9"), tf.errors.InvalidArgumentError),
]


def _elements(how, function):
    def generated(count):
        for x in range(count):
            yield function(np.int64(x))

    specs = [NUMBER, TEXT]
    if how == "called":
        python = PythonFunction(function, specs)
        dataset = tf.data.Dataset.range(2).map(lambda x: python.call(x)[0])
    else:
        python = PythonFunction(generated, specs)
        dataset = python.generate(tf.constant(2)).map(lambda x, _: x)
    python.belongs_to(dataset)
    return dataset


@pytest.mark.parametrize("how", ["called", "generated"])
@pytest.mark.parametrize("error, kind", FAULTS)
@pytest.mark.parametrize("run", ["eager", "function"])
def test_an_error_in_the_data_has_no_traceback(how, error, kind, run):
    def function(x):
        if x == 1:
            raise error
        return x, b"text"

    dataset = _elements(how, function)
    assert next(iter(dataset)).numpy() == 0
    if run == "eager":
        read = functools.partial(list, dataset)
    else:

        @tf.function
        def read():
            last = tf.constant(0, tf.int64)
            for x in dataset:
                last = x
            return last

    with pytest.raises(kind) as caught:
        read()
    text = caught.value.message
    assert "Traceback" not in text and len(text.splitlines()) < 10
    wanted = describe_error(error).encode(errors="replace").decode()
    assert describe_error(caught.value) == wanted


@pytest.mark.parametrize("how", ["called", "generated"])
def test_an_error_of_a_program_keeps_its_traceback(how):
    def function(x):
        raise KeyError("mine")

    with pytest.raises(tf.errors.OpError, match="Traceback") as caught:
        list(_elements(how, function))
    assert "mine" in caught.value.message


def test_codes_of_errors():
    for code in (0, 17, 255):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=f"a code, found {code}"
        ):
            gen_ops.lodestar_python_result(error=bytes([code]), values=[1])
    (same,) = gen_ops.lodestar_python_result(error=b"", values=[1])
    assert same.numpy() == 1


class Held:
    """An object that a function refers to."""

    def add(self, x):
        return (x + 1,)

    def count(self, end):
        for x in range(end):
            yield (x,)


def called(held):
    function = PythonFunction(held.add, [NUMBER])
    dataset = tf.data.Dataset.range(5).map(lambda x: function.call(x)[0])
    function.belongs_to(dataset)
    return dataset


def generated(held):
    function = PythonFunction(held.count, [NUMBER])
    dataset = function.generate(tf.constant(6)).skip(1).map(lambda x: x)
    function.belongs_to(dataset)
    return dataset


@pytest.mark.parametrize("made", [called, generated])
def test_a_function_is_freed_with_its_dataset(made):
    held = Held()
    gone = weakref.ref(held)
    dataset = made(held)
    del held
    gc.collect()
    assert [x.numpy() for x in dataset] == [1, 2, 3, 4, 5]
    iterator = iter(dataset.repeat(2).batch(2))
    del dataset
    gc.collect()
    assert next(iterator).numpy().tolist() == [1, 2]
    assert gone() is not None
    del iterator
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("made", [called, generated])
def test_a_dataset_that_a_function_captures_is_kept(made):
    def twice(inner):
        return tf.data.Dataset.range(2).flat_map(lambda _: inner)

    dataset = twice(made(Held()))
    gc.collect()
    assert [x.numpy() for x in dataset] == [1, 2, 3, 4, 5] * 2


@pytest.mark.parametrize("made", [called, generated])
def test_freed_memory_is_not_read(made):
    dataset = made(Held())
    spec = dataset.element_spec
    variant = tf.data.experimental.to_variant(dataset.take(3))
    del dataset
    gc.collect()
    rest = tf.data.experimental.from_variant(variant, spec)
    with pytest.raises(tf.errors.OpError, match="freed with its dataset"):
        next(iter(rest))


@pytest.mark.parametrize("made", [called, generated])
def test_a_dataset_made_inside_a_function(made):
    @tf.function
    def total():
        return made(Held()).reduce(tf.constant(0, tf.int64), lambda a, b: a + b)

    gc.collect()
    assert [total().numpy(), total().numpy()] == [15, 15]


def test_a_call_is_needed_to_end_one():
    with pytest.raises(tf.errors.InvalidArgumentError, match="`call` must be"):
        gen_ops.lodestar_python_call_end(
            call=tf.raw_ops.EmptyTensorList(
                element_shape=-1, max_num_elements=1, element_dtype=tf.int64
            ),
            values=[1],
        )


# The first registered function runs last, after the package's functions. A call
# that has failed is not waited for.
PREFETCHING = """
import atexit
import time

begun, ended = [], []


@atexit.register
def last():
    before = len(begun)
    under_way = before - len(ended)
    try:
        for _ in prefetching:  # ends with the error of a call that cannot begin
            pass
    except tf.errors.OpError:
        print(under_way, "under way,", len(begun) - before, "begin")
    try:
        gen_ops.lodestar_python_call_begin(values=[1])
    except tf.errors.CancelledError as error:
        print(error.message)


import tensorflow as tf
from lodestar._library import gen_ops
from lodestar.ops.python_calls import PythonFunction


def slow(x):
    begun.append(x)
    time.sleep(0.05)
    ended.append(x)
    return (x,)


def wrong(x):
    raise ValueError("wrong")


def iterator(function, count):
    numbers = tf.data.Dataset.range(count)
    python = PythonFunction(function, [tf.TensorSpec([], tf.int64)])
    called = numbers.map(lambda x: python.call(x)[0])
    python.belongs_to(called)
    return iter(called.prefetch(count))


failed, prefetching = iterator(wrong, 1), iterator(slow, 10000)
assert next(prefetching).numpy() == 0
try:
    next(failed)
except tf.errors.InvalidArgumentError:
    print("failed")
"""


def test_python_ends_after_the_last_call():
    found = run(PREFETCHING)
    assert found.stdout.startswith("failed\n0 under way, 0 begin\n"), found
    assert "Python ends" in found.stdout and found.returncode == 0
