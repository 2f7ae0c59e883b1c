"""Calls of Python in functions of tf.data, and the end of the interpreter."""

import os
import subprocess
import sys

import pytest
import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.data.python_calls import call_python


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

    @tf.function
    def called(x):
        return call_python(both, [x], [tf.int64, tf.string])

    following, text = called(tf.constant(6, tf.int64))
    assert following.numpy() == 7
    assert text.numpy() == b"6"


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
from lodestar.data.python_calls import call_python


def slow(x):
    begun.append(x)
    time.sleep(0.1)
    ended.append(x)
    return x


def wrong(x):
    raise ValueError("wrong")


def iterator(function, count):
    numbers = tf.data.Dataset.range(count)
    called = numbers.map(lambda x: call_python(function, [x], [tf.int64])[0])
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
