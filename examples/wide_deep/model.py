"""The wide-and-deep click model as a Keras functional model, and its tables."""

import warnings
from collections.abc import Callable, Mapping, Sequence

import keras
from keras import ops

import lodestar
from lodestar.data import Schema

DEEP_DIM = 32
HIDDEN_UNITS = (1024, 512, 256)
# A row's gradient comes from a few examples in a batch of hundreds. Keras's 0.1
# would outweigh it, and rare ids would hardly change.
_INITIAL_ACCUMULATOR = 1e-6

# Maps ragged ids [B, None] by slot name to pooled rows [B, dim] by name.
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
        schema: Schema of an example.
        deep: Looks up the ids of all id slots; `output_dim` is DEEP_DIM.
        wide: Looks up the ids of `wide_names(slots)`; `output_dim` is 1.
        mean: Mean of the squashed values of each dense slot, concatenated.
        variance: Variance of the same values.

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
    # Its bias is also the wide part's.
    logit = keras.layers.Dense(1, name="deep_logit")(hidden)
    if ids:
        rows = wide({name: ids[name] for name in wide_names(schema)})
        weights = _concatenate(list(rows.values()))
        logit = logit + ops.sum(weights, axis=1, keepdims=True)
    click = keras.layers.Activation("sigmoid", name="click")(logit)
    with warnings.catch_warnings():
        # Features are matched by key, whatever their inputs are called.
        warnings.filterwarnings("ignore", "When providing `inputs` as a dict")
        return keras.Model(inputs, click, name="wide_deep")


def compile_model(model: keras.Model, learning_rate: float) -> None:
    """Compiles the model with its optimizer, loss and metrics."""
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
    """Compresses counts of several orders of magnitude: sign(x) log(1 + |x|)."""
    return math.sign(x) * math.log1p(math.abs(x))


def wide_names(schema: Schema) -> list[str]:
    """Returns the id slots of the wide part: the marked ones, or all."""
    return [slot.name for slot in schema.wide or schema.sparse]


def dynamic_tables(seed: int) -> tuple:
    """Returns the tables of the deep and of the wide part."""
    table = lodestar.EmbeddingVariable
    return (
        table(DEEP_DIM, seed=seed, name="deep"),
        table(1, embeddings_initializer="zeros", seed=seed, name="wide"),
    )


def dynamic_lookups(schema: Schema, deep, wide) -> tuple[Lookup, Lookup]:
    """Returns the lookups of `wide_and_deep` in dynamic tables."""
    if not schema.sparse:
        return None, None

    def lookup(table, names, combiner):
        # The name of a slot salts its ids, so slots with the same ids can share
        # a table without sharing rows.
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
