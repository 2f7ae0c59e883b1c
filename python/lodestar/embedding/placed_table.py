"""Chooses the class of a new table by the place of its rows."""

from typing import Any, ClassVar, Self

from lodestar._resource import gpu_in_scope
from lodestar.embedding import strategies, workers
from lodestar.embedding.table_variable import TableVariable


class PlacedTable(TableVariable):
    """The base class of EmbeddingVariable, which makes one of its subclasses.

    Each class of the second group is set by its module.
    """

    _in_process: ClassVar[type["PlacedTable"]]
    _on_devices: ClassVar[type["PlacedTable"]]
    _on_workers: ClassVar[type["PlacedTable"]]

    # Here rather than in EmbeddingVariable, whose signature is that of `__init__`.
    def __new__(cls, *args: Any, devices: Any = None, **kwargs: Any) -> Self:
        make: Any = super().__new__
        undecided = cls is PlacedTable._in_process
        if undecided and workers.of_strategy() is not None:
            if devices is not None:
                raise NotImplementedError(
                    "`devices` is given under MultiWorkerMirroredStrategy, "
                    "whose workers hold the rows. Leave it out."
                )
            return make(PlacedTable._on_workers)
        if devices is None and not strategies.servers():
            if not undecided or gpu_in_scope() is None:
                return make(cls)
        if issubclass(cls, PlacedTable._on_devices):
            return make(cls)
        if not undecided:
            raise TypeError(
                f"{cls.__name__}, a custom subclass, does not support "
                "`devices`. Use lodestar.EmbeddingVariable."
            )
        return make(PlacedTable._on_devices)
