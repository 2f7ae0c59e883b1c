"""Finds Lodestar's ops in traced functions."""

from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

_PREFIX = "Lodestar>"


def check_plain_ops(
    function: tf.types.experimental.ConcreteFunction, layers: Iterable[str]
) -> None:
    """Raises ValueError if `function` contains one of Lodestar's ops.

    The error names the layer of `layers` that contains the op.
    """
    layers = set(layers)
    found: dict[str, set[str]] = {}
    for node in all_nodes(function.graph):
        if node.op.startswith(_PREFIX):
            found.setdefault(_place(node.name, layers), set()).add(node.op)
    if not found:
        return
    text = "; ".join(
        f"{place}: {', '.join(sorted(ops))}"
        for place, ops in sorted(found.items())
    )
    raise ValueError(
        f"`model` has ops without a plain TensorFlow replacement: {text}. "
        "Use lodestar.export.save, which keeps Lodestar's ops."
    )


def all_nodes(graph: Any) -> Iterator[Any]:
    """Yields the nodes of a graph and of its functions."""
    graph_def = graph.as_graph_def()
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def captured(trace: tf.types.experimental.ConcreteFunction) -> set[int]:
    """Returns the id() of each tensor that `trace` captures."""
    return {id(outer) for outer, _ in trace.graph.captures}


def inner_functions_have_our_ops(
    trace: tf.types.experimental.ConcreteFunction,
) -> bool:
    """Returns whether a function inside of `trace` has Lodestar's ops."""
    return any(
        node.op.startswith(_PREFIX)
        for function in trace.graph.as_graph_def().library.function
        for node in function.node_def
    )


def _place(node: str, layers: set[str]) -> str:
    """Returns the place of a node by the name scopes of Keras layers."""
    for scope in reversed(node.split("/")[:-1]):
        # Repeated calls of a layer add a number to its scope.
        for name in (scope, scope.rpartition("_")[0]):
            if name in layers:
                return f"layer {name!r}"
    return f"node {node!r}"
