"""The inputs of a Keras model that takes what slots hold."""

from collections.abc import Iterable

import keras

from lodestar.data.schema.column import Column


def inputs_of_schema(schema: Iterable[Column]) -> dict[str, keras.KerasTensor]:
    """The inputs of a functional model, one for each used feature slot.

    A Keras model takes what a dataset of these slots gives by the names of the
    slots; an input has its slot's, unless that has a "/", which Keras refuses.

    >>> inputs = inputs_of_schema([Column.sparse("item"), Column.dense("price", [2])])
    >>> {name: tensor.shape for name, tensor in inputs.items()}
    {'item': (None, None), 'price': (None, 2)}

    Args:
        schema: A `Schema`, or slots; labels are left out.

    Returns:
        By the name of the slot: of ids ragged int64 `[B, None]`, of sparse
        floats the same of float32; of numbers `[B, *shape]`, float32 or, where
        the slot is of uint64, int64; of one-hot slots float32 `[B, size]`. First
        the sparse, then the dense, then the one-hot slots.
    """
    kinds = ("sparse", "dense", "one_hot")
    used = [slot for slot in schema if slot.used and slot.kind in kinds]
    return {
        slot.name: _input(slot)
        for slot in sorted(used, key=lambda slot: kinds.index(slot.kind))
    }


def _input(slot: Column) -> keras.KerasTensor:
    name = None if "/" in slot.name else slot.name
    dtype = "float32" if slot.dtype == "float" else "int64"
    if slot.kind == "sparse":
        return keras.Input((None,), dtype=dtype, ragged=True, name=name)
    if slot.kind == "one_hot":
        return keras.Input((slot.size,), dtype="float32", name=name)
    shape = [None if dim == -1 else dim for dim in slot.shape]
    return keras.Input(shape, dtype=dtype, name=name)
