"""The dense variables of a model, matched by path.

Keras numbers the layers of a process (`dense`, `dense_1`, ...), so a model that
is built a second time has other paths. Paths are matched exactly where one side
has all paths of the other, and otherwise by their order without the numbers.
"""

import collections
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.embedding.table_variable import as_table
from lodestar.ops.compile_line import compiled_optimizer

_NUMBER = re.compile(r"_\d+$")


def weights(model: keras.Model) -> dict[str, Any]:
    """Returns path -> weight or random seed, without tables and metrics."""
    metrics = {id(v) for v in model.metrics_variables}
    return by_path(
        variable
        for variable in model.variables
        if as_table(variable) is None and id(variable) not in metrics
    )


def optimizer_variables(
    model: keras.Model, tables: Mapping[str, EmbeddingVariable]
) -> dict[str, Any]:
    """Returns path -> variable of all optimizers, including tables' own."""
    optimizer = compiled_optimizer(model)
    if optimizer is None:
        return {}
    found = list(optimizer.variables)
    for table in tables.values():
        if table.optimizer is not None:
            found += table.optimizer.variables
    return by_path({id(v): v for v in found}.values())


def by_path(variables: Iterable[Any]) -> dict[str, Any]:
    """Returns path -> variable; equal paths are numbered."""
    found: dict[str, Any] = {}
    seen: collections.Counter[str] = collections.Counter()
    for variable in variables:
        path = variable.path
        seen[path] += 1
        if seen[path] > 1:
            path = f"{path}#{seen[path]}"
        found[path] = variable
    return found


def match(saved: Sequence[str], here: Sequence[str]) -> dict[str, str]:
    """Returns path here -> saved path, for paths that both sides have."""
    if set(saved) <= set(here) or set(here) <= set(saved):
        return {path: path for path in here if path in set(saved)}
    names = dict(zip(_unnumbered(saved), saved))
    return {
        path: names[name]
        for name, path in zip(_unnumbered(here), here)
        if name in names
    }


def match_in_order(
    saved: Mapping[str, np.ndarray], here: Mapping[str, Any]
) -> dict[str, str] | None:
    """Returns path here -> saved path; None unless all of them match.

    The paths of an optimizer contain numbered names of layers.
    """
    if set(saved) == set(here):
        return {path: path for path in here}
    kinds = [
        [
            (_NUMBER.sub("", path.split("/")[0]), tuple(v.shape), _dtype(v))
            for path, v in side.items()
        ]
        for side in (saved, here)
    ]
    return dict(zip(here, saved)) if kinds[0] == kinds[1] else None


def difference(array: np.ndarray, variable: Any) -> str | None:
    """Describes how a saved array differs from its variable, or returns None."""
    sides = [
        f"shape {tuple(v.shape)} and dtype {_dtype(v)}"
        for v in (array, variable)
    ]
    if sides[0] == sides[1]:
        return None
    return f"{sides[0]} in the snapshot, but {sides[1]} here"


def _dtype(value: Any) -> str:
    return keras.backend.standardize_dtype(value.dtype)


def _unnumbered(paths: Iterable[str]) -> list[str]:
    seen: collections.Counter[str] = collections.Counter()
    names = []
    for path in paths:
        name = "/".join(_NUMBER.sub("", part) for part in path.split("/"))
        seen[name] += 1
        names.append(f"{name}#{seen[name]}")
    return names
