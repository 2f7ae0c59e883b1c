"""Where the rows of tables lie: on a device, or in parts on several.

Ops of snapshots take tables of one device at a time. They run where the tables
lie, so paths are of folders that all tasks share.
"""

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from lodestar.embedding.devices import on_gpu
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.ops import snapshot_ops
from lodestar.snapshot.manifest import TableEntry

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, eq=False)
class PlacedPart:
    """A part of a table; of one that lies on one device, all of it.

    Attributes:
        name: Of the table.
        part: Its number.
        parts: How many there are.
        handle: Of its resource.
    """

    name: str
    part: int
    parts: int
    handle: tf.Tensor


class Place:
    """The parts of tables that lie on one device.

    Attributes:
        device: Its name.
        parts: In the order of tables.
    """

    def __init__(self, device: str, parts: Sequence[PlacedPart]):
        self.device = device
        self.parts = tuple(parts)

    @property
    def handles(self) -> list[tf.Tensor]:
        """Of the parts."""
        return [part.handle for part in self.parts]

    def on(self) -> contextlib.AbstractContextManager[None]:
        """Ops run there."""
        return tf.device(self.device)

    def path(self, path: str) -> str:
        """As the task there, which has a working directory of its own, has it."""
        here = tf.DeviceSpec.from_string(self.device).job == "localhost"
        return path if here else os.path.abspath(path)


def places_of(tables: Mapping[str, EmbeddingVariable]) -> list[Place]:
    """What tables have here, by device; in an order that is always the same.

    Raises:
        NotImplementedError: A table lies on a GPU.
    """
    by_device: dict[str, list[PlacedPart]] = {}
    for name, table in tables.items():
        first, count = 0, part_count(table)
        if table.workers is not None:
            first = table.workers.index
        for number, part in enumerate(table.parts, first):
            if on_gpu(part.device):
                raise NotImplementedError(
                    f"{table!r} lies on a GPU, of which there are no snapshots: "
                    "use tf.train.Checkpoint, save_weights, or export() and "
                    "load_rows() into a table on the CPU."
                )
            handle = part.resource_handle
            by_device.setdefault(handle.device, []).append(
                PlacedPart(name, number, count, handle)
            )
    return [Place(*item) for item in sorted(by_device.items())]


def part_count(table: EmbeddingVariable) -> int:
    """How many parts a table has, here and in other workers."""
    if table.workers is not None:
        return table.workers.count
    return len(table.parts)


def each(
    places: Sequence[Place],
    call: Callable[[Place], _T],
    give_up: Callable[[], Any] = lambda: None,
) -> list[_T]:
    """What `call` gives of each place, of all at once, on their devices.

    Args:
        places: Where.
        call: What; takes the place.
        give_up: Makes the other calls end soon when one has failed.

    Raises:
        Exception: The first that was raised; all have ended then.
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
    for number in range(1, len(places)):
        thread = threading.Thread(target=run, args=(number,))
        try:
            thread.start()
        except RuntimeError:
            # None is to be had, as at the end of the interpreter.
            run(number)
        else:
            threads.append(thread)
    if places:
        run(0)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def saved_parts(
    files: Sequence[Sequence[tuple[str, TableEntry]]],
    place: Place | None = None,
) -> list[snapshot_ops.SavedPart]:
    """What `SnapshotFolder.table_files` gives, as the ops there take it."""
    return [
        snapshot_ops.SavedPart(
            [path if place is None else place.path(path) for path, _ in part],
            part[-1][1].part,
            part[-1][1].parts,
        )
        for part in files
    ]
