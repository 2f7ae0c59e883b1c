"""The wide-and-deep click model as a Keras functional model, and its tables."""

import warnings
from collections.abc import Callable, Mapping, Sequence

import keras
from keras import ops

import lodestar
from lodestar.data import Schema

DEEP_DIM = 32
HIDDEN_UNITS = (1024, 512, 256)
# Rows of the tables get gradients of a few examples in a batch of hundreds: a
# start of Keras's 0.1 would drown them, and rare ids would hardly move.
_INITIAL_ACCUMULATOR = 1e-6

# Name of an id slot -> ragged ids [B, None], to name -> pooled rows [B, dim].
Lookup = Callable[[Mapping[str, keras.KerasTensor]], Mapping]


def wide_and_deep(
    schema: Schema,
    deep: Lookup,
    wide: Lookup,
    mean: Sequence[float],
    variance: Sequence[float],
) -> keras.Model:
    """Builds the model.

    Args:
        schema: What an example holds.
        deep: Looks the ids of all id slots up; `output_dim` is DEEP_DIM.
        wide: Looks the ids of `wide_names(slots)` up; `output_dim` is 1.
        mean: Of the squashed values of the dense slots, one after another.
        variance: As `mean`.

    Returns:
        A model from features by slot name to the click probability `[B, 1]`.
    """
    inputs = schema.inputs()
    ids = {slot.name: inputs[slot.name] for slot in schema.sparse}
    parts = [inputs[slot.name] for slot in schema.one_hot]
    if ids:
        rows = deep(ids)
        parts += [rows[name] for name in ids]
    if schema.dense:
        flat = [
            ops.cast(
                ops.reshape(inputs[slot.name], (-1, slot.num_values)), "float32"
            )
            for slot in schema.dense
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
        rows = wide({name: ids[name] for name in wide_names(schema)})
        weights = _concatenate(list(rows.values()))
        logit = logit + ops.sum(weights, axis=1, keepdims=True)
    click = keras.layers.Activation("sigmoid", name="click")(logit)
    with warnings.catch_warnings():
        # Features go by their keys, whatever their inputs are called.
        warnings.filterwarnings("ignore", "When providing `inputs` as a dict")
        return keras.Model(inputs, click, name="wide_deep")


def compile_model(model: keras.Model, learning_rate: float) -> None:
    """Gives the model its optimizer, loss and metrics."""
    model.compile(
        optimizer=lodestar.optimizers.Adagrad(
            learning_rate, initial_accumulator_value=_INITIAL_ACCUMULATOR
        ),
        loss="binary_crossentropy",
        metrics=[
            keras.metrics.AUC(name="auc"),
            keras.metrics.BinaryAccuracy(name="accuracy"),
            lodestar.metrics.BatchAUC(),
        ],
    )


def squash(x, math=ops):
    """sign(x) log(1 + |x|): counts that span orders of magnitude, tamed."""
    return math.sign(x) * math.log1p(math.abs(x))


def wide_names(schema: Schema) -> list[str]:
    """The id slots of the wide part: those marked, else all."""
    return [slot.name for slot in schema.wide or schema.sparse]


def dynamic_tables(seed: int) -> tuple:
    """The tables of the deep and of the wide part."""
    table = lodestar.EmbeddingVariable
    return (
        table(DEEP_DIM, seed=seed, name="deep"),
        table(1, embeddings_initializer="zeros", seed=seed, name="wide"),
    )


def dynamic_lookups(schema: Schema, deep, wide) -> tuple[Lookup, Lookup]:
    """The lookups of `wide_and_deep` in dynamic tables."""
    if not schema.sparse:
        return None, None

    def lookup(table, names, combiner):
        # The name of a slot salts its ids, so that slots which number their
        # ids alike share a table without sharing rows.
        features = {
            name: lodestar.Feature(table, combiner=combiner, salt=name)
            for name in names
        }
        return lodestar.layers.EmbeddingCollection(
            features, name=f"{table.name}_rows"
        )

    return (
        lookup(deep, schema.names("sparse"), "mean"),
        lookup(wide, wide_names(schema), "sum"),
    )


def _concatenate(tensors):
    return tensors[0] if len(tensors) == 1 else ops.concatenate(tensors, axis=1)
