"""The complete list of public names, so that a new one is a decision."""

import os
import pathlib
import re
import subprocess
import sys
import types

import pytest

import lodestar

# The maximum number of public names, not counting modules.
_MOST = 107
_NAMES = {
    "lodestar": [
        "CountingBloom",
        "EmbeddingRows",
        "EmbeddingVariable",
        "Feature",
        "MaxAge",
        "MaxRows",
        "MinCount",
        "MinFrequency",
        "MinNorm",
        "SharedRows",
        "hash_ids",
    ],
    "lodestar.callbacks": [
        "EarlyStopping",
        "Evict",
        "Snapshot",
        "TableStats",
        "TensorBoard",
    ],
    "lodestar.data": [
        "Column",
        "DataError",
        "FileListServer",
        "Schema",
        "SharedFileList",
        "SkippedRecords",
        "files_by_day",
        "open_dataset",
        "open_writer",
    ],
    "lodestar.export": [
        "save",
        "save_plain",
        "verify",
    ],
    "lodestar.hugectr": [
        "CsrBuilder",
        "from_csr",
        "to_csr",
    ],
    "lodestar.layers": [
        "DynamicEmbedding",
        "EmbeddingCollection",
        "IdLookup",
        "PerStep",
        "SequenceAttention",
        "SequenceConv",
        "TargetAttention",
        "clone_scope",
    ],
    "lodestar.lookup": [
        "IdTable",
        "IdTableWithHashBuckets",
        "index_table_from_tensor",
    ],
    "lodestar.metrics": [
        "BatchAUC",
    ],
    "lodestar.optimizers": [
        "Adadelta",
        "Adagrad",
        "Adam",
        "AdamW",
        "Adamax",
        "Ftrl",
        "Lion",
        "LossScaleOptimizer",
        "Nadam",
        "RMSprop",
        "RowWiseAdagrad",
        "SGD",
        "clip_by_global_norm",
        "wrap",
    ],
    "lodestar.paddle": [
        "DataFeedDesc",
        "InMemoryDataset",
        "MultiSlotGenerator",
        "SelectedRows",
        "parse_multislot",
        "reader",
        "train_from_dataset",
    ],
    "lodestar.ragged": [
        "LoDTensor",
        "csr_to_sparse",
        "sparse_to_csr",
    ],
    "lodestar.sequence": [
        "attention",
        "concat",
        "conv",
        "enumerate",
        "erase",
        "expand",
        "expand_as",
        "pad",
        "pool",
        "positions",
        "reshape",
        "reverse",
        "scatter",
        "slice",
        "softmax",
        "topk_avg_pooling",
        "unpad",
    ],
    "lodestar.serving": [
        "LiveModel",
        "openmetrics",
        "write_warm_up",
    ],
    "lodestar.snapshot": [
        "CorruptSnapshotError",
        "ResumableDataset",
        "SaveInterval",
        "SnapshotError",
        "compact",
        "copy",
        "restore",
        "save",
        "verify",
        "versions",
    ],
    "lodestar.sysconfig": [
        "get_compile_flags",
        "get_link_flags",
    ],
    "lodestar.testing": [
        "LocalCluster",
        "census_file",
    ],
    "lodestar.train": [
        "Scheduler",
        "evaluate",
        "fit",
        "predict",
    ],
    "lodestar.warm_start": [
        "from_embedding",
        "from_tfra",
    ],
}
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_DOCS = "\n".join(
    path.read_text()
    for path in (_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md")))
)


def _module(name):
    return lodestar if name == "lodestar" else getattr(lodestar, name[9:])


def test_the_modules_are_these():
    found = [
        name
        for name in lodestar.__all__
        if isinstance(getattr(lodestar, name), types.ModuleType)
    ]
    assert sorted(f"lodestar.{name}" for name in found) == sorted(
        name for name in _NAMES if name != "lodestar"
    )


@pytest.mark.parametrize("module", _NAMES)
def test_the_names_of_a_module_are_these(module):
    names = _module(module).__all__
    if module == "lodestar":
        names = [
            name
            for name in names
            if name != "__version__" and f"lodestar.{name}" not in _NAMES
        ]
    assert sorted(names) == sorted(_NAMES[module])


def test_there_are_few():
    assert sum(map(len, _NAMES.values())) <= _MOST


@pytest.mark.parametrize("module", _NAMES)
def test_each_has_a_docstring(module):
    assert _module(module).__doc__
    assert not [
        name
        for name in _NAMES[module]
        if not getattr(_module(module), name).__doc__
    ]


@pytest.mark.parametrize("module", _NAMES)
def test_each_is_in_the_docs(module):
    last = module.rpartition(".")[2]
    assert not [
        name
        for name in _NAMES[module]
        if not re.search(rf"\b{last}\.{name}\b|`{name}\b", _DOCS)
    ]


# Each module is the first that a process of its own uses. Without pandas,
# because TensorFlow imports pandas, and pandas pyarrow.
_LATER = """
import os, sys
sys.modules["pandas"] = None
import keras, lodestar
imported = {name for name in sys.modules if name.startswith("lodestar.")}
assert "pyarrow" not in sys.modules
assert keras.saving.get_registered_object("lodestar>Schema")
for name in lodestar.__all__:
    if os.fork() == 0:
        getattr(lodestar, name)
        os._exit(0)
    assert os.wait()[1] == 0, name
assert lodestar.data.open_dataset and "pyarrow" in sys.modules
try:
    lodestar.dta
except AttributeError as error:
    assert error.name == "dta" and error.obj is lodestar, error
print(len(imported))
"""


def test_modules_are_imported_when_they_are_used():
    done = subprocess.run(
        [sys.executable, "-c", _LATER],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 150
