"""Statistics of embedding tables in TensorBoard."""

from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.layers.embedding_collection import EmbeddingCollection

_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"),
    data_class="DATA_CLASS_SCALAR",
)


class TableStats(keras.callbacks.Callback):
    """Writes what `stats()` says of each table as TensorBoard scalars.

    A scalar is named `table/<name of the table>/<name of the number>`; for the
    features of an EmbeddingCollection
    `feature/<name of the layer>/<name of the feature>/<name of the number>`.
    Tables of one name, and layers of one name, are told apart by `_1`, `_2`,
    ... in the order in which the model has them. Numbers that a table gives as
    a mapping or a list (by shard) become scalars of their parts.

    >>> model.fit(x, y, callbacks=[lodestar.callbacks.TableStats("logs")])

    Scalars are read at the end of every `update_freq` batches, or of every
    epoch, and their step is the number of batches trained so far. Counters go
    on from where they were; nothing is reset. In `fit` of
    `lodestar.callbacks.Snapshot` the step goes on over processes.

    Args:
        log_dir: Directory of the event files.
        update_freq: `"epoch"`, or a number of batches, at least 1.

    Raises:
        ValueError: `update_freq` is neither.
    """

    def __init__(self, log_dir: str, update_freq: str | int = "epoch"):
        super().__init__()
        if update_freq != "epoch" and (
            isinstance(update_freq, (bool, str)) or update_freq < 1
        ):
            raise ValueError(
                f"`update_freq`={update_freq!r} is not 'epoch' or a number of "
                "batches, at least 1."
            )
        self._log_dir = str(log_dir)
        self._update_freq: Any = update_freq
        self._writer: tf.summary.SummaryWriter = None
        self._batches = 0

    def on_train_begin(self, logs: Any = None) -> None:
        self._writer = tf.summary.create_file_writer(self._log_dir)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Writes every `update_freq` batches."""
        self._batches += 1
        if (
            self._update_freq != "epoch"
            and self._batches % self._update_freq == 0
        ):
            self._write()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Writes, if `update_freq` is `"epoch"`."""
        if self._update_freq == "epoch":
            self._write()

    def on_train_end(self, logs: Any = None) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def get_state(self) -> dict[str, int]:
        """What `Snapshot.fit` saves."""
        return {"batches": self._batches}

    def set_state(self, state: dict[str, int]) -> None:
        """Takes what `get_state` gave."""
        self._batches = state["batches"]

    def _write(self) -> None:
        with self._writer.as_default(step=self._batches):
            for name, value in model_stats(self.model).items():
                # As tf.summary.scalar, which needs TensorBoard installed.
                tf.summary.write(
                    name, tf.constant(value, tf.float32), metadata=_SCALAR
                )
        self._writer.flush()


def model_stats(model: keras.Model) -> dict[str, float]:
    """The numbers that TableStats writes, by name."""
    tables: list[EmbeddingVariable] = []
    collections: list[EmbeddingCollection] = []
    for child in tf.train.TrackableView(model).descendants():
        if isinstance(child, EmbeddingVariable):
            tables.append(child)
        elif isinstance(child, EmbeddingCollection):
            collections.append(child)
    numbers: dict[str, float] = {}
    for kind, things in (("table", tables), ("feature", collections)):
        seen: dict[str, int] = {}
        for thing in things:
            count = seen[thing.name] = seen.get(thing.name, 0) + 1
            name = thing.name if count == 1 else f"{thing.name}_{count - 1}"
            numbers.update(_scalars(f"{kind}/{name}", thing.stats()))
    return numbers


def _scalars(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _scalars(f"{name}/{key}", part)
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            yield from _scalars(f"{name}/{index}", part)
    elif isinstance(value, (int, float)):
        yield name, value
