"""Dense weights on parameter servers, which a step reads and updates together."""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lodestar.embedding.table_parts import Job


class ServerWeights:
    """The dense weights of a model.

    TensorFlow sends each tensor that crosses processes in a message of its own. This
    sends the values of all weights of a server together, and their gradients too.
    """

    def __init__(self, variables: Sequence[Any]):
        self.variables = list(variables)

    def reads(self) -> list[Job]:
        """Returns functions that read the weights of each server."""

        def read(places: Sequence[int]) -> list[tf.Tensor]:
            return [tf.identity(self.variables[i].value) for i in places]

        return [
            Job(device, functools.partial(read, places))
            for device, places in self._by_device().items()
        ]

    def values(self, found: Sequence[Sequence[tf.Tensor]]) -> list[tf.Tensor]:
        """Returns the values of all weights, given the results of `reads`."""
        values: dict[int, tf.Tensor] = {}
        for places, own in zip(self._by_device().values(), found, strict=True):
            values.update(zip(places, own, strict=True))
        return [
            values[i] if i in values else tf.identity(variable.value)
            for i, variable in enumerate(self.variables)
        ]

    def by_server(
        self, gradients: Sequence[Any]
    ) -> dict[str, list[tuple[Any, Any]]] | None:
        """Returns gradients that are not None, and their weights, by server.

        None if the weight of any is in pieces or in this process.
        """
        trained = {i for i, g in enumerate(gradients) if g is not None}
        found = {}
        for device, places in self._by_device().items():
            own = [i for i in places if i in trained]
            trained.difference_update(own)
            found[device] = [(gradients[i], self.variables[i]) for i in own]
        return None if trained else found

    def _by_device(self) -> dict[str, list[int]]:
        """Returns the indices of the weights that are whole and on one device."""
        places: dict[str, list[int]] = {}
        for i, variable in enumerate(self.variables):
            device = getattr(variable.value, "device", None)
            if device:
                places.setdefault(device, []).append(i)
        return places
