"""GPUs that are not there, for the tests of this folder."""

import os
import pathlib

import pytest

_PLUGIN = pathlib.Path("tests/cuda/emulation/emulated_gpu.so")


def load():
    """Makes the GPUs, or skips the module where they are not asked for.

    Before TensorFlow is used for the first time, and once a process: so the
    environment's LODESTAR_EMULATED_GPUS, which says how many, has to be set.
    """
    if "LODESTAR_EMULATED_GPUS" not in os.environ:
        pytest.skip(
            "wants a process of its own: bazel test //tests/python/gpu",
            allow_module_level=True,
        )
    import tensorflow as tf
    from tensorflow.python.framework import load_library

    if not tf.config.list_physical_devices("GPU"):
        load_library.load_pluggable_device_library(str(_PLUGIN.resolve()))
    assert len(tf.config.list_logical_devices("GPU")) == 2
