"""Writes one golden file of each saved format, and its expected contents.

    PYTHONPATH=python .venv/bin/python tests/data/golden/make.py FOLDER

Until the first release, a change of a format rewrites its files with this script.

    checkpoint/      tf.train.Checkpoint(objects=objects(), model=model())
    model.keras      model.save of model()
    model.weights.h5 model.save_weights of the same model
    saved_model/     tf.saved_model.save of Module
    expected.npz     the contents of each file, by name
    snapshots/       a full snapshot and a delta; see swapped_files_test.py
    tfra/            files of TensorFlow Recommenders Addons 0.8.1, written by
                     its save_to_file_system, and their contents in user.npz
"""

import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

import lodestar

IDS = np.array([[-(2**63), 2**63 - 1, 0], [0, 7, 7], [-1, 7, 2**40]])
NAMES = np.array([["ada", "bob", "eve"]] * 3)


def tables():
    """Returns two tables that differ in every option."""
    return {
        "counted": lodestar.EmbeddingVariable(
            2,
            name="counted",
            seed=3,
            embeddings_initializer="normal",
            admission=lodestar.MinCount(2),
            default_row=lodestar.SharedRows(3),
        ),
        "capped": lodestar.EmbeddingVariable(
            3,
            name="capped",
            dtype=tf.bfloat16,
            seed=(0, 11),
            admission=lodestar.CountingBloom(2, 0.1, 10),
            eviction=[lodestar.MaxRows(5, "lfu"), lodestar.MaxAge(9)],
        ),
    }


def objects():
    """Returns an id table of each kind."""
    return {
        "strings": lodestar.lookup.IdTable(["ada", "bob", ""], mutable=True),
        "integers": lodestar.lookup.IdTable([7, -7], [70, -70]),
    }


def model():
    """Returns a compiled model whose dense kernel starts with ones."""
    ids = keras.Input((3,), dtype="int64", name="ids")
    names = keras.Input((3,), dtype="string", name="names")
    made = tables()
    rows = lodestar.layers.EmbeddingCollection(
        {
            "a": lodestar.Feature(made["counted"], combiner="mean"),
            "b": lodestar.Feature(made["capped"], combiner="sum", salt="b"),
        },
        name="collection",
    )({"a": ids, "b": ids})
    keys = lodestar.layers.IdLookup(vocabulary=["ada", "bob"], name="keys")
    named = keras.layers.Rescaling(1.0)(keys(names))
    x = keras.layers.Concatenate()([rows["a"], rows["b"], named])
    out = keras.layers.Dense(1, kernel_initializer="ones", name="dense")(x)
    built = keras.Model({"ids": ids, "names": names}, out)
    inner = keras.optimizers.Adam(0.1, gradient_accumulation_steps=2)
    built.compile(lodestar.optimizers.wrap(inner), "mse")
    built.optimizer.build(built.trainable_variables)
    return built


def batch():
    """Returns the features and labels of one step."""
    features = {"ids": tf.constant(IDS), "names": tf.constant(NAMES)}
    return features, np.array([[1.0], [-1.0], [0.5]], np.float32)


class Module(tf.Module):
    """Lookups in both kinds of table, exported as a SavedModel."""

    def __init__(self, tables, objects):
        super().__init__()
        self.tables = tables
        self.objects = objects

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def rows(self, ids):
        """Returns rows of both embedding tables, by table name."""
        return {name: t.lookup(ids) for name, t in self.tables.items()}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def ids(self, keys):
        """Returns the ids of keys."""
        return self.objects["strings"].lookup(keys)


def tables_of(trained):
    """Returns the model's tables by name, including the optimizer's."""
    return {
        child.name: child
        for child in tf.train.TrackableView(trained).descendants()
        if isinstance(child, lodestar.EmbeddingVariable)
    }


def table_state(table):
    """Returns a table's state as arrays that every format stores."""
    found = {}
    for name, value in table._export_all().items():
        value = np.asarray(value)
        if value.dtype.kind == "O":
            value = value.astype(bytes)
        if value.dtype == tf.bfloat16.as_numpy_dtype:
            value = value.view(np.uint16)
        found[name] = value
    return found


def state(trained):
    """Returns the state of the model's tables, dense weights and optimizer."""
    found = {}
    for table in tables_of(trained).values():
        for name, value in table_state(table).items():
            found[f"{table.name}:{name}"] = value
    for place, value in enumerate(trained.get_layer("dense").get_weights()):
        found[f"dense:{place}"] = value
    for place, variable in enumerate(trained.optimizer.variables):
        found[f"optimizer:{place}"] = variable.numpy()
    return found


def save_snapshots(path):
    """Writes a snapshot folder with a full version and a delta."""
    user = lodestar.EmbeddingVariable(2, name="user", seed=3)
    item = lodestar.EmbeddingVariable(3, name="item", seed=4, dtype="float16")

    def fill(table, ids, scale=1.0):
        ids = np.array(ids)
        rows = scale * (ids[:, None] + np.arange(table.output_dim) / 8)
        table.insert_or_assign(ids, tf.cast(rows, table.dtype))

    for day in (1, 2):
        if day == 1:
            fill(user, range(5))
            fill(item, [-1])
        else:
            fill(user, [2, 9], -2.0)
            fill(item, [7])
        words = lodestar.lookup.IdTable(["x", "yy"][:day], name="words")
        lodestar.snapshot.save(
            [user, item, words],
            path,
            step=10 * day,
            delta=day == 2,
            dense={"w": np.arange(3) + day - 1},
            metadata={"day": day},
        )
    (pathlib.Path(path) / "LOCK").unlink()


def make(folder):
    """Writes everything except tfra/ and snapshot/ to `folder`."""
    trained, held = model(), objects()
    held["strings"].insert(["cy"], [9])
    for _ in range(5):  # two updates, and a gradient not applied yet
        trained.train_on_batch(*batch())
    for name in tables():  # ids not admitted yet
        tables_of(trained)[name].lookup([100, 101], training=True)
    path = pathlib.Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    tf.train.Checkpoint(objects=held, model=trained).write(
        str(path / "checkpoint" / "golden")
    )
    trained.save(path / "model.keras")
    trained.save_weights(path / "model.weights.h5")
    found = tables_of(trained)
    module = Module({name: found[name] for name in tables()}, held)
    tf.saved_model.save(module, str(path / "saved_model"))
    rows = module.rows(tf.constant(IDS.ravel()))
    np.savez_compressed(
        path / "expected.npz",
        score=trained.predict(batch()[0], verbose=0),
        **{f"rows:{k}": np.asarray(v, np.float32) for k, v in rows.items()},
        **state(trained),
    )
    save_snapshots(path / "snapshots")


if __name__ == "__main__":
    make(sys.argv[1])
