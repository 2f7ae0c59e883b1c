"""The tasks of tables and of their parts.

Snapshot ops run on the CPU of the task that has the tables, on any of its devices,
so paths must be in folders that all tasks share.
"""

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from lodestar.embedding.embedding_variable import EmbeddingVariable

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, eq=False)
class PlacedPart:
    """Part `part` of the `parts` parts of the table `name`."""

    name: str
    part: int
    parts: int
    handle: tf.Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Place:
    """The parts of tables in one task, in the order of tables.

    `device` is the task's first CPU.
    """

    device: str
    parts: Sequence[PlacedPart]

    @property
    def handles(self) -> list[tf.Tensor]:
        """Resource handles of the parts."""
        return [part.handle for part in self.parts]

    def on(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which ops run in the task."""
        return tf.device(self.device)

    def path(self, path: str) -> str:
        """Makes a path absolute for tasks with another working directory."""
        here = tf.DeviceSpec.from_string(self.device).job == "localhost"
        return path if here else os.path.abspath(path)


def places_of(tables: Mapping[str, EmbeddingVariable]) -> list[Place]:
    """Returns the places of this process's rows, sorted by task."""
    by_task: dict[str, list[PlacedPart]] = {}
    for name, table in tables.items():
        first, count = 0, part_count(table)
        if table._workers is not None:
            first = table._workers.index
        for number, part in enumerate(table._parts, first):
            handle = part.resource_handle
            by_task.setdefault(_cpu_of_task(handle.device), []).append(
                PlacedPart(name, number, count, handle)
            )
    return [Place(*item) for item in sorted(by_task.items())]


def _cpu_of_task(device: str) -> str:
    """Returns the first CPU of the task that has `device`."""
    spec = tf.DeviceSpec.from_string(device)
    cpu: str = spec.replace(device_type="CPU", device_index=0).to_string()
    return cpu


def part_count(table: EmbeddingVariable) -> int:
    """Returns the number of parts of a table over all workers."""
    if table._workers is not None:
        return table._workers.count
    return len(table._parts)


def each(
    places: Sequence[Place],
    call: Callable[[Place], _T],
    give_up: Callable[[], Any] = lambda: None,
) -> list[_T]:
    """Calls `call` for all places in parallel, each in its task.

    After a failure, calls `give_up`, which should make the other calls end soon,
    waits for them, and raises the first error.
    """
    results: list[Any] = [None] * len(places)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            with places[number].on():
                results[number] = call(places[number])
        except BaseException as error:
            errors.append(error)
            give_up()

    threads = []
    try:
        for number in range(1, len(places)):
            thread = threading.Thread(target=run, args=(number,))
            try:
                thread.start()
            except RuntimeError:
                # No thread can start, as during interpreter shutdown.
                run(number)
            else:
                threads.append(thread)
        if places:
            run(0)
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        give_up()
        for thread in threads:
            thread.join()
        raise
    if errors:
        raise errors[0]
    return results
