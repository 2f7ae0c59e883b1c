"""The ops that have GPU kernels, in CUDA builds and under emulation."""

import emulated

emulated.load()

import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.python.framework import kernels  # noqa: E402

import lodestar  # noqa: E402

# The ops that a table in GPU memory needs.
OPS = [
    "Variable",
    "Find",
    "FindOrInsert",
    "FindOrInsertUnique",
    "Unique",
    "Gradient",
    "CheckApply",
    "Apply",
    "ApplyAll",
    "InsertOrAssign",
    "Remove",
    "Size",
    "Clear",
    "RestartSlots",
    "RemoveAll",
    "Compact",
    "Frequency",
    "Step",
    "SetStep",
    "ReleaseStep",
    "Stats",
    "Inspect",
    "Evict",
    "DecayFrequencies",
    "Export",
    "Import",
    "CollectionLookup",
    "CollectionGradient",
    "CollectionWeightsGradient",
    "CollectionCounters",
    "CollectionStats",
]


def on_gpu(name):
    """Returns the GPU kernels of an op by priority."""
    found = kernels.get_registered_kernels_for_op(f"Lodestar>Embedding{name}")
    return sorted(k.priority for k in found.kernel if k.device_type == "GPU")


@pytest.mark.parametrize("name", OPS)
def test_an_op_has_its_kernels(name):
    # CUDA kernels have priority 0, emulated ones 1.
    wanted = on_gpu("Variable")
    assert wanted in ([0], [1], [0, 1])
    assert on_gpu(name) == wanted


@pytest.mark.skipif(
    tf.test.is_built_with_cuda(), reason="this TensorFlow has CUDA"
)
def test_the_library_loads_without_cuda_in_tensorflow():
    assert lodestar.EmbeddingVariable(2).size() == 0
