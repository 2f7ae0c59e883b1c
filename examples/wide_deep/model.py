"""The wide-and-deep click model as a Keras functional model."""

import warnings
from collections.abc import Callable, Mapping, Sequence

import keras
from keras import ops

import lodestar
from lodestar.data import Slot, SlotSpec

DEEP_DIM = 32
HIDDEN_UNITS = (1024, 512, 256)

# Name of an id slot -> ragged ids [B, None], to name -> pooled rows [B, dim].
LookUp = Callable[[Mapping[str, keras.KerasTensor]], Mapping]


def wide_and_deep(
    slots: SlotSpec,
    deep: LookUp,
    wide: LookUp,
    mean: Sequence[float],
    variance: Sequence[float],
) -> keras.Model:
    """Builds the model.

    Args:
        slots: What an example holds.
        deep: Looks the ids of all id slots up; `dim` is DEEP_DIM.
        wide: Looks the ids of `wide_names(slots)` up; `dim` is 1.
        mean: Of the squashed values of the dense slots, one after another.
        variance: As `mean`.

    Returns:
        A model from features by slot name to the click probability `[B, 1]`.
    """
    ids = {
        slot.name: _input(slot, (None,), dtype="int64", ragged=True)
        for slot in slots.sparse
    }
    numbers = {
        slot.name: _input(
            slot,
            slot.shape,
            dtype="float32" if slot.dtype == "float" else "int64",
        )
        for slot in slots.dense
    }
    categories = {
        slot.name: _input(slot, (slot.size,), dtype="float32")
        for slot in slots.one_hot
    }

    parts = list(categories.values())
    if ids:
        rows = deep(ids)
        parts += [rows[name] for name in ids]
    if numbers:
        flat = [
            ops.reshape(x, (-1, slots[n].num_values))
            for n, x in numbers.items()
        ]
        normalize = keras.layers.Normalization(mean=mean, variance=variance)
        parts.append(normalize(squash(_concatenate(flat))))

    hidden = _concatenate(parts)
    for index, units in enumerate(HIDDEN_UNITS):
        layer = keras.layers.Dense(
            units, activation="relu", name=f"hidden_{index}"
        )
        hidden = layer(hidden)
    # Its bias is the wide part's, too.
    logit = keras.layers.Dense(1, name="deep_logit")(hidden)
    if ids:
        rows = wide({name: ids[name] for name in wide_names(slots)})
        weights = _concatenate(list(rows.values()))
        logit = logit + ops.sum(weights, axis=1, keepdims=True)
    click = keras.layers.Activation("sigmoid", name="click")(logit)
    with warnings.catch_warnings():
        # Features go by their keys, whatever their inputs are called.
        warnings.filterwarnings("ignore", "When providing `inputs` as a dict")
        return keras.Model(
            {**ids, **numbers, **categories}, click, name="wide_deep"
        )


def squash(x):
    """sign(x) log(1 + |x|): counts that span orders of magnitude, tamed."""
    x = ops.cast(x, "float32")
    return ops.sign(x) * ops.log1p(ops.abs(x))


def wide_names(slots: SlotSpec) -> list[str]:
    """The id slots of the wide part: those marked, else all."""
    return [slot.name for slot in slots.wide or slots.sparse]


def dynamic_tables(
    slots: SlotSpec, seed: int
) -> tuple[lodestar.EmbeddingVariable, lodestar.EmbeddingVariable]:
    """The tables of the deep and of the wide part."""
    return (
        lodestar.EmbeddingVariable(DEEP_DIM, seed=seed, name="deep"),
        lodestar.EmbeddingVariable(
            1, initializer="zeros", seed=seed, name="wide"
        ),
    )


def dynamic_look_ups(slots: SlotSpec, deep, wide) -> tuple[LookUp, LookUp]:
    """The look-ups of `wide_and_deep` in dynamic tables.

    The name of a slot salts its ids, so that slots which number their ids
    alike share a table without sharing rows.
    """
    if not slots.sparse:
        return None, None
    names = [slot.name for slot in slots.sparse]
    return (
        _collection(deep, names, "mean", "deep_rows"),
        _collection(wide, wide_names(slots), "sum", "wide_rows"),
    )


def _input(slot: Slot, shape, **options) -> keras.KerasTensor:
    # Keras takes no "/" in a name.
    name = None if "/" in slot.name else slot.name
    return keras.Input(shape, name=name, **options)


def _collection(table, names, combiner, layer_name):
    return lodestar.layers.EmbeddingCollection(
        {
            name: lodestar.Feature(table, combiner=combiner, salt=name)
            for name in names
        },
        name=layer_name,
    )


def _concatenate(tensors):
    return tensors[0] if len(tensors) == 1 else ops.concatenate(tensors, axis=1)
