"""Calls of Python in functions of tf.data, and the end of the interpreter."""

import gc
import os
import subprocess
import sys
import weakref

import pytest
import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.data.python_calls import PythonFunction


def run(code, *args):
    """A program that ends as Python does, with all its exit handlers."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_what_a_call_returns():
    def both(x):
        return x + 1, str(x).encode()

    function = PythonFunction(both)

    @tf.function
    def called(x):
        return function.call([x], [tf.int64, tf.string])

    following, text = called(tf.constant(6, tf.int64))
    assert following.numpy() == 7
    assert text.numpy() == b"6"


class Held:
    """What a function refers to."""

    def add(self, x):
        return x + 1

    def count(self, end):
        yield from range(end)


def called(held):
    function = PythonFunction(held.add)
    dataset = tf.data.Dataset.range(5).map(
        lambda x: function.call([x], [tf.int64])[0]
    )
    function.belongs_to(dataset)
    return dataset


def generated(held):
    function = PythonFunction(held.count)
    spec = tf.TensorSpec([], tf.int64)
    dataset = function.generate([tf.constant(6, tf.int64)], spec).skip(1)
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
def test_nothing_reads_what_was_freed(made):
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
    with pytest.raises(tf.errors.InvalidArgumentError, match="`call` is not"):
        gen_ops.lodestar_python_call_end(
            call=tf.raw_ops.EmptyTensorList(
                element_shape=-1, max_num_elements=1, element_dtype=tf.int64
            ),
            values=[1],
        )


# What was registered first is run last, behind all that the package does. A call
# that has failed is to be waited for no more.
PREFETCHING = """
import atexit
import time

begun, ended = [], []


@atexit.register
def last():
    before = len(begun)
    under_way = before - len(ended)
    time.sleep(0.3)
    print(under_way, "under way,", len(begun) - before, "begin")


import tensorflow as tf
from lodestar.data.python_calls import PythonFunction


def slow(x):
    begun.append(x)
    time.sleep(0.1)
    ended.append(x)
    return x


def wrong(x):
    raise ValueError("wrong")


def iterator(function, count):
    numbers = tf.data.Dataset.range(count)
    python = PythonFunction(function)
    called = numbers.map(lambda x: python.call([x], [tf.int64])[0])
    python.belongs_to(called)
    return iter(called.prefetch(count))


failed, prefetching = iterator(wrong, 1), iterator(slow, 10000)
assert next(prefetching).numpy() == 0
try:
    next(failed)
except tf.errors.InvalidArgumentError:
    print("failed")
"""


def test_python_ends_behind_the_last_call():
    found = run(PREFETCHING)
    assert found.stdout == "failed\n0 under way, 0 begin\n", found.stderr
    assert found.returncode == 0


STOPPED = """
import tensorflow as tf
from lodestar._library import gen_ops

call = gen_ops.lodestar_python_call_begin(values=[1]).call
del call
gen_ops.lodestar_python_calls_stop()
try:
    gen_ops.lodestar_python_call_begin(values=[1])
except tf.errors.CancelledError as error:
    print(error.message)
"""


def test_no_call_begins_after_the_last():
    found = run(STOPPED)
    assert "Python ends" in found.stdout, found.stderr
