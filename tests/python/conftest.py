"""Fixtures shared by all Python tests."""

import contextlib
import gc
import signal

import numpy as np
import pytest
import tensorflow as tf
from processes import Fork, Interpreter

# In which each test ends, however slow the machine is.
_SECONDS = 480

# What a shell starts in the background ignores Ctrl-C, and so would its tests.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def rng():
    """A seeded NumPy generator."""
    return np.random.default_rng(20240917)


@pytest.fixture(scope="module")
def fresh_process():
    """A process that has nothing of what this one has made."""
    with Interpreter() as process:
        yield process


@pytest.fixture
def fork():
    """Makes a Fork that ends with the test."""
    with contextlib.ExitStack() as stack:

        def make(function, *arguments):
            process = Fork(function, *arguments)
            stack.callback(process.kill)
            return process

        yield make


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """A test that waits for what does not come ends there, with its name."""

    def end(number, frame):
        raise TimeoutError(f"{item.name} has not ended in {_SECONDS} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pytest_configure(config):
    """Registers the markers, and makes CPUs for replicas before any is used."""
    config.addinivalue_line("markers", "gpu: runs only where there is a GPU")
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 3,
    )


def pytest_collection_finish():
    """Sets aside what was imported: tests that collect need not look at it."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items):
    """Skips what needs a GPU where there is none."""
    if not any(item.get_closest_marker("gpu") for item in items):
        return
    if tf.config.list_physical_devices("GPU"):
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no GPU"))
