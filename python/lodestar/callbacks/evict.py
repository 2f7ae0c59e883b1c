"""Evicts rows of all tables of a model while it trains."""

from collections.abc import Callable
from typing import Any

import numpy as np

from lodestar._typing import Every
from lodestar.callbacks.periodic import Periodic
from lodestar.callbacks.table_stats import children
from lodestar.embedding import policies
from lodestar.embedding.embedding_variable import EmbeddingVariable


class Evict(Periodic):
    """Calls `evict` of each table of the model every so many batches or epochs.

    >>> model.fit(x, y, callbacks=[
    ...     lodestar.callbacks.Evict(1000, lodestar.MaxAge(10_000))])

    It works in `model.fit` and `lodestar.train.fit`. A snapshot, from a callback
    later in the list, has the tables without the evicted rows.

    Args:
        every: Number of batches between evictions, or `"epoch"`.
        policy: Policy, or list of policies, for all tables. Defaults to the
            `eviction` of each table.
        on_evict: Function of a table and the ids and rows that it evicted, as NumPy
            arrays, which is not called without any. The `on_evict` of a table is
            called as well.

    Raises:
        ValueError: If an argument is invalid or, when training begins, if the model
            has no table, or without a `policy` no table has an `eviction`.
    """

    def __init__(
        self,
        every: Every = "epoch",
        policy: policies.Evictions = None,
        on_evict: Callable[[EmbeddingVariable, np.ndarray, np.ndarray], Any]
        | None = None,
    ):
        super().__init__("every", every)
        policies.check_eviction(policy, "policy")
        if on_evict is not None and not callable(on_evict):
            raise ValueError(
                "`on_evict` must be a function of a table, ids and rows, got "
                f"{on_evict!r}."
            )
        self._policy = policy
        self._on_evict = on_evict

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Checks that there is something to evict."""
        tables = children(self.model, EmbeddingVariable)
        if not tables:
            raise ValueError("callbacks.Evict: the model has no table.")
        if self._policy is None and not any(
            table.get_config()["eviction"] for table in tables
        ):
            raise ValueError(
                "callbacks.Evict has no `policy`, and no table of the model has "
                f"an `eviction`: {[table.name for table in tables]}."
            )

    def _on_batches(self) -> None:
        """Evicts rows every `every` batches."""
        for table in children(self.model, EmbeddingVariable):
            if self._on_evict is None:
                table.evict(self._policy)
                continue
            ids, rows = table.evict(self._policy, return_rows=True)
            if ids.shape[0]:
                self._on_evict(table, ids.numpy(), rows.numpy())

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Evicts rows if `every` is `"epoch"`."""
        if self._by_epoch:
            self._on_batches()
