"""Writes small sample files, builds models for them, and compares their state."""

import keras
import numpy as np

import lodestar
from lodestar.data import Column, Schema

SPEC = Schema(
    [
        Column.label("y"),
        Column.dense("d", (2,)),
        Column.sparse("a"),
        Column.sparse("b"),
    ]
)
ROWS = 64
BATCH = 8


def write(path, rng, rows=ROWS):
    """Writes samples whose label is a function of one id; returns the path."""
    with lodestar.paddle.multislot_writer.MultiSlotWriter(
        str(path), SPEC
    ) as writer:
        for _ in range(rows):
            a = rng.integers(1, 50, rng.integers(1, 4)).tolist()
            writer.write(
                {
                    "y": a[0] % 2,
                    "d": rng.normal(size=2).round(3).tolist(),
                    "a": a,
                    "b": [int(rng.integers(1, 30))],
                }
            )
    return str(path)


def write_files(folder, number, seed=2):
    rng = np.random.default_rng(seed)
    return [write(folder / f"part-{i}.txt", rng) for i in range(number)]


def make_inputs():
    return {
        "d": keras.Input((2,), name="d"),
        "a": keras.Input((None,), dtype="int64", ragged=True, name="a"),
        "b": keras.Input((None,), dtype="int64", ragged=True, name="b"),
    }


def wrap(optimizer="adagrad", rate=0.1):
    if isinstance(optimizer, str):
        optimizer = keras.optimizers.get(
            {"class_name": optimizer, "config": {"learning_rate": rate}}
        )
    return lodestar.optimizers.wrap(optimizer)


def make_model(
    optimizer="adagrad", rate=0.1, layers=(), model=keras.Model, **options
):
    """Returns a compiled model of two features; `layers` precede its last layer."""
    keras.utils.set_random_seed(3)
    inputs = make_inputs()
    features = {
        "a": lodestar.Feature(output_dim=4, combiner="mean"),
        "b": lodestar.Feature(output_dim=3, combiner="sum"),
    }
    rows = lodestar.layers.EmbeddingCollection(features, name="rows")(
        {name: inputs[name] for name in features}
    )
    x = keras.layers.Concatenate()([*rows.values(), inputs["d"]])
    x = keras.layers.Dense(8, activation="relu", name="hidden")(x)
    for layer in layers:
        x = layer(x)
    out = keras.layers.Dense(1, activation="sigmoid", name="out")(x)
    made = model(inputs, out)
    if isinstance(optimizer, str):
        optimizer = wrap(optimizer, rate)
    made.compile(
        optimizer,
        **{
            "loss": "binary_crossentropy",
            "metrics": ["AUC", "accuracy"],
            **options,
        },
    )
    return made


def make_dense_model(optimizer, **options):
    """Returns a compiled model without tables."""
    keras.utils.set_random_seed(3)
    inputs = make_inputs()
    hidden = keras.layers.Dense(4, name="hidden")(inputs["d"])
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(optimizer, "mse", **options)
    return model


def state(model):
    """Returns the weights, optimizer variables, and rows with their slots.

    Leaves out the optimizer's step count: at the end of the data, Keras's fit
    counts one step more if a gradient is not a table's.
    """
    tables = [
        table
        for layer in model.layers
        for table in getattr(layer, "tables", [])
    ]
    hooks = [id(table) for table in tables]
    values = [np.asarray(v) for v in model.weights if id(v) not in hooks]
    values += [
        np.asarray(v)
        for v in model.optimizer.variables
        if not v.path.endswith("iteration")
    ]
    for table in tables:
        rows = table.export()
        values += [rows.ids.numpy(), rows.rows.numpy()]
        values += [slot.numpy() for slot in rows.optimizer_slots.values()]
    return values
