"""What a Keras model's inputs hold."""

from collections.abc import Mapping
from typing import Any

_WANTED = (
    "wanted ragged int64 [batch, None] for ids, or float32 with a shape of at "
    "most one None behind the batch for numbers"
)


def shapes_of_inputs(model: Any) -> dict[str, list[int] | None]:
    """The inputs' shapes behind the batch, -1 any number; None: ragged ids.

    Raises:
        ValueError: See `Schema.from_inputs`.
    """
    return {
        name: _shape(name, tensor)
        for name, tensor in _named_inputs(model).items()
    }


def _named_inputs(model: Any) -> dict[str, Any]:
    inputs = getattr(model, "input", model)
    if isinstance(inputs, Mapping):
        return dict(inputs)
    if not isinstance(inputs, (list, tuple)):
        inputs = [inputs]
    found = {}
    for tensor in inputs:
        if not hasattr(tensor, "shape") or not hasattr(tensor, "name"):
            raise ValueError(
                "`model` must be a functional Keras model, or its inputs in a "
                f"list or dict, found {model!r}."
            )
        found[tensor.name] = tensor
    return found


def _shape(name: str, tensor: Any) -> list[int] | None:
    shape = tuple(tensor.shape)
    ragged = bool(getattr(tensor, "ragged", False))
    dtype = str(getattr(tensor.dtype, "name", tensor.dtype))
    if ragged and dtype == "int64" and shape[1:] == (None,):
        return None
    if (
        not ragged
        and dtype == "float32"
        and shape[1:].count(None) < 2
        and shape
    ):
        return [-1 if d is None else d for d in shape[1:]]
    raise ValueError(
        f"Input {name!r} is {'ragged ' * ragged}{dtype} "
        f"{['batch', *shape[1:]]}, {_WANTED}.".replace("'batch'", "batch")
    )
