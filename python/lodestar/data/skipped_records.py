"""SkippedRecords: what `on_error="skip"` has left out."""

from __future__ import annotations

import uuid
import weakref

import tensorflow as tf

from lodestar._library import gen_ops


class SkippedRecords:
    """Counts the records that datasets left out, and keeps what was wrong.

    >>> skipped = SkippedRecords()
    >>> dataset = MultiSlotDataset(  # doctest: +SKIP
    ...     files, slots, 1024, on_error="skip", skipped=skipped)
    >>> skipped.count
    0

    Counts from when it is made, over all epochs of all datasets it is given to.
    """

    def __init__(self):
        self._name = uuid.uuid4().hex
        weakref.finalize(self, _forget, self._name)

    @property
    def name(self) -> str:
        """What the reading threads know it by."""
        return self._name

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
            log=self._name,
            message=message,
            count=tf.constant(count, tf.int64),
        )

    def _read(self):
        return gen_ops.lodestar_skip_log_read(log=self._name)


def _forget(name: str) -> None:
    gen_ops.lodestar_skip_log_forget(log=name)
