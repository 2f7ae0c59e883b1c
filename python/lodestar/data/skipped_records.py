"""SkippedRecords: the records skipped by `on_error="skip"`."""

import threading
from typing import Any

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._resource import OwnedName

# Number of messages that the log of the ops keeps.
_KEPT_MESSAGES = 100


class SkippedRecords:
    """Counts the records that datasets skip, and keeps their errors.

    >>> skipped = SkippedRecords()
    >>> dataset = lodestar.data.open_dataset(
    ...     files, slots, 1024, on_error="skip", skipped=skipped)
    >>> skipped.count
    0

    Counts are cumulative over all epochs of all datasets that use the object. A copy
    is the same object, because datasets refer to it by name.
    """

    def __init__(self) -> None:
        self._log = OwnedName("SkippedRecords", _forget)
        self._lock = threading.Lock()
        self._num_told = 0  # messages added by `add`
        self._untold = 0  # records beyond the message limit

    def __copy__(self) -> "SkippedRecords":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "SkippedRecords":
        return self

    @property
    def name(self) -> str:
        """The name by which reading threads refer to it."""
        return self._log.text

    @property
    def count(self) -> int:
        """Number of records skipped so far."""
        return int(self._read()[0]) + self._untold

    @property
    def messages(self) -> list[str]:
        """The first 100 errors, each with its position.

        They are in the order in which the reading threads found them.
        """
        return [text.decode() for text in self._read()[1].numpy()]

    def add(self, message: str, count: int = 1) -> None:
        """Records `count` skipped records; `message` gives the place and reason."""
        with self._lock:
            if self._num_told >= _KEPT_MESSAGES:
                # Calling the op takes longer than reading a line.
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
