"""Dense weights on parameter servers, which a step reads and updates together."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lodestar.ops import packing


class ServerWeights:
    """The dense weights of a model.

    TensorFlow sends each tensor that crosses processes in a message of its own. This
    sends the values of all weights of a server in one, and their gradients in
    another.
    """

    def __init__(self, variables: Sequence[Any]):
        self.variables = list(variables)

    def read(self) -> list[tf.Tensor]:
        """Returns the values of all weights, in a graph."""
        values: dict[int, tf.Tensor] = {}
        for device, places in self._by_device().items():
            with tf.device(device):
                own = [tf.identity(self.variables[i].value) for i in places]
                packed = packing.pack([own])
            specs = [tf.TensorSpec(x.shape, x.dtype) for x in own]
            values.update(zip(places, packing.unpack(packed, [specs])[0]))
        return [
            values[i] if i in values else tf.identity(variable.value)
            for i, variable in enumerate(self.variables)
        ]

    def sent(
        self, gradients: Sequence[Any]
    ) -> list[tuple[str | None, list[Any], list[Any]]]:
        """Sends gradients to the devices of their weights, except None.

        Returns devices, and the gradients and weights there. Those whose device is
        None are not sent.
        """
        parts: list[tuple[str | None, list[Any], list[Any]]] = []
        left = {i for i, g in enumerate(gradients) if g is not None}
        for device, places in self._by_device().items():
            places = [i for i in places if isinstance(gradients[i], tf.Tensor)]
            if not places:
                continue
            left.difference_update(places)
            own = [gradients[i] for i in places]
            variables = [self.variables[i] for i in places]
            packed = packing.pack([own])
            specs = [
                tf.TensorSpec(variable.shape, gradient.dtype)
                for variable, gradient in zip(variables, own)
            ]
            with tf.device(device):
                (unpacked,) = packing.unpack(packed, [specs])
            parts.append((device, unpacked, variables))
        if left:
            parts.append(
                (
                    None,
                    [gradients[i] for i in sorted(left)],
                    [self.variables[i] for i in sorted(left)],
                )
            )
        return parts

    def _by_device(self) -> dict[str, list[int]]:
        """Returns the indices of the weights that are whole and on one device."""
        places: dict[str, list[int]] = {}
        for i, variable in enumerate(self.variables):
            device = getattr(variable.value, "device", None)
            if device:
                places.setdefault(device, []).append(i)
        return places
