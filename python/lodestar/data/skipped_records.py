"""SkippedRecords: what `on_error="skip"` has left out."""

import threading
from typing import Any

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._resource import OwnedName

# What the log of the ops keeps.
_KEPT_MESSAGES = 100


class SkippedRecords:
    """Counts the records that datasets left out, and keeps what was wrong.

    >>> skipped = SkippedRecords()
    >>> dataset = lodestar.paddle.MultiSlotDataset(
    ...     files, slots, 1024, on_error="skip", skipped=skipped)
    >>> skipped.count
    0

    Counts from when it is made, over all epochs of all datasets it is given to.
    A copy is the same one: datasets know it by name.
    """

    def __init__(self) -> None:
        self._log = OwnedName("SkippedRecords", _forget)
        self._lock = threading.Lock()
        self._num_told = 0  # messages that came by `add`
        self._untold = 0  # records whose message would not be kept

    def __copy__(self) -> "SkippedRecords":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "SkippedRecords":
        return self

    @property
    def name(self) -> str:
        """What the reading threads know it by."""
        return self._log.text

    @property
    def count(self) -> int:
        """Records left out so far."""
        return int(self._read()[0]) + self._untold

    @property
    def messages(self) -> list[str]:
        """What was wrong with the first 100, each with its place.

        In the order in which the reading threads found them.
        """
        return [text.decode() for text in self._read()[1].numpy()]

    def add(self, message: str, count: int = 1) -> None:
        """Notes `count` records left out; `message` says where and why."""
        with self._lock:
            if self._num_told >= _KEPT_MESSAGES:
                # An op takes more time than reading a line does.
                self._untold += count
                return
            self._num_told += 1
        gen_ops.lodestar_skip_log_add(
            log=self.name,
            message=message,
            count=tf.constant(count, tf.int64),
        )

    def _read(self) -> Any:
        return gen_ops.lodestar_skip_log_read(log=self.name)


def _forget(name: str) -> None:
    gen_ops.lodestar_skip_log_forget(log=name)
