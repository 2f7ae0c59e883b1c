"""Lodestar: sparse features for TensorFlow 2 and Keras 3."""

import importlib as _importlib
import sys as _sys
import types as _types
import typing as _hints

from lodestar import _library as _library
from lodestar import (
    layers,
    lookup,
    metrics,
    optimizers,
    ragged,
    sequence,
    sysconfig,
)

# Registers the classes that saved models contain.
from lodestar import schema as _schema  # noqa: F401
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

if _hints.TYPE_CHECKING:
    from lodestar import (
        callbacks,
        data,
        export,
        hugectr,
        paddle,
        serving,
        snapshot,
        testing,
        train,
        warm_start,
    )
else:

    def __getattr__(name: str) -> _types.ModuleType:
        """Imports a module at its first use.

        `import lodestar` would otherwise import pyarrow and twice as many modules.
        """
        if name in __all__:
            return _importlib.import_module(f"lodestar.{name}")
        raise AttributeError(
            f"module 'lodestar' has no attribute {name!r}",
            name=name,
            obj=_sys.modules[__name__],
        )


# Completion and `dir` show the public names alone.
__dir__ = __all__.copy
