"""What the processes that write or read one snapshot do together."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from lodestar._errors import describe_error
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.snapshot.errors import SnapshotError, SnapshotLockedError


class Together:
    """This process, or the workers of the strategy that tables are made under.

    Args:
        tables: All, of which each worker has its rows.

    Attributes:
        several: Whether others take part. Each calls `agree` as often then.
        first: Whether this process does what is done once.
    """

    def __init__(self, tables: Iterable[EmbeddingVariable]):
        shared: list[Any] = [t for t in tables if t.workers is not None]
        self._table = shared[0] if shared else None
        self.several = self._table is not None
        self.first = self._table is None or self._table.workers.index == 0

    def agree(self, call: Callable[[], Any]) -> list[Any]:
        """What `call` gives in each process, in all of them, as JSON has it.

        Raises:
            Exception: What `call` raised, here.
            SnapshotLockedError: What it raised in another process.
            SnapshotError: It raised something else there.
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
        said = self._table.exchange(json.dumps(answer).encode())
        if own is not None:
            raise own
        answers = [json.loads(text) for text in said]
        for worker, found in enumerate(answers):
            if "error" in found:
                kind = SnapshotLockedError if found["locked"] else SnapshotError
                raise kind(f"worker {worker}: {found['error']}")
        return [found["value"] for found in answers]

    def of_first(self, call: Callable[[], Any]) -> Any:
        """What `call` gives in the first process alone; as `agree`."""
        return self.agree(lambda: call() if self.first else None)[0]
