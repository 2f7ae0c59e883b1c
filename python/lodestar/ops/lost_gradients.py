"""Detects tables whose gradients are computed but never used.

Keras and TensorFlow silently leave a variable untrained if they do not find it, and
no gradient of it is missing. What is visible is a backward pass that reaches a
training lookup (it does not behind `tf.stop_gradient`) of a table whose gradient
was never requested.
"""

import re
import threading
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from lodestar import _private
from lodestar.ops.compile_line import (
    compile_line,
    compiled_optimizer,
    trains_tables,
)

_NOBODY = (
    "{table!r} is looked up in training, but the optimizer never gets its "
    "gradient, so its rows would not be trained. {why} If the table should not "
    "be trained, set `table.trainable = False`, or look it up with "
    "training=False.{wrap}"
)
_NOT_FOUND = (
    "Keras does not find the table in `{model}`: make it an attribute of the "
    "model or layer that looks it up (self.table = table), or use the layer "
    "lodestar.layers.DynamicEmbedding(table=table)."
)
_NOT_GIVEN = (
    "Pass the table to tape.gradient and to the optimizer with the other "
    "variables, or make it an attribute of the model whose "
    "trainable_variables these are."
)
_LOSS_SCALING = (
    "{table!r} has a gradient that is sparse over 64-bit ids. Under the "
    "mixed_float16 policy, `compile` puts Keras's LossScaleOptimizer around "
    "the optimizer, which would make the gradient dense. Use Lodestar's "
    "instead:\n{line}"
)

_UNTOLD = (
    "{table!r} is looked up without `training`, but this release of "
    "TensorFlow does not tell whether a gradient tape records, so the lookup "
    "only reads. Pass training=True to train the rows, or training=False, "
    "here and in lookups that only read."
)

_IN_LOOP = (
    "{table} is looked up in the loop '{loop}' of a graph, such as tf.while_loop, "
    "tf.map_fn, tf.scan, tf.vectorized_map, a recurrent layer, or a `for` or "
    "`while` over tensors. TensorFlow adds up the gradients of such a loop as "
    "dense tensors, but the gradient of a table is sparse over 64-bit ids. Look up "
    "the ids of all iterations at once, before the loop, and pass it the rows."
)
# TensorFlow's names of graphs with the gradient of a while loop.
_GRADIENT_OF_LOOP = re.compile(r"(.*while)_body_\d+_grad_\d+")

# Tables by the Python id of their handle, which is an input of the ops.
_by_handle: weakref.WeakValueDictionary[Any, Any] = (
    weakref.WeakValueDictionary()
)


class _Reached(threading.local):
    """Tables reached by backward passes of this thread, by trace."""

    def __init__(self) -> None:
        self.by_step: weakref.WeakKeyDictionary[Any, Any] = (
            weakref.WeakKeyDictionary()
        )


_reached = _Reached()


class _Eager:
    """The trace of eager steps."""


_EAGER = _Eager()


def record(table: Any) -> None:
    """Registers a table that may be looked up."""
    if table.devices is None:
        _by_handle[id(table.resource_handle)] = table


def reach(op: tf.Operation, handles: Sequence[tf.Tensor]) -> None:
    """Records that a backward pass reaches the lookup `op` of some tables.

    Raises:
        RuntimeError: The step would lose the gradient.
    """
    trains = op.get_attr("insert") or op.get_attr("count")
    tables = [_by_handle.get(id(_outermost(handle))) for handle in handles]
    reach_tables([table for table in tables if table is not None], trains)


def reach_tables(tables: Sequence[Any], trains: bool = True) -> None:
    """As `reach`, for lookups in `tables`, in training or not."""
    for table in tables:
        refuse_loops(repr(table))
        if not table.trainable:
            continue
        if not trains:
            if table._untold:
                raise RuntimeError(_UNTOLD.format(table=table))
            continue
        model = table._model()
        optimizer = compiled_optimizer(model)
        _check_loss_scaling(table, model, optimizer)
        if not _is_claimed(table, model):
            if optimizer is not None and not trains_tables(optimizer):
                why = _NOT_FOUND.format(model=model.name)
                wrap = ""
                if table.optimizer is None:
                    wrap = f" Also change the optimizer:\n{compile_line(model)}"
                raise RuntimeError(_nobody(table, why, wrap))
        if _step() is _EAGER:
            warn_of_lost(table)  # by the step before
        step = _reached.by_step.setdefault(_step(), {})
        step[id(table)] = weakref.ref(table)


def warn_of_lost(table: Any) -> None:
    """Warns if no optimizer of tables followed a backward pass that is over.

    Other optimizers do not tell which gradients they get.
    """
    for step in _reached.by_step.values():
        found = step.get(id(table))
        if found is None or found() is not table:
            continue
        model = table._model()
        if not _is_claimed(table, model) and compiled_optimizer(model) is None:
            del step[id(table)]
            warnings.warn(_nobody(table, _NOT_GIVEN), stacklevel=3)


def refuse_loops(table: str) -> None:
    """Raises RuntimeError if the gradient of a loop is being made."""
    graph: Any = _private.default_graphs()[-1]
    while hasattr(graph, "outer_graph"):
        found = _GRADIENT_OF_LOOP.fullmatch(graph.name)
        if found:
            raise RuntimeError(_IN_LOOP.format(table=table, loop=found[1]))
        graph = graph.outer_graph


def check(optimizer: keras.optimizers.Optimizer, variables: list[Any]) -> None:
    """Checks a step in which `optimizer` applies the gradients of `variables`.

    Raises:
        RuntimeError: The step trains a table that is not among them.
    """
    for variable in variables:
        if hasattr(variable, "_follow"):
            variable._follow()
    given = {id(variable) for variable in variables}
    for reference in _reached.by_step.pop(_step(), {}).values():
        table = reference()
        if table is None or id(table) in given or not table.trainable:
            continue
        model = table._model()
        compiled = compiled_optimizer(model)
        is_fit = (
            compiled is optimizer
            or getattr(compiled, "inner_optimizer", None) is optimizer
        ) and given == {id(v) for v in model.trainable_variables}
        # Otherwise it is left out on purpose, such as by another optimizer.
        if is_fit or not _is_claimed(table, model):
            why = _NOT_FOUND.format(model=model.name) if is_fit else _NOT_GIVEN
            raise RuntimeError(_nobody(table, why))


def _nobody(table: Any, why: str, wrap: str = "") -> str:
    return _NOBODY.format(table=table, why=why, wrap=wrap)


def _is_claimed(table: Any, model: keras.Model | None) -> bool:
    """Whether the gradient was requested, or can be, because `model` has the table."""
    return table._claimed or (
        model is not None and any(v is table for v in model.variables)
    )


def _check_loss_scaling(table: Any, model: Any, optimizer: Any) -> None:
    if not isinstance(
        optimizer, keras.optimizers.LossScaleOptimizer
    ) or trains_tables(optimizer):
        return
    inner = optimizer.inner_optimizer
    # Otherwise the model is in a custom loop with another optimizer.
    taker = table._wrapper()
    if taker is None or taker is inner or taker is table.optimizer:
        line = compile_line(model)
        raise RuntimeError(_LOSS_SCALING.format(table=table, line=line))


def _outermost(tensor: tf.Tensor) -> tf.Tensor | None:
    """Returns the tensor outside of all functions that `tensor` captures."""
    while tensor is not None and tf.is_symbolic_tensor(tensor):
        captures = getattr(tensor.graph, "captures", ())
        tensor = next((t for t, inner in captures if inner is tensor), None)
    return tensor


def _step() -> Any:
    """Returns the trace of the current step."""
    # Inner graphs may belong to a function that an earlier step traced.
    graphs = [g for g in _private.default_graphs() if hasattr(g, "outer_graph")]
    graph: Any = graphs[0] if graphs else None
    step = _EAGER
    while hasattr(graph, "outer_graph"):
        # The backward part of a function that is called eagerly is traced.
        if not graph.name.startswith("__backward_"):
            step = graph
        graph = graph.outer_graph
    return step
