"""Statistics of embedding tables in TensorBoard, and in Keras's logs."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import keras
import tensorflow as tf

from lodestar._files import as_path
from lodestar._typing import Every, StrPath
from lodestar.callbacks.periodic import Periodic
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.layers.embedding_collection import EmbeddingCollection

T = TypeVar("T")

_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"),
    data_class="DATA_CLASS_SCALAR",
)


class TableStats(Periodic):
    """Writes the `stats()` of each table as TensorBoard scalars and Keras logs.

    Scalars are named `table/<table>/<statistic>`, and for the features of an
    EmbeddingCollection `feature/<layer>/<feature>/<statistic>`. Further tables or
    layers of the same name get `_1`, `_2`, ... in the model's order. A statistic
    that is a dict or a list (by shard) becomes several scalars.

    >>> model.fit(x, y, callbacks=[lodestar.callbacks.TableStats("logs")])

    The step of a scalar is the number of batches trained so far, including, with
    `snapshots` of `lodestar.train.fit`, those before an interruption. With
    `steps_per_execution`, if Keras does not know the number of batches, the last
    call of each epoch counts as full. Counters are not reset.

    At the end of each epoch the statistics in `logs` are added to Keras's logs
    under the names of the scalars, for `History`, the progress bar, and callbacks
    later in the list, such as `CSVLogger` and `EarlyStopping`.

    >>> stats = lodestar.callbacks.TableStats("logs", logs=["rows", "load"])
    >>> history = model.fit(x, y, verbose=0, callbacks=[stats])
    >>> history.history["table/user/rows"]
    [4]

    Args:
        log_dir: Directory of the event files. None writes none.
        update_freq: Number of batches between writes, or `"epoch"`.
        logs: Statistics to add to the logs, by the last part of their names
            (`"rows"` for `table/user/rows`) or by full names; or `"all"`.

    Raises:
        ValueError: If an argument is out of range or, when training begins, if
            no table has a statistic in `logs`.
    """

    def __init__(
        self,
        log_dir: StrPath | None,
        update_freq: Every = "epoch",
        logs: str | Iterable[str] = ("rows",),
    ):
        super().__init__("update_freq", update_freq)
        if logs != "all" and (
            isinstance(logs, str) or not isinstance(logs, Iterable)
        ):
            raise ValueError(
                f"`logs` must be 'all' or a list of names, got {logs!r}."
            )
        self._log_dir = None if log_dir is None else as_path(log_dir)
        self._logs = logs if logs == "all" else list(logs)
        self._writer: tf.summary.SummaryWriter | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Checks `logs` and opens the event file."""
        numbers = model_stats(self.model)
        for name in self._logs if numbers and self._logs != "all" else ():
            if not any(_is_called(found, name) for found in numbers):
                last = (n.rpartition("/")[2] for n in numbers)
                known = dict.fromkeys(n for n in last if not n.isdigit())
                raise ValueError(
                    f"`logs` has {name!r}, which is not a statistic of any "
                    f"table. Allowed: {', '.join(known)}."
                )
        if self._log_dir is not None:
            self._writer = tf.summary.create_file_writer(self._log_dir)

    def _on_batches(self) -> None:
        """Writes every `update_freq` batches."""
        self._write(model_stats(self.model))

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Extends the logs; writes if `update_freq` is `"epoch"`."""
        wants_logs = logs is not None and self._logs
        if not self._by_epoch and not wants_logs:
            return
        numbers = model_stats(self.model)
        if self._by_epoch:
            self._write(numbers)
        if logs is None:
            return
        for name, value in numbers.items():
            if self._logs == "all" or any(
                _is_called(name, wanted) for wanted in self._logs
            ):
                logs[name] = value

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, numbers: Mapping[str, float]) -> None:
        if self._writer is None:
            return
        with self._writer.as_default(step=self._batches):
            for name, value in numbers.items():
                # tf.summary.scalar needs the tensorboard package.
                tf.summary.write(
                    name, tf.constant(value, tf.float32), metadata=_SCALAR
                )
        self._writer.flush()


def _is_called(name: str, wanted: str) -> bool:
    return name == wanted or name.rpartition("/")[2] == wanted


def model_stats(model: keras.Model) -> dict[str, float]:
    """Returns the scalars that TableStats writes, by name."""
    numbers: dict[str, float] = {}
    for kind, things in (
        ("table", children(model, EmbeddingVariable)),
        ("feature", children(model, EmbeddingCollection)),
    ):
        for name, thing in by_name(things).items():
            numbers.update(_scalars(f"{kind}/{name}", thing.stats()))
    return numbers


def children(model: keras.Model, kind: type[T]) -> list[T]:
    """Returns the tables or layers of a class in `model`."""
    return [
        child
        for child in tf.train.TrackableView(model).descendants()
        if isinstance(child, kind)
    ]


def by_name(things: Iterable[Any]) -> dict[str, Any]:
    """Returns name -> object, with `_1`, ... added to repeated names."""
    named: dict[str, Any] = {}
    seen: dict[str, int] = {}
    for thing in things:
        count = seen[thing.name] = seen.get(thing.name, 0) + 1
        named[thing.name if count == 1 else f"{thing.name}_{count - 1}"] = thing
    return named


def _scalars(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _scalars(f"{name}/{key}", part)
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            yield from _scalars(f"{name}/{index}", part)
    elif isinstance(value, (int, float)):
        yield name, value
