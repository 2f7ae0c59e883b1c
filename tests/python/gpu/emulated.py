"""GPUs for the tests of this folder: emulated, or equal parts of a real one."""

import functools
import os
import pathlib

import pytest

_PLUGIN = pathlib.Path("tests/cuda/emulation/emulated_gpu.so")


def load():
    """Creates GPUs, or skips the module if the environment asks for none.

    The environment variable LODESTAR_EMULATED_GPUS is their number, at least 2.
    Where TensorFlow has a real GPU, its memory is split into logical GPUs;
    elsewhere a plugin emulates them. Either must happen before the first use of
    TensorFlow, so the tests need their own process.
    """
    if "LODESTAR_EMULATED_GPUS" not in os.environ:
        pytest.skip(
            "needs its own process: bazel test //tests/python/gpu",
            allow_module_level=True,
        )
    _make()


@functools.cache
def _make():
    import tensorflow as tf
    from tensorflow.python.framework import load_library

    count = int(os.environ["LODESTAR_EMULATED_GPUS"])
    real = tf.config.list_physical_devices("GPU")
    if real:
        part = tf.config.LogicalDeviceConfiguration(memory_limit=4096)
        tf.config.set_logical_device_configuration(real[0], [part] * count)
    else:
        load_library.load_pluggable_device_library(str(_PLUGIN.resolve()))
    assert len(tf.config.list_logical_devices("GPU")) == count
