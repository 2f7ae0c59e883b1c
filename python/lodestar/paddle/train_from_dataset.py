"""Paddle's train_from_dataset: training by threads that prints metrics."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from lodestar._arguments import explained
from lodestar._checks import check_count

OnPeriod = Callable[[int, dict[str, Any]], None]


@explained()
def train_from_dataset(
    model: keras.Model,
    dataset: Any,
    threads: int = 0,
    fetch: Sequence[str] | None = None,
    fetch_info: Sequence[str] | None = None,
    print_period: int = 100,
    *,
    on_period: OnPeriod | None = None,
) -> dict[str, Any]:
    """Trains one epoch over files with threads, like Paddle's function.

    This is `lodestar.train.fit` with `threads`, and it prints metrics
    periodically. With `fetch` it also prints the time of the epoch at its end.

    >>> data = lodestar.data.open_dataset("log/20260130/*.txt", "schema.yaml")
    >>> metrics = lodestar.paddle.train_from_dataset(model, data, fetch=["loss", "auc"])

    Args:
        model: A compiled model; see `lodestar.train.fit`.
        dataset: The result of `lodestar.data.open_dataset` for files, a list of
            datasets, or an `InMemoryDataset`.
        threads: Number of threads; 0 starts one per core. There are at most as many
            as files or queues; a line is printed if these are fewer.
        fetch: Names to print: metrics, and layers of a functional model, whose
            outputs are averaged over the steps of the period. None prints all
            metrics.
        fetch_info: Labels to print instead of the names.
        print_period: Steps of all threads between two lines.
        on_period: Called instead of printing, with the number of steps and the
            values by label. No step runs during the call, so it can save a
            snapshot.

    Returns:
        All metrics of the epoch by name.

    Raises:
        TypeError: If `dataset` or `model` has the wrong type.
        ValueError: If an argument is out of range, the model cannot be trained by
            threads, or `fetch` has a name that is neither a metric nor a layer with
            one output.
        tf.errors.OpError: If reading or a step fails. All threads end after their
            current step. A note on the error names the file.
    """
    # `lodestar.train` imports the readers of this package.
    from lodestar.train import loop
    from lodestar.train.step import check_is_model
    from lodestar.train.threads import ThreadSteps

    check_count("print_period", print_period, 1)
    check_is_model(model)
    if isinstance(fetch, str):
        raise ValueError(f"`fetch`={fetch!r} must be a list of names.")
    fetch = None if fetch is None else list(fetch)
    steps = ThreadSteps(model, dataset, threads, print_period, fetch)
    if steps.threads < steps.wanted:
        print(
            f"train_from_dataset: {steps.threads} thread"
            f"{'' if steps.threads == 1 else 's'} instead of {steps.wanted}, "
            "one per file or queue",
            flush=True,
        )
    labels = _labels(steps.step.fetch, fetch_info)

    def show(batch: int, logs: dict[str, Any]) -> None:
        number = batch + 1
        if number % print_period:
            return  # This is the rest of the last period.
        values = logs | steps.means()
        shown = {
            label: values[name]
            for label, name in zip(labels, steps.step.fetch, strict=True)
        }
        if on_period is not None:
            on_period(number, shown)
        else:
            _print(number, shown)

    callbacks = keras.callbacks.CallbackList(
        [keras.callbacks.LambdaCallback(on_train_batch_end=show)],
        add_history=True,
        model=model,
        epochs=1,
        steps=None,
    )
    begin = time.perf_counter()
    history = loop.train(steps, callbacks, range(1)).history
    if fetch is not None and on_period is None:
        seconds = time.perf_counter() - begin
        print(f"epoch: {steps.done} steps in {seconds:.1f} s", flush=True)
    return {name: value for name, (value,) in history.items()}


def _labels(names: list[str], labels: Sequence[str] | None) -> list[str]:
    if labels is None:
        return names
    if isinstance(labels, str) or len(labels) != len(names):
        raise ValueError(
            f"`fetch_info`={labels!r} must have a label for each of {names}."
        )
    return list(labels)


def _print(steps: int, values: Mapping[str, Any]) -> None:
    texts = [
        f"{label} {value:.4f}"
        if isinstance(value, float)
        else f"{label} {value}"
        for label, value in values.items()
    ]
    print(f"step {steps}: {', '.join(texts)}", flush=True)
