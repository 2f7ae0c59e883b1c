"""Source: what the readers of columns of all formats share."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from lodestar.data.schema import Schema
from lodestar.data.skipped_records import SkippedRecords


class Source:
    """Files of one format, read as columns.

    Attributes:
        paths: The files.
        spec: Their slots, unused ones included.
    """

    def __init__(
        self,
        paths: Sequence[str],
        spec: Schema,
        skipped: SkippedRecords | None,
        on_progress: Callable[[int], None] | None,
    ):
        """Takes what all formats share."""
        self.paths = list(paths)
        self.spec = spec
        self._skipped = skipped
        self._on_progress = on_progress

    def quiet(self) -> Self:
        """As this one, but that what it leaves out is not noted."""
        source = copy.copy(self)
        if self._skipped is not None:
            source._skipped = SkippedRecords()
        return source

    def size(self, path: str) -> int | None:
        """What the progress of a file adds up to, if that is known."""
        return None

    def batches(self, path: str) -> Iterator[dict[str, Any]]:
        """The columns of all slots, as `SampleWriter.write_batch` takes them."""
        raise NotImplementedError
