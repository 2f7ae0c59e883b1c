"""Early stopping that keeps the tables of the best epoch, too."""

import os
import tempfile
import warnings
from typing import Any, Protocol

import keras
import tensorflow as tf

from lodestar._typing import StrPath
from lodestar.embedding.table_variable import as_table
from lodestar.snapshot.errors import SnapshotError
from lodestar.snapshot.found_tables import tables_in


class BestEpochs(Protocol):
    """Who keeps the best epoch beside what else it writes."""

    def keep_best(self, callback: "EarlyStopping") -> None:
        """Keeps the epoch that ends; sets `kept` of the callback to where."""

    def restore_best(self, callback: "EarlyStopping") -> None:
        """Brings back what was kept for the callback.

        Raises:
            SnapshotError: It is not there any more, or cannot be read.
        """

    @property
    def newest(self) -> int | None:
        """Where the last was kept."""


class EarlyStopping(keras.callbacks.EarlyStopping):
    """As Keras's; `restore_best_weights` restores embedding tables with it.

    Keras's own keeps `model.get_weights()` of the best epoch, which has no
    rows of tables and is refused. This one writes dense weights, embedding
    tables and id tables of the best epoch to disk, and brings them back when
    training ends: rows that came later go, evicted ones are there again. What
    lies in a table goes back with it: optimizer slots, frequencies, last-seen
    steps, ids that wait for admission, the table's step. As in Keras, the
    optimizer's own variables (slots of dense weights, iterations) stay as
    they are.

    >>> model.fit(
    ...     x,
    ...     y,
    ...     validation_data=validation,
    ...     callbacks=[
    ...         lodestar.callbacks.EarlyStopping(
    ...             patience=3, restore_best_weights=True
    ...         )
    ...     ],
    ... )

    In `fit` of `lodestar.callbacks.Snapshot` the best epoch is a version of its
    folder instead, and a training that goes on there, in another process,
    knows the best epoch and how long it has waited. One that was stopped early
    stays so, unless `patience` is raised.

    Args:
        monitor: As for `keras.callbacks.EarlyStopping`.
        min_delta: As there.
        patience: As there.
        verbose: As there.
        mode: As there.
        baseline: As there.
        restore_best_weights: As there, with the tables.
        start_from_epoch: As there.
        directory: Where the best epoch is kept while training runs, in a
            folder that is removed at the end: a local directory with room for
            twice the tables; default: the system's for temporary files.

    Raises:
        ValueError: `directory` is none.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0,
        patience: int = 0,
        verbose: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
        restore_best_weights: bool = False,
        start_from_epoch: int = 0,
        directory: StrPath | None = None,
    ):
        # Keras is to choose the best epoch, and not to copy its weights.
        super().__init__(
            monitor=monitor,
            min_delta=min_delta,
            patience=patience,
            verbose=verbose,
            mode=mode,
            baseline=baseline,
            restore_best_weights=False,
            start_from_epoch=start_from_epoch,
        )
        if directory is not None and not os.path.isdir(directory):
            raise ValueError(f"`directory`={str(directory)!r} is no directory.")
        self._restores = restore_best_weights
        self._directory = directory
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._manager: tf.train.CheckpointManager = None
        # Of `fit` of a Snapshot.
        self.keeper: BestEpochs | None = None
        self.kept: int | None = None  # where; 0: in what is being written

    def on_train_begin(self, logs: Any = None) -> None:
        """Forgets an earlier training."""
        super().on_train_begin(logs)
        self.kept = None
        self._remove()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keeps the epoch if it is the best so far."""
        super().on_epoch_end(epoch, logs)
        is_best = self.best is not None and self.best_epoch == epoch
        if not self._restores or not is_best:
            return
        if self.keeper is None:
            self._save()
        else:
            self.keeper.keep_best(self)

    def on_train_end(self, logs: Any = None) -> None:
        """Brings the best epoch back."""
        super().on_train_end(logs)
        keeper, manager = self.keeper, self._manager
        if not self._restores or self.best is None or not (keeper or manager):
            return
        if self.verbose > 0:
            print(
                "Restoring weights and tables from the end of the best epoch: "
                f"{self.best_epoch + 1}."
            )
        if keeper is None:
            manager.checkpoint.restore(
                manager.latest_checkpoint
            ).assert_consumed()
            self._remove()
            return
        try:
            keeper.restore_best(self)
        except SnapshotError as error:
            warnings.warn(
                f"The best epoch, {self.best_epoch + 1}, is not there any "
                f"more, and the model is that of the last one: {error}",
                RuntimeWarning,
                stacklevel=2,
            )

    def get_state(self) -> dict[str, Any]:
        """What `Snapshot.fit` saves beside what Keras's has."""
        return {"kept": self.kept}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes what `get_state` gave."""
        self.kept = state["kept"]
        if self.kept == 0 and self.keeper is not None:
            self.kept = self.keeper.newest

    def _save(self) -> None:
        if self._manager is None:
            self._folder = tempfile.TemporaryDirectory(
                prefix="best_epoch_", dir=self._directory
            )
            # The manager writes an epoch before it removes the one before.
            self._manager = tf.train.CheckpointManager(
                tf.train.Checkpoint(
                    weights=[
                        v for v in self.model.weights if as_table(v) is None
                    ],
                    tables=list(tables_in(self.model)),
                ),
                self._folder.name,
                max_to_keep=1,
            )
        self._manager.save()

    def _remove(self) -> None:
        self._manager = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
