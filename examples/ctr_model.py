"""The click model of ctr_distributed: dense layers over one table of ids."""

import ctr_data
import keras
from keras import ops

import lodestar
from lodestar.data import Schema

_HIDDEN_UNITS = (128, 64)
# A row's gradient comes from a few examples of a batch; Keras's 0.1 would
# outweigh it.
_INITIAL_ACCUMULATOR = 1e-6


class Examples(keras.metrics.Sum):
    """Counts the examples of training, except examples of weight 0."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(ops.ones_like(y_true), sample_weight)


def make_model(
    schema: Schema,
    dim: int,
    padding_id: int | None,
    learning_rate: float,
    seed: int,
) -> keras.Model:
    """Builds and compiles the model; a strategy's scope partitions its table.

    All slots of ids share the table; the name of a slot salts its ids.

    Args:
        schema: Schema of an example.
        dim: Embedding dimension.
        padding_id: The id that means no id, or None.
        learning_rate: Learning rate of Adagrad.
        seed: Seed of initial values.
    """
    keras.utils.set_random_seed(seed)
    schema = Schema(schema.used)
    inputs = schema.inputs()
    ids = ctr_data.ids_of(schema)
    table = lodestar.EmbeddingVariable(dim, seed=seed, name="ids")
    rows = lodestar.layers.EmbeddingCollection(
        {
            name: lodestar.Feature(
                table, "mean", salt=name, padding_id=padding_id
            )
            for name in ids
        },
        name="rows",
    )({name: inputs[name] for name in ids})
    parts = [rows[name] for name in ids]
    for slot in schema.dense:
        x = ops.reshape(inputs[slot.name], (-1, slot.num_values))
        x = ops.cast(x, "float32")
        parts.append(ops.sign(x) * ops.log1p(ops.abs(x)))
    parts += [inputs[slot.name] for slot in schema.one_hot]
    x = keras.layers.Concatenate(name="features")(parts)
    for number, units in enumerate(_HIDDEN_UNITS):
        x = keras.layers.Dense(units, "relu", name=f"hidden_{number}")(x)
    click = keras.layers.Dense(1, "sigmoid", name="click")(x)
    model = keras.Model(inputs, click, name="ctr")
    model.compile(
        lodestar.optimizers.Adagrad(
            learning_rate, initial_accumulator_value=_INITIAL_ACCUMULATOR
        ),
        "binary_crossentropy",
        weighted_metrics=[
            keras.metrics.AUC(name="auc"),
            Examples(name="examples"),
        ],
    )
    return model
