"""Evicts rows of all tables of a model while it trains."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lodestar._typing import Every
from lodestar.callbacks.periodic import Periodic
from lodestar.callbacks.table_stats import children
from lodestar.embedding import policies
from lodestar.embedding.embedding_variable import EmbeddingVariable


class Evict(Periodic):
    """Calls `evict(policy)` of each table every so many batches or epochs.

    >>> model.fit(x, y, callbacks=[
    ...     lodestar.callbacks.Evict(lodestar.MaxAge(10_000), every=1000)])

    Use it to get the evicted rows, or to say when rows are evicted. The `eviction`
    of a table needs no callback.

    It works in `model.fit` and `lodestar.train.fit`. A snapshot, from a callback
    later in the list, has the tables without the evicted rows.

    Args:
        policy: Policy, or list of policies, for all tables.
        every: Number of batches between evictions, or `"epoch"`.
        on_evict: Function of a table and the ids and rows that it evicted, as NumPy
            arrays, which is not called without any. The `on_evict` of a table is
            called as well.

    Raises:
        ValueError: If an argument is invalid or, when training begins, if the model
            has no table.
    """

    def __init__(
        self,
        policy: policies.Eviction | Sequence[policies.Eviction],
        every: Every = "epoch",
        on_evict: Callable[[EmbeddingVariable, np.ndarray, np.ndarray], Any]
        | None = None,
    ):
        super().__init__("every", every)
        if not policies.check_eviction(policy, "policy"):
            raise ValueError(
                f"`policy` must be at least one policy, got {policy!r}."
            )
        if on_evict is not None and not callable(on_evict):
            raise ValueError(
                "`on_evict` must be a function of a table, ids and rows, got "
                f"{on_evict!r}."
            )
        self._policy = policy
        self._on_evict = on_evict

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Checks that there is something to evict."""
        if not children(self.model, EmbeddingVariable):
            raise ValueError("callbacks.Evict: the model has no table.")

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
