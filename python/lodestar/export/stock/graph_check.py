"""Finds our ops in a graph that must do without them."""

from collections.abc import Iterable

import tensorflow as tf

_PREFIX = "Lodestar>"


def check_stock_ops(
    function: tf.types.experimental.ConcreteFunction, layers: Iterable[str]
) -> None:
    """Raises ValueError if `function` or one that it calls has one of our ops.

    Args:
        function: A traced function.
        layers: Names of the model's layers, one of which the error names.
    """
    graph = function.graph.as_graph_def()
    nodes = list(graph.node)
    for inner in graph.library.function:
        nodes += inner.node_def
    layers = set(layers)
    found = {}
    for node in nodes:
        if node.op.startswith(_PREFIX):
            found.setdefault(_place(node.name, layers), set()).add(node.op)
    if not found:
        return
    text = "; ".join(
        f"{place}: {', '.join(sorted(ops))}"
        for place, ops in sorted(found.items())
    )
    raise ValueError(
        f"`model` has ops for which there is none in stock TensorFlow: {text}. "
        "lodestar.export.saved_model exports it with Lodestar's ops."
    )


def _place(node: str, layers: set[str]) -> str:
    """Where a node is, by the name scopes that Keras opens for layers."""
    for scope in reversed(node.split("/")[:-1]):
        # A layer called again has a number at the end of its scope.
        for name in (scope, scope.rpartition("_")[0]):
            if name in layers:
                return f"layer {name!r}"
    return f"node {node!r}"
