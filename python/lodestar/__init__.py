"""Lodestar: sparse features for TensorFlow 2 and Keras 3."""

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
