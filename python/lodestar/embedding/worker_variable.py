"""The embedding variable with rows partitioned over workers."""

import struct
from collections.abc import Mapping
from typing import Any, NoReturn

import keras
import tensorflow as tf

from lodestar.embedding import ids as ids_lib
from lodestar.embedding import (
    policies,
    table_parts,
    workers,
)
from lodestar.embedding.placed_table import PlacedTable
from lodestar.embedding.saved_state import NAMES
from lodestar.embedding.sharded_variable import ShardedEmbeddingVariable
from lodestar.embedding.table_parts import TablePart
from lodestar.embedding.workers import Workers
from lodestar.ops import embedding_partition_ops

_FIRST_VALUES = struct.Struct("<qq")
# Equal in all parts of a table.
_EQUAL = (
    "optimizer",
    "slot_names",
    "slot_inits",
    "counters",
    "shared_rows",
    "shared_slots",
)


@keras.saving.register_keras_serializable(package="lodestar")
class WorkerEmbeddingVariable(ShardedEmbeddingVariable):
    """The EmbeddingVariable under a MultiWorkerMirroredStrategy.

    A hash of the id selects the process that holds its row. In `lookup` and
    `find`, which all replicas must call together inside `strategy.run`, each
    process receives the rows of its own ids. `export` and checkpoints cover the
    whole table and must be called by all workers. Other methods read or remove
    the rows of this process only.
    """

    _workers: Workers

    def _make_parts(self) -> tuple[TablePart, ...]:
        if self._shared_row_count:
            raise NotImplementedError(
                f"The table '{self.name}' has {self._shared_rows!r}, which "
                "MultiWorkerMirroredStrategy does not support. Use "
                "default_row='initial' or a vector."
            )
        if self._row_dtype == tf.bfloat16:
            raise NotImplementedError(
                f"The table '{self.name}' has dtype 'bfloat16', in which "
                "TensorFlow's MultiWorkerMirroredStrategy cannot create "
                "variables. Use 'float16' or 'float32'."
            )
        found = workers.of_strategy()
        assert found is not None
        self._workers = found
        if self._workers.replicas > 1:
            raise NotImplementedError(
                f"The table '{self.name}' is made under workers with "
                f"{self._workers.replicas} replicas each. Give each worker of "
                "MultiWorkerMirroredStrategy one device."
            )
        self._strategy = tf.distribute.get_strategy()
        self._own_eviction = table_parts.shares(
            self._eviction, self._workers.count
        )[self._workers.index]
        # A table without a name draws a different seed in each process.
        words = _FIRST_VALUES.pack(self._seed, self._salt)
        self._seed, self._salt = _FIRST_VALUES.unpack(self._exchange(words)[0])
        return super()._make_parts()

    def _attributes(self) -> dict[str, Any]:
        own = policies.own_attributes(self._own_eviction)
        return {**super()._attributes(), **own}

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]} workers={self._workers.count}>"

    def insert_or_assign(self, ids: Any, rows: Any) -> None:
        """Sets the rows of those `ids` that belong to this worker."""
        divided = embedding_partition_ops.partition_rows(
            ids_lib.to_dense_int64(ids, "insert_or_assign"),
            ids_lib.to_numbers(rows, "rows", self._row_dtype),
            self._workers.count,
        )
        super().insert_or_assign(*divided[self._workers.index])

    def _exchange(self, text: bytes) -> list[bytes]:
        """Returns the `text` of each worker. All workers must call it."""
        return workers.exchange(self._strategy, text)

    def _export_all(
        self, optimizer_slots: bool = True, with_rows: bool = True
    ) -> dict[str, tf.Tensor]:
        """Returns the content of all workers. All workers must call it."""
        if not tf.executing_eagerly():
            self._refuse_saved_model()
        own = super()._export_all(optimizer_slots, with_rows)
        slots = "optimizer_slots"  # [S, N, W], gathered along N
        own[slots] = tf.transpose(own[slots], [1, 0, 2])
        names = [name for name in NAMES if name not in _EQUAL]
        of_workers = workers.of_each(
            self._strategy, [own[name] for name in names]
        )
        parts = [{**own, **dict(zip(names, arrays))} for arrays in of_workers]
        for part in parts:
            part[slots] = tf.transpose(part[slots], [1, 0, 2])
        return table_parts.merged(parts)

    def _refuse_saved_model(self) -> NoReturn:
        raise NotImplementedError(
            f"The rows of {self!r} are partitioned over workers, but a "
            "SavedModel needs them in one process. Restore a snapshot or "
            "checkpoint in a process without a strategy, and export the model "
            "there."
        )

    def _saved_children(self, save_type: str) -> dict[str, Any]:
        if save_type == "savedmodel":
            self._refuse_saved_model()
        return super()._saved_children(save_type)

    def _capture_for_checkpoint(self, captures: Any) -> None:
        raise RuntimeError(
            f"{self!r} cannot be in an asynchronous checkpoint: the workers of "
            "MultiWorkerMirroredStrategy must gather its rows between two "
            "steps. Save without `experimental_enable_async_checkpoint`, or "
            "write a snapshot (lodestar.snapshot)."
        )

    def _import_all(
        self, saved: Mapping[str, Any], mode: str = "replace"
    ) -> tf.Operation | None:
        """Loads the rows of this worker from what `_export_all` returned.

        If the rows of a capped table exceed the share of a worker, `MaxRows` selects
        the rows that are left out.
        """
        of_workers = self._divided(saved, self._workers.count, mode)
        return super()._import_all(of_workers[self._workers.index], mode)


PlacedTable._on_workers = WorkerEmbeddingVariable
