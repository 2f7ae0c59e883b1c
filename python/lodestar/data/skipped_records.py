"""SkippedRecords: what `on_error="skip"` has left out."""

from __future__ import annotations

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._resource import OwnedName


class SkippedRecords:
    """Counts the records that datasets left out, and keeps what was wrong.

    >>> skipped = SkippedRecords()
    >>> dataset = MultiSlotDataset(  # doctest: +SKIP
    ...     files, slots, 1024, on_error="skip", skipped=skipped)
    >>> skipped.count
    0

    Counts from when it is made, over all epochs of all datasets it is given to.
    A copy is the same one: datasets know it by name.
    """

    def __init__(self):
        self._log = OwnedName("SkippedRecords", _forget)

    def __copy__(self) -> SkippedRecords:
        return self

    def __deepcopy__(self, memo: dict) -> SkippedRecords:
        return self

    @property
    def name(self) -> str:
        """What the reading threads know it by."""
        return self._log.text

    @property
    def count(self) -> int:
        """Records left out so far."""
        return int(self._read()[0])

    @property
    def messages(self) -> list[str]:
        """What was wrong with the first 100, each with its place."""
        return [text.decode() for text in self._read()[1].numpy()]

    def add(self, message: str, count: int = 1) -> None:
        """Notes `count` records left out; `message` says where and why."""
        gen_ops.lodestar_skip_log_add(
            log=self.name,
            message=message,
            count=tf.constant(count, tf.int64),
        )

    def _read(self):
        return gen_ops.lodestar_skip_log_read(log=self.name)


def _forget(name: str) -> None:
    gen_ops.lodestar_skip_log_forget(log=name)
