"""Checks of `tf.distribute` strategies for tables."""

from typing import Any

import tensorflow as tf

from lodestar.embedding import workers
from lodestar.embedding.table_variable import TableVariable

_KNOWN = (
    tf.distribute.OneDeviceStrategy,
    tf.distribute.MirroredStrategy,
    tf.distribute.MultiWorkerMirroredStrategy,
)
_INSTEAD = (
    "Make and train the model without a strategy, or under "
    "tf.distribute.MirroredStrategy."
)


def check_can_hold(table: str, admission: Any) -> None:
    """Raises NotImplementedError if the strategy in scope does not support tables."""
    if not tf.distribute.has_strategy():
        return
    strategy = tf.distribute.get_strategy()
    if isinstance(strategy, (*_KNOWN, tf.distribute.ParameterServerStrategy)):
        _check_can_count(table, admission)
        return
    raise NotImplementedError(
        f"The table '{table}' is made under {type(strategy).__name__}, but "
        f"its rows are in the memory of one process. {_INSTEAD}"
    )


def _check_can_count(table: str, admission: Any) -> None:
    # Each replica looks up its part of a batch, so an id could be missing in the
    # first part and have a row in the next. Workers look up theirs together.
    if getattr(admission, "unit", None) != "occurrence":
        return
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas > 1 and workers.of_strategy() is None:
        raise NotImplementedError(
            f"The table '{table}' has {admission!r}, but the {replicas} "
            "replicas of the strategy count the occurrences in their parts of a "
            "batch one after another. Use unit='step'."
        )


def servers() -> list[str]:
    """Returns the parameter servers of the strategy in scope, if any."""
    strategy = tf.distribute.get_strategy()
    if not isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return []
    names = [device.name for device in tf.config.list_logical_devices("CPU")]
    return [
        name
        for name in names
        if tf.DeviceSpec.from_string(name).job == "ps" and name.endswith(":0")
    ]


def check_can_train(table: TableVariable) -> None:
    """Refuses steps whose replicas cannot update a table together.

    Raises:
        NotImplementedError: The strategy is not supported.
        RuntimeError: The step does not run in a replica.
    """
    strategy = tf.distribute.get_strategy()
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return
    name = type(strategy).__name__
    if not isinstance(strategy, _KNOWN):
        raise NotImplementedError(
            f"The table '{table.name}' is trained by {replicas} replicas "
            f"of {name}, but its rows are in the memory of one process. "
            f"{_INSTEAD}"
        )
    _check_can_count(table.name, table.admission)
    if table._workers != workers.of_strategy():
        raise RuntimeError(
            f"The table '{table.name}' is trained by several workers, but "
            f"was made outside of the scope of their {name}. Make it there."
        )
    if tf.distribute.in_cross_replica_context():
        raise RuntimeError(
            f"The table '{table.name}' is trained in the scope of {name}, "
            "but not in a replica. Call the step by strategy.run(step)."
        )
    model = table._model()
    if getattr(model, "steps_per_execution", 1) > 1:
        raise NotImplementedError(
            f"steps_per_execution={model.steps_per_execution} is not supported "
            f"in several replicas of {name}, nor by Keras. Leave it out."
        )


def check_can_accumulate(optimizer: Any) -> None:
    """Refuses `gradient_accumulation_steps` with several replicas."""
    steps = optimizer.gradient_accumulation_steps
    strategy = tf.distribute.get_strategy()
    if steps and strategy.num_replicas_in_sync > 1:
        # Keras applies gradients in a branch, where replicas cannot communicate.
        raise NotImplementedError(
            f"gradient_accumulation_steps={steps} is not supported in several "
            f"replicas of {type(strategy).__name__}, nor by Keras. Use batches "
            f"of {steps} times as many examples."
        )
