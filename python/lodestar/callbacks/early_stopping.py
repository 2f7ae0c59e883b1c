"""Early stopping that restores the tables of the best epoch."""

import os
import tempfile
import warnings
from typing import Any, Literal

import tensorflow as tf

from lodestar import _bases
from lodestar._arguments import explained
from lodestar._typing import StrPath
from lodestar.embedding.table_variable import as_table
from lodestar.snapshot.errors import SnapshotError
from lodestar.snapshot.found_tables import tables_in


class EarlyStopping(_bases.EarlyStopping):
    """`keras.callbacks.EarlyStopping` that also restores tables.

    For `restore_best_weights`, Keras keeps `model.get_weights()` of the best
    epoch, which lacks the rows of tables; Lodestar rejects it. This callback
    writes dense weights, embedding tables and id tables of the best epoch to disk
    and restores them when training ends, including optimizer slots, frequencies,
    last-seen steps, ids that wait for admission, and the table's step. As in
    Keras, the optimizer's own variables (slots of dense weights, iterations) are
    not restored.

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

    With `snapshots` of `lodestar.train.fit`, the best epoch is one of the
    snapshots. A resumed training continues with its best epoch and its number of
    epochs without improvement. If it was stopped early, it remains stopped until
    `patience` is raised.

    Args:
        monitor: See `keras.callbacks.EarlyStopping`, also for the next ones.
        min_delta: Smallest improvement.
        patience: Epochs without improvement before training stops.
        verbose: 1 prints when training stops and what is restored.
        mode: `"min"`, `"max"` or `"auto"`.
        baseline: Value to exceed.
        restore_best_weights: Whether to restore weights and tables.
        start_from_epoch: Epochs before monitoring starts.
        directory: Local directory for the best epoch, with room for the tables
            twice. Defaults to the system's directory for temporary files.

    Raises:
        ValueError: If `directory` does not exist.
    """

    @explained()
    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0,
        patience: int = 0,
        verbose: int = 0,
        mode: Literal["auto", "min", "max"] = "auto",
        baseline: float | None = None,
        restore_best_weights: bool = False,
        start_from_epoch: int = 0,
        directory: StrPath | None = None,
    ):
        # Keras chooses the best epoch, but does not copy its weights.
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
            raise ValueError(
                f"`directory` must be an existing directory, got {str(directory)!r}."
            )
        self._restores = restore_best_weights
        self._directory = directory
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._manager: tf.train.CheckpointManager = None
        # The Snapshot callback of `lodestar.train.fit`, which keeps the epoch.
        self._keeper: Any = None
        self._kept: int | None = (
            None  # Version, or 0 while it is being written.
        )

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Removes the best epoch of an earlier training."""
        super().on_train_begin(logs)
        self._kept = None
        self._remove()

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Keeps the epoch if it is the best so far."""
        super().on_epoch_end(epoch, logs)
        is_best = self.best is not None and self.best_epoch == epoch
        if not self._restores or not is_best:
            return
        if self._keeper is None:
            self._save()
        else:
            self._keeper._keep_best(self)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Restores the best epoch."""
        super().on_train_end(logs)
        keeper, manager = self._keeper, self._manager
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
            keeper._restore_best(self)
        except SnapshotError as error:
            warnings.warn(
                f"The best epoch, {self.best_epoch + 1}, is no longer available, "
                f"so the model keeps its last state: {error}",
                RuntimeWarning,
                stacklevel=2,
            )

    def get_state(self) -> dict[str, Any]:
        """Returns the state that snapshots save in addition to Keras's."""
        return {"kept": self._kept}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the result of `get_state`."""
        self._kept = state["kept"]
        if self._kept == 0 and self._keeper is not None:
            self._kept = self._keeper._newest

    def _save(self) -> None:
        if self._manager is None:
            self._folder = tempfile.TemporaryDirectory(
                prefix="best_epoch_", dir=self._directory
            )
            # The manager writes the new epoch before it removes the old one.
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
