"""Two GPUs for the tests of this folder: emulated, or halves of a real one."""

import functools
import os
import pathlib

import pytest

_PLUGIN = pathlib.Path("tests/cuda/emulation/emulated_gpu.so")


def load():
    """Creates two GPUs, or skips the module if the environment asks for none.

    Where TensorFlow has a real GPU, its memory is split into two logical GPUs;
    elsewhere a plugin emulates two. Either must happen before the first use of
    TensorFlow, so the tests need their own process, which the environment
    variable LODESTAR_EMULATED_GPUS marks.
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

    real = tf.config.list_physical_devices("GPU")
    if real:
        half = tf.config.LogicalDeviceConfiguration(memory_limit=4096)
        tf.config.set_logical_device_configuration(real[0], [half] * 2)
    else:
        load_library.load_pluggable_device_library(str(_PLUGIN.resolve()))
    assert len(tf.config.list_logical_devices("GPU")) == 2
