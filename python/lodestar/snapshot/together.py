"""Agreement between the processes that write or read one snapshot."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from lodestar._errors import describe_error
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.snapshot.errors import SnapshotError, SnapshotLockedError


class Together:
    """This process, or all workers of the strategy of a snapshot's tables.

    Attributes:
        several: Whether other processes take part. All of them must call
            `agree` equally often.
        first: Whether this process does what must be done once.
    """

    def __init__(self, tables: Iterable[EmbeddingVariable]):
        shared: list[Any] = [t for t in tables if t._workers is not None]
        self._table = shared[0] if shared else None
        self.several = self._table is not None
        self.first = self._table is None or self._table._workers.index == 0

    def agree(self, call: Callable[[], Any]) -> list[Any]:
        """Returns the JSON results of `call` in every process, to all of them.

        Raises this process's own error, or another one's as SnapshotLockedError
        or SnapshotError.
        """
        if self._table is None:
            return [call()]
        answer: dict[str, Any] = {}
        own: Exception | None = None
        try:
            answer["value"] = call()
        except Exception as error:
            own = error
            answer["error"] = describe_error(error)
            answer["locked"] = isinstance(error, SnapshotLockedError)
        gathered = self._table._placement.exchange(json.dumps(answer).encode())
        if own is not None:
            raise own
        answers = [json.loads(data) for data in gathered]
        for worker, found in enumerate(answers):
            if "error" in found:
                kind = SnapshotLockedError if found["locked"] else SnapshotError
                raise kind(f"worker {worker}: {found['error']}")
        return [found["value"] for found in answers]

    def of_first(self, call: Callable[[], Any]) -> Any:
        """Returns the result of `call` in the first process; see `agree`."""
        return self.agree(lambda: call() if self.first else None)[0]
