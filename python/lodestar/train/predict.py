"""Predictions of models under parameter servers."""

import weakref
from typing import Any

import keras
import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import check_count
from lodestar._errors import noting_graph_errors
from lodestar._typing import Model
from lodestar.embedding import workers
from lodestar.optimizers.update_attempt import UpdateLogs
from lodestar.schema import SchemaLike
from lodestar.train.batch_sources import BatchSource
from lodestar.train.cluster_steps import errors
from lodestar.train.given_data import Data, GivenData
from lodestar.train.step import call_model, check_is_model, compiled

# Maximum number of batches, or of their outputs, in this process.
_BATCHES_PER_ROUND = 256


@explained()
@noting_graph_errors()
def predict(
    model: Model,
    data: Data,
    *,
    steps: int | None = None,
    schema: SchemaLike | None = None,
    batch_size: int | None = None,
) -> Any:
    """Predicts like `model.predict`, under a ParameterServerStrategy.

    >>> with strategy.scope():
    ...     model = make_model()
    >>> scores = lodestar.train.predict(model, dataset)

    Args:
        model: A model created in the scope of the strategy, compiled or not.
        data: As in `fit`: batches of inputs, or of tuples that start with them. This
            program reads them; a worker computes each.
        steps: Number of batches. Defaults to all.
        schema: See `fit`.
        batch_size: See `fit`.

    Returns:
        The outputs of all batches in order, as arrays, or RaggedTensors if ragged.

    Raises:
        TypeError: If `model` or `data` has the wrong type.
        ValueError: If `model` has another strategy, `steps` is out of range, or
            `data` is empty or endless.
        tf.errors.UnavailableError: If a parameter server is lost. The error names it.
        tf.errors.OpError: If reading or the model fails.
    """
    check_is_model(model, compiled=False)
    strategy = model.distribute_strategy
    if not isinstance(strategy, tf.distribute.ParameterServerStrategy):
        instead = "Use model.predict instead."
        if workers.of(strategy) is not None:
            instead = (
                "Restore a snapshot in a process without a strategy, and use "
                "model.predict there."
            )
        raise ValueError(
            "The model must be created under ParameterServerStrategy, got "
            f"{type(strategy).__name__}. {instead}"
        )
    if steps is not None:
        check_count("steps", steps, 1)
    given = GivenData(schema, batch_size)
    given.check(data)
    dataset = given.batches("data", data)
    if steps is not None:
        dataset = dataset.take(steps)
    source = BatchSource("data", dataset, None)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    if model not in _OUTPUTS:
        _OUTPUTS[model] = _outputs_of(model)
    outputs: list[Any] = []
    source.begin()
    logs = UpdateLogs.of(strategy)
    with errors(coordinator):
        while True:
            batches, taken = source.take(_BATCHES_PER_ROUND)
            if not taken:
                break
            values = [
                coordinator.schedule(_OUTPUTS[model], (batch,))
                for batch in batches
            ]
            logs.join(coordinator)
            outputs += [value.get() for value in values]
    if not outputs:
        raise source.no_batch()
    return tf.nest.map_structure(_as_array, *outputs)


def _outputs_of(model: keras.Model) -> Any:
    model_ref = weakref.ref(model)

    def outputs(batch: Any) -> Any:
        inputs, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
        return call_model(model_ref(), inputs, training=False)

    return compiled(outputs)


def _as_array(*values: Any) -> Any:
    whole = tf.concat(values, 0)
    return whole.numpy() if isinstance(whole, tf.Tensor) else whole


# Weak keys, so that models can be freed.
_OUTPUTS: weakref.WeakKeyDictionary[keras.Model, Any] = (
    weakref.WeakKeyDictionary()
)
