"""The slots that a Keras model's inputs stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lodestar.data.slot_spec import Slot

_WANTED = (
    "wanted ragged int64 [batch, None] for ids, or float32 with a shape of at "
    "most one None behind the batch for numbers"
)


def slots_of_inputs(
    model: Any, labels: str | Slot | Iterable[str | Slot]
) -> list[Slot]:
    """See `SlotSpec.from_inputs`."""
    slots = label_slots(labels)
    for name, tensor in _named_inputs(model).items():
        slots.append(_slot(name, tensor))
    return slots


def label_slots(
    labels: str | Slot | Iterable[str | Slot],
    dtypes: Mapping[str, str] | None = None,
) -> list[Slot]:
    """Label slots as they are, or by their names: of 0 and 1, and of `dtypes`."""
    if isinstance(labels, (str, Slot)):
        labels = [labels]
    slots = [
        label
        if isinstance(label, Slot)
        else Slot.label(label, dtype=(dtypes or {}).get(label, "uint64"))
        for label in labels
    ]
    for slot in slots:
        if slot.kind != "label":
            raise ValueError(
                f"`labels`: slot {slot.name!r} is a {slot.kind} slot, wanted a "
                "label."
            )
    return slots


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


def _slot(name: str, tensor: Any) -> Slot:
    shape = tuple(tensor.shape)
    ragged = bool(getattr(tensor, "ragged", False))
    dtype = str(getattr(tensor.dtype, "name", tensor.dtype))
    if ragged and dtype == "int64" and shape[1:] == (None,):
        return Slot.sparse(name)
    if (
        not ragged
        and dtype == "float32"
        and shape[1:].count(None) < 2
        and shape
    ):
        return Slot.dense(name, [-1 if d is None else d for d in shape[1:]])
    raise ValueError(
        f"Input {name!r} is {'ragged ' * ragged}{dtype} "
        f"{['batch', *shape[1:]]}, {_WANTED}.".replace("'batch'", "batch")
    )
