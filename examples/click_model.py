"""The wide-and-deep click model of wide_deep.py and ctr_distributed.py."""

import keras
from keras import ops

import lodestar
from lodestar.data import Column, DataError, Schema

HIDDEN_UNITS = (256, 128, 64)
# A row's gradient comes from a few examples of a batch. Keras's 0.1 would outweigh
# it, and rare ids would hardly change.
INITIAL_ACCUMULATOR = 1e-6


class Examples(keras.metrics.Sum):
    """Counts the examples of training, except examples of weight 0."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(ops.ones_like(y_true), sample_weight)


def make_model(
    schema: Schema,
    dim: int,
    learning_rate: float,
    seed: int,
    padding_id: int | None = None,
) -> keras.Model:
    """Builds and compiles the model.

    Args:
        schema: Schema of an example.
        dim: Embedding dimension of the deep part.
        learning_rate: Learning rate of Adagrad.
        seed: Seed of initial values.
        padding_id: The id that means no id, or None.

    Raises:
        DataError: The model cannot take a column.
    """
    keras.utils.set_random_seed(seed)
    schema = Schema(schema.used)
    if len(schema.labels) != 1 or len(schema.used) == 1:
        raise DataError("The model needs one label and at least one feature.")
    for column in schema.used:
        check(column)
    inputs = schema.inputs()
    parts = [inputs[column.name] for column in schema.one_hot]
    for column in schema.dense:
        x = ops.reshape(inputs[column.name], (-1, column.num_values))
        x = ops.cast(x, "float32")
        # Numbers of several orders of magnitude.
        parts.append(ops.sign(x) * ops.log1p(ops.abs(x)))
    logits = []
    if schema.sparse:
        deep = schema.names("sparse")
        wide = [column.name for column in schema.wide] or deep
        rows = lookup(inputs, deep, wide, dim, seed, padding_id)
        parts += [rows["deep", name] for name in deep]
        weights = concatenate([rows["wide", name] for name in wide])
        logits = [ops.sum(weights, axis=1, keepdims=True)]
    hidden = concatenate(parts)
    for number, units in enumerate(HIDDEN_UNITS):
        layer = keras.layers.Dense(units, "relu", name=f"hidden_{number}")
        hidden = layer(hidden)
    # Its bias is also the wide part's.
    logits.append(keras.layers.Dense(1, name="deep_logit")(hidden))
    click = keras.layers.Activation("sigmoid", name="click")(sum(logits))
    model = keras.Model(inputs, click, name="wide_deep")
    model.compile(
        lodestar.optimizers.Adagrad(
            learning_rate, initial_accumulator_value=INITIAL_ACCUMULATOR
        ),
        "binary_crossentropy",
        weighted_metrics=[
            keras.metrics.AUC(name="auc"),
            Examples(name="examples"),
        ],
    )
    return model


def lookup(inputs, deep, wide, dim, seed, padding_id) -> dict:
    """Returns pooled rows by `("deep" or "wide", name of the column)`.

    All columns share two tables: the name of a column salts its ids. One
    EmbeddingCollection looks up the rows of both.
    """
    tables = {
        "deep": lodestar.EmbeddingVariable(dim, seed=seed, name="deep"),
        "wide": lodestar.EmbeddingVariable(
            1, embeddings_initializer="zeros", name="wide"
        ),
    }
    pairs = [("deep", name) for name in deep] + [("wide", n) for n in wide]
    features = {
        f"{part}_{name}": lodestar.Feature(
            tables[part],
            combiner="mean" if part == "deep" else "sum",
            salt=name,
            padding_id=padding_id,
        )
        for part, name in pairs
    }
    rows = lodestar.layers.EmbeddingCollection(features, name="rows")(
        {f"{part}_{name}": inputs[name] for part, name in pairs}
    )
    return {(part, name): rows[f"{part}_{name}"] for part, name in pairs}


def check(column: Column) -> None:
    """Raises DataError if the model cannot take a column."""
    problem = ""
    if column.kind == "sparse" and not column.holds_ids:
        problem = "holds any number of floats"
    elif column.depth > 1:
        problem = "holds lists of lists"
    elif column.kind == "dense" and column.num_values is None:
        problem = f"has the shape {list(column.shape)}"
    if problem:
        raise DataError(
            f"The model cannot take column {column.name!r}, which {problem}."
        )


def concatenate(tensors):
    """Concatenates one or several tensors along axis 1."""
    return tensors[0] if len(tensors) == 1 else ops.concatenate(tensors, axis=1)
