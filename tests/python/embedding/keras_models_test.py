"""Tests that Keras finds, trains, freezes and saves tables in attributes."""

import copy

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.snapshot.found_tables import find_tables

X = np.arange(24).reshape(8, 3)
Y = np.sin(np.arange(8.0)).reshape(8, 1)
WAYS = {
    "attribute": lambda table: table,
    "list": lambda table: [table],
    "tuple": lambda table: (table,),
    "dict": lambda table: {"rows": table},
    "nested": lambda table: {"rows": [table]},
}


def unpacked(held):
    while isinstance(held, (list, tuple, dict)):
        held = held["rows"] if isinstance(held, dict) else held[0]
    return held


@keras.saving.register_keras_serializable("keras_models_test")
class Holds(keras.layers.Layer):
    """A layer with a table as an attribute."""

    def __init__(self, way="attribute", beside=False, **kwargs):
        super().__init__(**kwargs)
        self.config = (way, beside)
        table = lodestar.EmbeddingVariable(2, name="held")
        if way is not None:
            self.held = WAYS[way](table)
        if beside:
            self.rows = lodestar.layers.DynamicEmbedding(table=table)
        self._find = lambda: table

    # not an attribute, because Keras saves attributes recursively
    def table(self):
        return self._find()

    def call(self, ids):
        return self.table().lookup(ids, combiner="sum")

    def get_config(self):
        way, beside = self.config
        return {"way": way, "beside": beside}


@keras.saving.register_keras_serializable("keras_models_test")
class Model(keras.Model):
    """A model with a table, held by a layer or directly."""

    def __init__(self, inside=False, **config):
        super().__init__()
        self.config = {"inside": inside, **config}
        holder = Holds(**config)
        if inside:
            self.holder = holder
        else:
            for name in ("held", "rows"):
                if hasattr(holder, name):
                    setattr(self, name, getattr(holder, name))
        self._find = lambda: holder.table()
        self._lookup = lambda ids: holder(ids)
        self.dense = keras.layers.Dense(1)

    # not an attribute, because Keras saves attributes recursively
    def table(self):
        return self._find()

    def call(self, ids):
        return self.dense(self._lookup(ids))

    def get_config(self):
        return self.config


CASES = [{"way": way} for way in WAYS]
CASES += [{"way": way, "inside": True} for way in WAYS]
CASES += [{"beside": True}, {"way": None, "beside": True}]


def trained(**config):
    model = Model(**config)
    inner = keras.optimizers.Adam(0.1)
    model.compile(
        lodestar.optimizers.wrap(inner),
        "mse",
    )
    model.fit(X, Y, epochs=2, verbose=0)
    return model


def assert_same(a, b, slots=True):
    a, b = a.table().export(slots), b.table().export(slots)
    np.testing.assert_array_equal(a.ids, b.ids)
    np.testing.assert_array_equal(a.rows, b.rows)
    assert sorted(a.optimizer_slots) == sorted(b.optimizer_slots)


@pytest.mark.parametrize("config", CASES[:6] + CASES[10:], ids=str)
def test_keras_files_store_it(config, tmp_path):
    model = trained(**config)
    found = [v for v in model.trainable_variables if v is model.table()]
    assert len(found) == 1
    rows = model.table().export()
    assert len(rows.ids) == 24 and rows.optimizer == "adam"
    assert np.all(rows.rows != Model().table().lookup(range(24), True))
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert_same(model, loaded)
    model.fit(X, Y, verbose=0)
    loaded.fit(X, Y, verbose=0)
    assert_same(model, loaded)
    model.save_weights(tmp_path / "m.weights.h5")
    again = Model(**config)
    again(X)
    again.load_weights(tmp_path / "m.weights.h5")
    assert_same(model, again)
    with h5py.File(tmp_path / "m.weights.h5") as file:
        names = []
        file.visit(names.append)
    written = [name for name in names if name.endswith("/header")]
    # The layer next to the table saves it.
    ways = [config.get("way", "attribute"), config.get("beside")]
    assert len(written) == sum(map(bool, ways))


@pytest.mark.parametrize("config", [CASES[0], CASES[-1]], ids=str)
def test_sharded_weights_store_it(config, tmp_path):
    model = trained(**config)
    model.save_weights(tmp_path / "m.weights.json", max_shard_size=0.1)
    again = Model(**config)
    again(X)
    again.load_weights(tmp_path / "m.weights.json")
    assert_same(model, again)


def test_files_store_the_optimizer_of_a_table(tmp_path):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.rows = lodestar.EmbeddingVariable(2, optimizer="adam")

        def call(self, ids):
            return self.rows.lookup(ids, combiner="sum")

    model, again, restored = Own(), Own(), Own()
    optimizer = lodestar.optimizers.SGD()
    model.compile(optimizer, "mse")
    model.fit(X, Y, batch_size=2, verbose=0)
    again(X), restored(X)
    model.save_weights(tmp_path / "m.weights.h5")
    again.load_weights(tmp_path / "m.weights.h5")
    path = tf.train.Checkpoint(model=model).save(tmp_path / "checkpoint")
    status = tf.train.Checkpoint(model=restored).restore(path)
    status.assert_existing_objects_matched()
    for other in (again, restored):
        assert int(other.rows.optimizer.iterations) == 3  # before the last step


@pytest.mark.parametrize("way", ["attribute", "tuple", "nested"])
def test_checkpoints_and_snapshots_store_it(way, tmp_path):
    model, again = trained(way=way), Model(way=way)
    again(X)

    def checkpoint(model):
        # Checkpoints do not save the Dense layers in a model's list either.
        beside = (
            {} if way in ("attribute", "tuple") else {"held": model.table()}
        )
        return tf.train.Checkpoint(model=model, **beside)

    path = checkpoint(model).save(tmp_path / "checkpoint")
    checkpoint(again).restore(path).expect_partial()
    assert_same(model, again)
    assert find_tables(model).embeddings == {"held": model.table()}


def test_export_stores_it_and_only_reads(tmp_path):
    model = trained(way="dict")
    spec = keras.InputSpec(shape=(None, 3), dtype="int64")
    model.export(tmp_path / "e", input_signature=[spec], verbose=False)
    loaded = tf.saved_model.load(tmp_path / "e")
    ids = tf.constant([[1, 2, 3], [100, 101, 102]], tf.int64)
    np.testing.assert_allclose(
        loaded.serve(ids), model.predict(ids), 1e-6, 1e-6
    )
    assert int(model.table().size()) == 24


def test_exports_and_copies_store_it(tmp_path):
    model = trained(way="nested")
    specs = {"ids": tf.TensorSpec([None, 3], tf.int64, name="ids")}
    lodestar.export.save(model, tmp_path / "e", inputs=specs)
    loaded = tf.saved_model.load(tmp_path / "e")
    (served,) = loaded.signatures["serving_default"](
        ids=tf.constant(X, tf.int64)
    ).values()
    np.testing.assert_allclose(served, model.predict(X, verbose=0), 1e-6, 1e-6)
    copied = copy.deepcopy(model)
    assert_same(model, copied)
    assert copied.table() is not model.table()


@pytest.mark.parametrize("name", ["m.weights.h5", "m.keras"])
def test_a_file_without_rows_of_a_trained_table_warns(name, tmp_path):
    class Holder(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.held = {lodestar.EmbeddingVariable(2, name="in_a_set")}

        def call(self, ids):
            (table,) = self.held
            return table.lookup(ids, combiner="sum")

    model = keras.Sequential([keras.Input((3,), dtype="int64"), Holder()])
    model.compile(lodestar.optimizers.SGD(), "mse")
    model.optimizer.build(model.trainable_variables)
    save = model.save if name == "m.keras" else model.save_weights
    with pytest.warns(UserWarning, match="'in_a_set'.* are not in the file"):
        save(tmp_path / name)


def test_a_file_without_the_table_is_refused(tmp_path):
    model = trained(way=None, beside=True)
    model.save_weights(tmp_path / "m.weights.h5")
    again = Model()
    again(X)
    with pytest.raises(ValueError, match="2 objects could not be loaded"):
        again.load_weights(tmp_path / "m.weights.h5")


@pytest.mark.parametrize("config", CASES[:2] + CASES[5:7], ids=str)
def test_freezing_a_model_freezes_the_table(config):
    model = Model(**config)
    model.table().lookup(X[:4], training=True)
    before = model.table().export()
    model.trainable = False
    assert not model.table().trainable and not model.trainable_variables
    model.trainable = True
    assert model.table().trainable
    model.table().trainable = False
    optimizer = lodestar.optimizers.Adam()
    model.compile(optimizer, "mse")
    model.fit(X, Y, verbose=0)
    after = model.table().export()
    np.testing.assert_array_equal(after.ids, before.ids)  # adds no ids
    np.testing.assert_array_equal(after.rows, before.rows)


def test_jit_is_off_for_models_with_layers_of_tables():
    model = Model(beside=True)
    with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
        model.compile("adam", "mse", jit_compile=True)
    assert not model.jit_compile


@pytest.mark.parametrize("config", [CASES[0], CASES[6]], ids=str)
def test_an_xla_step_raises_an_error_with_advice(config):
    model = Model(**config)
    model.compile(lodestar.optimizers.SGD(), "mse", jit_compile=True)
    with pytest.raises(RuntimeError, match="jit_compile=False.*supports_jit"):
        model.predict(X, verbose=0)
    with pytest.raises(RuntimeError, match="jit_compile=False.*supports_jit"):
        model.fit(X, Y, verbose=0)
    model.jit_compile = False
    model.compile(lodestar.optimizers.SGD(), "mse")
    model.fit(X, Y, verbose=0)


def test_summary_counts_rows_times_dim(capsys):
    model = trained()
    model.summary()
    assert "Trainable params: 51 " in capsys.readouterr().out  # 24 x 2 + 3
    assert model.count_params() == 51


def test_a_table_is_not_a_layer():
    model = Model()
    assert not any(layer.name == "held" for layer in model.layers)
    with pytest.raises(TypeError, match="not callable"):
        model.table()(X)


@pytest.mark.parametrize("name", ["of/users", "naïve ü"])
def test_any_name_goes_through_files(name, tmp_path):
    class Named(keras.Model):
        def __init__(self):
            super().__init__()
            self.table = lodestar.EmbeddingVariable(2, name=name)

        def call(self, ids):
            return self.table.lookup(ids)

    model, again = Named(), Named()
    model.table.lookup([1, 2], training=True)
    model.table.insert_or_assign([1], [[1.0, 2.0]])
    model(X), again(X)
    model.save_weights(tmp_path / "m.weights.h5")
    again.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(again.table.lookup([1]), [[1.0, 2.0]])
    assert again.table.name == name
