"""Finds the tables whose gradients a backward pass makes for nobody.

Keras and TensorFlow leave a variable that they do not find untrained without a
word, and there is no gradient of it to miss. What can be seen is a backward
pass that comes to a lookup made in training (it does not behind
`tf.stop_gradient`), and that nothing has ever asked for the table's
gradient.
"""

import threading
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from lodestar.ops.compile_line import (
    compile_line,
    compiled_optimizer,
    table_optimizers,
)

_NOBODY = (
    "{table!r} is looked up in training, but the optimizer never gets its "
    "gradient: the rows would stay as they began. {why} If the table is not "
    "to be trained, set `table.trainable = False`, or look it up with "
    "training=False.{wrap}"
)
_NOT_FOUND = (
    "Keras does not find the table in `{model}`: make it an attribute of the "
    "model or layer that looks it up (self.table = table), or use the layer "
    "lodestar.layers.DynamicEmbedding(table=table)."
)
_NOT_GIVEN = (
    "Give the table to tape.gradient and to the optimizer beside the other "
    "variables, or make the table an attribute of the model whose "
    "trainable_variables these are."
)
_LOSS_SCALING = (
    "{table!r} has a gradient that is sparse over 64-bit ids. Under the "
    "mixed_float16 policy, `compile` puts Keras's LossScaleOptimizer around "
    "the optimizer, which would make the gradient dense. Name Lodestar's "
    "yourself:\n{line}"
)

_UNTOLD = (
    "{table!r} is looked up without `training` where this release of "
    "TensorFlow does not say whether a gradient tape records, so the lookup "
    "only reads. Pass training=True to train the rows, or training=False, "
    "here and in lookups that only read."
)

# By the id of a table's handle, which the ops have.
_by_handle: weakref.WeakValueDictionary[Any, Any] = (
    weakref.WeakValueDictionary()
)


class _Reached(threading.local):
    """Tables that backward passes of this thread came to, by their trace."""

    def __init__(self) -> None:
        self.by_step: weakref.WeakKeyDictionary[Any, Any] = (
            weakref.WeakKeyDictionary()
        )


_reached = _Reached()


class _Eager:
    """Stands for a trace, where there is none."""


_EAGER = _Eager()


def record(table: Any) -> None:
    """Says that there may be lookups of the table."""
    if table.devices is None:
        _by_handle[id(table.resource_handle)] = table


def reach(op: tf.Operation, handles: Sequence[tf.Tensor]) -> None:
    """Says that a backward pass comes to a lookup, `op`, of some tables.

    Raises:
        RuntimeError: The step that it is in would lose the gradient.
    """
    trains = op.get_attr("insert") or op.get_attr("count")
    tables = [_by_handle.get(id(_outermost(handle))) for handle in handles]
    reach_tables([table for table in tables if table is not None], trains)


def reach_tables(tables: Sequence[Any], trains: bool = True) -> None:
    """Says that a backward pass comes to a lookup in some tables.

    Args:
        tables: The tables that are looked up.
        trains: Whether it is a training lookup.

    Raises:
        RuntimeError: As `reach`.
    """
    for table in tables:
        if not table.trainable:
            continue
        if not trains:
            if table.untold:
                raise RuntimeError(_UNTOLD.format(table=table))
            continue
        model = table.model()
        optimizer = compiled_optimizer(model)
        _check_loss_scaling(table, model, optimizer)
        if not _is_claimed(table, model):
            if optimizer is not None and not _trains_tables(optimizer):
                why = _NOT_FOUND.format(model=model.name)
                wrap = ""
                if table.optimizer is None:
                    wrap = f" Also change the optimizer:\n{compile_line(model)}"
                raise RuntimeError(_nobody(table, why, wrap))
            if not table_optimizers:
                warnings.warn(_nobody(table, _NOT_GIVEN), stacklevel=2)
        step = _reached.by_step.setdefault(_step(), {})
        step[id(table)] = weakref.ref(table)


def check(optimizer: keras.optimizers.Optimizer, variables: list[Any]) -> None:
    """Checks a step in which `optimizer` applies gradients of variables.

    Raises:
        RuntimeError: It lacks that of a table which the step trains.
    """
    for variable in variables:
        if hasattr(variable, "follow"):
            variable.follow()
    given = {id(variable) for variable in variables}
    for reference in _reached.by_step.pop(_step(), {}).values():
        table = reference()
        if table is None or id(table) in given or not table.trainable:
            continue
        model = table.model()
        compiled = compiled_optimizer(model)
        is_fit = (
            compiled is optimizer
            or getattr(compiled, "inner_optimizer", None) is optimizer
        ) and given == {id(v) for v in model.trainable_variables}
        # Else it is left out by choice: who asked for it may train others.
        if is_fit or not _is_claimed(table, model):
            why = _NOT_FOUND.format(model=model.name) if is_fit else _NOT_GIVEN
            raise RuntimeError(_nobody(table, why))


def _nobody(table: Any, why: str, wrap: str = "") -> str:
    return _NOBODY.format(table=table, why=why, wrap=wrap)


def _is_claimed(table: Any, model: keras.Model | None) -> bool:
    """Whether somebody has asked for the gradient, or can: `model` has it."""
    return table.claimed or (
        model is not None and any(v is table for v in model.variables)
    )


def _check_loss_scaling(table: Any, model: Any, optimizer: Any) -> None:
    if not isinstance(
        optimizer, keras.optimizers.LossScaleOptimizer
    ) or _trains_tables(optimizer):
        return
    inner = optimizer.inner_optimizer
    # Else the model is in a loop of the user's own, with another optimizer.
    taker = table.wrapper()
    takers = [None if taker is table.optimizer else taker]
    if takers == [None] and not _trains_tables(inner):
        takers = [w for w in table_optimizers if not w.built]
    if all(taker is None or taker is inner for taker in takers):
        line = compile_line(model)
        raise RuntimeError(_LOSS_SCALING.format(table=table, line=line))


def _trains_tables(optimizer: Any) -> bool:
    return getattr(optimizer, "trains_tables", False)


def _outermost(tensor: tf.Tensor) -> tf.Tensor | None:
    """What a captured `tensor` is outside of all functions."""
    while tensor is not None and tf.is_symbolic_tensor(tensor):
        captures = getattr(tensor.graph, "captures", ())
        tensor = next((t for t, inner in captures if inner is tensor), None)
    return tensor


def _step() -> Any:
    """The trace that this is part of."""
    graph = tf.compat.v1.get_default_graph()
    step = _EAGER
    while hasattr(graph, "outer_graph"):
        # The backward part of a function that is called eagerly is traced.
        if not graph.name.startswith("__backward_"):
            step = graph
        graph = graph.outer_graph
    return step
