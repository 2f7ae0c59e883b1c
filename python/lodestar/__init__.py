"""Lodestar: sparse features for TensorFlow 2 and Keras 3."""

import sys as _sys
import types as _types

from lodestar import _library as _library
from lodestar import (
    callbacks,
    data,
    export,
    hugectr,
    layers,
    lookup,
    metrics,
    optimizers,
    paddle,
    ragged,
    sequence,
    serving,
    snapshot,
    sysconfig,
    testing,
    train,
    warm_start,
)
from lodestar.embedding import (
    CountingBloom,
    EmbeddingRows,
    EmbeddingVariable,
    MaxAge,
    MaxRows,
    MinCount,
    MinFrequency,
    MinNorm,
    SharedRows,
)
from lodestar.layers.feature import Feature
from lodestar.string_ids import hash_ids
from lodestar.version import __version__

__all__ = [
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
    "__version__",
    "callbacks",
    "data",
    "export",
    "hash_ids",
    "hugectr",
    "layers",
    "lookup",
    "metrics",
    "optimizers",
    "paddle",
    "ragged",
    "sequence",
    "serving",
    "snapshot",
    "sysconfig",
    "testing",
    "train",
    "warm_start",
]

# Completion and `dir` show the public names alone.
for _module in (
    _sys.modules[__name__],
    *(globals()[_name] for _name in __all__),
):
    if isinstance(_module, _types.ModuleType):
        setattr(_module, "__dir__", _module.__all__.copy)  # noqa: B010
