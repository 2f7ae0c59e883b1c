"""fit and evaluate of models whose replicas make each step together."""

from typing import Any

import keras
import tensorflow as tf

from lodestar.embedding import workers
from lodestar.train.batch_sources import BatchSource, check_dataset
from lodestar.train.shared_out import Phases, SharedOut, prepare


def are_of(model: Any) -> bool:
    """Whether a model is made under a strategy of such replicas."""
    return isinstance(model, keras.Model) and isinstance(
        model.distribute_strategy,
        (
            tf.distribute.MirroredStrategy,
            tf.distribute.MultiWorkerMirroredStrategy,
        ),
    )


def fit(
    model: keras.Model,
    x: tf.data.Dataset,
    callbacks: Any,
    validation_data: tf.data.Dataset | None,
    **options: Any,
) -> keras.callbacks.History:
    """`model.fit`; `options` are of it."""
    steps = _steps(model, x, options["steps_per_epoch"])
    phases = _phases(
        model,
        callbacks,
        options["verbose"],
        add_history=True,
        epochs=options["epochs"],
        steps=steps,
    )
    phases.alike = {
        "validation_data": validation_data is not None,
        **{name: given for name, given in options.items() if name != "verbose"},
    }
    strategy = model.distribute_strategy
    data = SharedOut(x, strategy, lambda: phases.training)
    prepare(model, data)
    if validation_data is not None:
        check_dataset("validation_data", validation_data)
        validation_data = SharedOut(
            validation_data, strategy, lambda: phases.testing
        )
    return model.fit(
        data, callbacks=phases, validation_data=validation_data, **options
    )


def evaluate(
    model: keras.Model, x: tf.data.Dataset, callbacks: Any, **options: Any
) -> dict[str, Any]:
    """`model.evaluate`; `options` are of it."""
    steps = _steps(model, x, options["steps"])
    phases = _phases(
        model,
        callbacks,
        options["verbose"],
        epochs=1,
        steps=steps,
    )
    workers.check_alike(model.distribute_strategy, {"steps": options["steps"]})
    data = SharedOut(x, model.distribute_strategy, lambda: phases.testing)
    prepare(model, data)
    return model.evaluate(data, callbacks=phases, return_dict=True, **options)


def _steps(model: keras.Model, x: Any, steps: int | None) -> int | None:
    """Of an epoch; None: not known. Checks them and the dataset."""
    steps = BatchSource("x", x, steps).steps
    # Where it has none in one worker, the others would wait for that one.
    if workers.any_of(model.distribute_strategy, steps == 0):
        raise ValueError("`x` has no batch.")
    return steps


def _phases(
    model: keras.Model, callbacks: Any, verbose: Any, **options: Any
) -> Phases:
    return Phases(
        callbacks,
        model=model,
        verbose=verbose,
        add_progbar=verbose != 0,
        **options,
    )
