"""Fixtures shared by all Python tests."""

import contextlib
import gc
import signal

import numpy as np
import pytest
import tensorflow as tf
from processes import Fork, Interpreter

# Time limit of each test; generous, for slow machines.
_SECONDS = 480

# A process that a shell starts in the background ignores Ctrl-C, and its
# children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def rng():
    """Returns a seeded NumPy generator."""
    return np.random.default_rng(20240917)


@pytest.fixture(scope="module")
def fresh_process():
    """Returns a process that has imported nothing but Python."""
    with Interpreter() as process:
        yield process


@pytest.fixture
def path(tmp_path):
    """Returns a snapshot directory, which does not exist yet."""
    return str(tmp_path / "snapshots")


@pytest.fixture
def fork():
    """Returns a Fork that ends with the test."""
    with contextlib.ExitStack() as stack:

        def make(function, *arguments, **options):
            process = Fork(function, *arguments, **options)
            stack.callback(process.kill)
            return process

        yield make


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """Ends a test that waits too long, and reports its name."""

    def end(number, frame):
        raise TimeoutError(f"{item.name} exceeded {_SECONDS} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pytest_configure():
    """Creates CPUs for replicas before their first use."""
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 3,
    )


def pytest_collection_finish():
    """Freezes imported objects, so that garbage collection in tests is faster."""
    gc.collect()
    gc.freeze()
