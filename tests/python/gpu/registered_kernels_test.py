"""The ops that have GPU kernels, in CUDA builds and under emulation."""

import emulated

emulated.load()

import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.python.framework import (  # noqa: E402
    kernels,
    op_def_registry,
)

import lodestar  # noqa: E402

# The ops that a table in GPU memory needs.
OPS = [
    "Variable",
    "Find",
    "FindForGradient",
    "FindOrInsert",
    "FindOrInsertUnique",
    "Unique",
    "Gradient",
    "CheckApply",
    "Apply",
    "ApplyAll",
    "GatherForUpdate",
    "AssignIfUnchanged",
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
    "CollectionPool",
    "CollectionCounters",
    "CollectionStats",
    "PartitionRows",
]


SEQUENCE_OPS = [
    "Concat",
    "ConcatGradient",
    "Context",
    "ContextGradient",
    "Expand",
    "ExpandAs",
    "ExpandGradient",
    "Pad",
    "Pool",
    "PoolGradient",
    "Softmax",
    "SoftmaxGradient",
    "Unpad",
]


def gpu_kernels(name):
    """Returns the GPU kernels of an op."""
    found = kernels.get_registered_kernels_for_op(f"Lodestar>{name}")
    return [k for k in found.kernel if k.device_type == "GPU"]


def on_gpu(name):
    """Returns the GPU kernels of an op on embeddings by priority."""
    return sorted(k.priority for k in gpu_kernels(f"Embedding{name}"))


@pytest.mark.parametrize("name", OPS)
def test_an_op_has_its_kernels(name):
    # CUDA kernels have priority 0, emulated ones 1.
    wanted = on_gpu("Variable")
    assert wanted in ([0], [1], [0, 1])
    assert on_gpu(name) == wanted


@pytest.mark.parametrize("name", ["BeginStep", "EndStep"])
def test_steps_have_the_kernels_of_tables(name):
    found = sorted(k.priority for k in gpu_kernels(name))
    assert found == on_gpu("Variable")


def test_any_library_releases_a_resource_on_a_gpu():
    assert [k.priority for k in gpu_kernels("ReleaseResource")] == [0]


@pytest.mark.parametrize("name", SEQUENCE_OPS)
def test_a_sequence_op_has_kernels_for_every_dtype(name):
    name = f"Sequence{name}"
    found = gpu_kernels(name)
    assert found
    attributes = op_def_registry.get(f"Lodestar>{name}").attr
    wanted = {
        dtype
        for attribute in attributes
        if attribute.name == "T"
        for dtype in attribute.allowed_values.list.type
    } - {tf.string.as_datatype_enum}
    for priority in {kernel.priority for kernel in found}:
        assert wanted <= {
            dtype
            for kernel in found
            if kernel.priority == priority
            for constraint in kernel.constraint
            for dtype in constraint.allowed_values.list.type
        }


@pytest.mark.skipif(
    tf.test.is_built_with_cuda(), reason="this TensorFlow has CUDA"
)
def test_the_library_loads_without_cuda_in_tensorflow():
    assert lodestar.EmbeddingVariable(2).size() == 0
