"""Which strategies of `tf.distribute` tables can be made and trained under."""

import tensorflow as tf

from lodestar.embedding.hook_variable import HookVariable

_INSTEAD = (
    "Make and train the model without a strategy, or under "
    "tf.distribute.OneDeviceStrategy('/CPU:0')."
)


def check_can_hold(table: str) -> None:
    """Refuses a strategy that would put parts of a table on other tasks.

    Raises:
        NotImplementedError: Names the table and the strategy.
    """
    strategy = tf.distribute.get_strategy()
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        raise NotImplementedError(
            f"The table '{table}' is made under "
            f"{type(strategy).__name__}, but tables do not live on parameter "
            f"servers. {_INSTEAD}"
        )


def check_can_train(hook: HookVariable) -> None:
    """Refuses a strategy whose replicas would each apply their gradient.

    Raises:
        NotImplementedError: Names the table, the replicas and the strategy.
    """
    strategy = tf.distribute.get_strategy()
    replicas = strategy.num_replicas_in_sync
    if replicas > 1:
        raise NotImplementedError(
            f"The table '{hook.table.name}' is trained by {replicas} replicas of "
            f"{type(strategy).__name__}, but tables are trained by one. "
            f"{_INSTEAD}"
        )
