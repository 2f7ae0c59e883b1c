"""Tests of resource ownership: copies, functions, and exports that fail."""

import copy
import dataclasses
import gc
import pickle
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from handles import weak

import lodestar
from lodestar._library import gen_ops
from lodestar.lookup import IdTable, IdTableWithHashBuckets

IDS = [3, 1, 2]


def trained():
    """Returns a table in which all saved state is non-trivial."""
    table = lodestar.EmbeddingVariable(
        2,
        embeddings_initializer="normal",
        seed=5,
        default_row=lodestar.SharedRows(3),
        admission=lodestar.CountingBloom(2, 0.1, 100),
        eviction=lodestar.MaxRows(50),
        num_shards=2,
        name="copied",
    )
    train(table)
    table.set_step(9)
    return table


def train(table, ids=(IDS, [1, 2], [4])):
    wrapper = lodestar.optimizers.Adam(0.1)
    for batch in ids:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(table.lookup(batch, training=True) ** 2)
        wrapper.apply([tape.gradient(loss, table)], [table])


def content(table):
    return {name: v.numpy() for name, v in table._export_all().items()}


def assert_same(got, want):
    assert got.keys() == want.keys()
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)


def is_there(handle):
    try:
        gen_ops.lodestar_embedding_size(handle)
    except tf.errors.NotFoundError:
        return False
    return True


def handle_of(table):
    """Returns a handle for `is_there`, to ask whether the table is deleted."""
    return weak(table.resource_handle)


def test_a_deep_copy_is_a_table_of_its_own():
    table = trained()
    want = content(table)
    assert len(want["ids"]) and len(want["sketch"]) and len(want["slot_names"])
    copied = copy.deepcopy(table)
    assert_same(content(copied), want)
    assert copied.get_config() == table.get_config()
    copied.clear()
    train(copied)
    assert_same(content(table), want)
    handle = handle_of(copied)
    del copied
    assert not is_there(handle)
    assert_same(content(table), want)


def test_a_deep_copy_trains_as_the_original_would():
    table = trained()
    copied = copy.deepcopy(table)
    new_ids = ([4, 5], [4, 5, 1])
    train(table, new_ids)
    train(copied, new_ids)
    assert_same(content(copied), content(table))


def test_a_deep_copy_outlives_the_original_and_saves(tmp_path):
    table = trained()
    want = content(table)
    copied = copy.deepcopy(table)
    del table
    path = tf.train.Checkpoint(table=copied).save(str(tmp_path / "ckpt"))
    other = copy.deepcopy(copied)
    other.clear()
    tf.train.Checkpoint(table=other).restore(path).assert_consumed()
    assert_same(content(other), want)
    lodestar.snapshot.save({"t": copied}, tmp_path / "snapshots", delta=True)
    copied.clear()
    lodestar.snapshot.restore({"t": copied}, tmp_path / "snapshots")
    assert_same(content(copied), want)


def test_a_shallow_copy_is_the_same_table():
    table = trained()
    want = content(table)
    shallow = copy.copy(table)
    assert shallow is table
    handle = handle_of(table)
    del shallow
    assert_same(content(table), want)
    shallow = copy.copy(copy.copy(table))
    del table
    assert_same(content(shallow), want)
    train(shallow)
    assert int(shallow.step) == 9
    del shallow
    assert not is_there(handle)


def test_layers_on_a_table_and_its_shallow_copy_are_on_one_table():
    table = trained()
    copied = copy.copy(table)
    feature = lodestar.Feature(copied)
    layer = lodestar.layers.DynamicEmbedding(table=copied)
    assert feature.table is layer.table is table
    embed = lodestar.layers.EmbeddingCollection(
        {"a": lodestar.Feature(table), "b": feature}
    )
    assert embed.tables == [table]
    ids = tf.constant([1, 2])
    rows = embed({"a": ids, "b": ids})
    np.testing.assert_array_equal(rows["a"], rows["b"])


def test_copies_in_one_deep_copy_stay_one_table():
    table = trained()
    module = tf.Module()
    module.table = table
    module.shallow = copy.copy(table)
    module.listed = [table]
    module.named = {"a": {"b": table}}
    module.feature = lodestar.Feature(table, combiner="sum")
    module.layer = lodestar.layers.DynamicEmbedding(
        table=table, combiner="sum", padding_id=3, trainable=False, name="x"
    )
    module.collection = lodestar.layers.EmbeddingCollection(
        {"f": module.feature, "g": lodestar.Feature(table, salt="g")}
    )
    copied = copy.deepcopy(module)
    new = copied.table
    assert new is not table
    for found in (
        copied.shallow,
        copied.listed[0],
        copied.named["a"]["b"],
        copied.feature.table,
        copied.layer.table,
        copied.layer._feature.table,
        copied.collection.tables[0],
        copied.collection.features["g"].table,
    ):
        assert found is new
    assert copied.layer.get_config() == {
        **module.layer.get_config(),
        "table": copied.layer.get_config()["table"],
    }
    assert not copied.layer.trainable
    ids = tf.constant([IDS, IDS])
    np.testing.assert_array_equal(copied.layer(ids), module.layer(ids))
    want = content(table)
    handle = handle_of(new)
    del new, found, copied
    gc.collect()
    assert not is_there(handle)
    assert_same(content(table), want)


def test_a_layer_that_made_its_table_is_copied_with_its_options():
    layer = lodestar.layers.DynamicEmbedding(
        2,
        embeddings_initializer="ones",
        default_row="initial",
        eviction=lodestar.MaxRows(7),
        optimizer=keras.optimizers.SGD(0.5),
        name="own",
    )
    layer(tf.constant([1, 2]), training=True)
    copied = copy.deepcopy(layer)
    assert copied.get_config() == layer.get_config()
    assert copied.table is not layer.table
    assert copied.table.optimizer is copied.optimizer
    assert copied.optimizer is not layer.optimizer
    assert_same(content(copied.table), content(layer.table))


def test_a_deep_copy_of_a_model():
    model = keras.Sequential(
        [
            keras.Input((2,), dtype="int64"),
            lodestar.layers.DynamicEmbedding(2, combiner="sum"),
            keras.layers.Dense(1),
        ]
    )
    model.compile(
        lodestar.optimizers.Adam(0.1),
        "mse",
    )
    x, y = np.array([[1, 2], [3, 4]]), np.ones((2, 1))
    model.fit(x, y, epochs=2, verbose=0)
    table = model.layers[0].table
    want, scores = content(table), model.predict(x, verbose=0)
    copied = copy.deepcopy(model)
    assert_same(content(copied.layers[0].table), want)
    copied.fit(x, y, epochs=2, verbose=0)
    handle = handle_of(copied.layers[0].table)
    del copied
    gc.collect()
    assert not is_there(handle)
    assert_same(content(table), want)
    np.testing.assert_array_equal(model.predict(x, verbose=0), scores)


def test_a_dataclass_of_tables_as_a_dict():
    table = trained()
    fields = dataclasses.asdict(lodestar.Feature(table))
    assert_same(content(fields["table"]), content(table))
    del fields
    gc.collect()
    assert int(table.size()) > 0
    assert copy.copy(lodestar.Feature(table)).table is table


def test_copies_of_id_tables():
    names = IdTable(["a", "b"], mutable=True, default_value=-7, name="names")
    copied, shallow = copy.deepcopy(names), copy.copy(names)
    copied.insert(["c"], [5])
    shallow.insert(["d"], [6])
    keys = tf.constant(["a", "b", "c", "d"])
    assert names.lookup(keys).numpy().tolist() == [0, 1, -7, 6]
    assert copied.lookup(keys).numpy().tolist() == [0, 1, 5, -7]
    del names, copied
    assert shallow.lookup(keys).numpy().tolist() == [0, 1, -7, 6]
    buckets = IdTableWithHashBuckets(IdTable(["a", "b"]), 5)
    want = buckets.lookup(keys).numpy().tolist()
    copied, shallow = copy.deepcopy(buckets), copy.copy(buckets)
    assert copied.resource_handle is not buckets.resource_handle
    del buckets
    assert copied.lookup(keys).numpy().tolist() == want
    del copied
    assert shallow.lookup(keys).numpy().tolist() == want


def test_a_copied_vocabulary_layer():
    layer = lodestar.layers.IdLookup(["a", "b"], num_oov_indices=2)
    keys = tf.constant(["a", "b", "z"])
    want = layer(keys).numpy().tolist()
    for copied in (copy.deepcopy(layer), copy.copy(layer)):
        assert copied(keys).numpy().tolist() == want
    del copied
    gc.collect()
    assert layer(keys).numpy().tolist() == want


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_export_that_fails_leaves_the_tables(tmp_path, monkeypatch, error):
    module = tf.Module()
    module.tables = [trained(), trained()]
    module.names = IdTable(["a"])
    module.serve = tf.function(
        lambda ids: [t.lookup(ids) for t in module.tables],
        input_signature=[tf.TensorSpec([None], tf.int64)],
    )
    want = [content(table) for table in module.tables]
    make = gen_ops.lodestar_embedding_variable
    left = 0

    def fails(**attrs):
        nonlocal left
        left -= 1
        if left == 0:
            raise error
        return make(**attrs)

    # An export creates each table's op several times, for several purposes.
    monkeypatch.setattr(gen_ops, "lodestar_embedding_variable", fails)
    for calls in range(1, 100):
        left = calls
        try:
            tf.saved_model.save(module, str(tmp_path / str(calls)))
        except error:
            pass
        else:
            break
        gc.collect()
        for table, rows in zip(module.tables, want, strict=True):
            assert_same(content(table), rows)
    assert calls > 4
    loaded = tf.saved_model.load(str(tmp_path / str(calls)))
    np.testing.assert_array_equal(
        loaded.serve(tf.constant(IDS, tf.int64))[1],
        module.tables[1].lookup(IDS),
    )


def test_a_saved_model_of_a_table_and_its_shallow_copy(tmp_path):
    module = tf.Module()
    module.table = trained()
    module.other = copy.copy(module.table)
    module.serve = tf.function(
        lambda ids: module.other.lookup(ids),
        input_signature=[tf.TensorSpec([None], tf.int64)],
    )
    want = module.serve(tf.constant(IDS, tf.int64)).numpy()
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_array_equal(
        loaded.serve(tf.constant(IDS, tf.int64)), want
    )


def test_a_handle_made_again_is_of_the_same_table():
    table = trained()
    want = content(table)
    handle = handle_of(table)
    table._resource_handle = None
    assert_same(content(table), want)
    shallow = copy.copy(table)
    shallow._resource_handle = None
    assert_same(content(shallow), want)
    del shallow
    assert_same(content(table), want)
    del table
    assert not is_there(handle)


def test_an_id_table_made_in_a_traced_function_lives_as_long_as_it():
    def lookup(x):
        table = IdTable(["a", "b"])
        return table.lookup(tf.constant(["b", "z"])) + x

    def map_fn(x):
        return tf.cond(x > 1, lambda: lookup(x), lambda: x + [0, 0])

    dataset = tf.data.Dataset.range(3).map(map_fn)
    for _ in range(2):
        got = [ids.tolist() for ids in dataset.as_numpy_iterator()]
        assert got == [[0, 0], [1, 1], [3, 1]]
    function = tf.function(lookup)
    for _ in range(2):
        assert function(tf.constant(5, tf.int64)).numpy().tolist() == [6, 4]


def test_an_embedding_made_in_a_traced_function_is_refused():
    def map_fn(x):
        return lodestar.EmbeddingVariable(2, name="inside").lookup(x)

    message = "'inside' .* is made inside a tf.function or a dataset function"
    with pytest.raises(ValueError, match=message):
        tf.data.Dataset.range(3).map(map_fn)
    with pytest.raises(ValueError, match=message):
        tf.function(map_fn)(tf.constant(1))


def test_a_table_that_goes_in_a_graph_or_another_thread():
    handles = []
    for enter in (tf.Graph().as_default, tf.init_scope, tf.GradientTape):
        table = trained()
        handles.append(handle_of(table))
        with enter():
            del table

    def step(x):
        table = trained_outside.pop()
        handles.append(watched_outside.pop())
        del table
        return x + 1

    trained_outside = [trained()]
    watched_outside = [handle_of(trained_outside[0])]
    assert int(tf.function(step)(tf.constant(1))) == 2
    tables = [trained()]
    handles.append(handle_of(tables[0]))
    thread = threading.Thread(target=tables.clear)
    thread.start()
    thread.join()
    assert [is_there(handle) for handle in handles] == [False] * len(handles)


def test_tables_are_not_pickled():
    with pytest.raises(
        TypeError, match="EmbeddingVariable 'copied'.*Checkpoint"
    ):
        pickle.dumps(trained())
    with pytest.raises(TypeError, match="IdTable.*cannot be pickled"):
        pickle.dumps({"names": IdTableWithHashBuckets(IdTable(["a"]), 3)})


WITH_NAMES = {
    "table": lambda name: lodestar.EmbeddingVariable(2, name=name),
    "parts": lambda name: lodestar.EmbeddingVariable(
        2, name=name, devices=["/CPU:0"] * 2
    ),
    "ids": lambda name: lodestar.lookup.IdTable(["a"], name=name),
    "collection": lambda name: lodestar.layers.EmbeddingCollection(
        {name: 2}
    ).tables[0],
}


@pytest.mark.parametrize("make", WITH_NAMES.values(), ids=WITH_NAMES)
@pytest.mark.parametrize(
    "name", ["_id", "__", "a b", "/", "..", "ü", "%s", "a\nb", "x" * 300]
)
def test_a_table_may_have_any_name(make, name):
    made = make(name)
    assert made.name == name
    assert copy.deepcopy(made).name == name


@pytest.mark.parametrize("make", WITH_NAMES.values(), ids=WITH_NAMES)
@pytest.mark.parametrize("name", ["a\0b", "a\ud800"])
def test_names_that_files_cannot_hold_are_refused(make, name):
    with pytest.raises(ValueError, match="`name` must not contain null"):
        make(name)


@pytest.mark.parametrize("name", ["_id", "_"])
def test_layers_may_have_names_that_begin_with_an_underscore(name):
    ids = keras.Input((2,), dtype="int64")
    layer = lodestar.layers.DynamicEmbedding(2, combiner="sum", name=name)
    collection = lodestar.layers.EmbeddingCollection(
        {"f": lodestar.Feature(output_dim=2, combiner="sum")},
        name=f"{name}_all",
    )
    rows = layer(ids) + collection({"f": ids})["f"]
    model = keras.Model(ids, rows)
    model.compile(lodestar.optimizers.SGD(), "mse")
    model.fit(np.ones((2, 2), int), np.ones((2, 2)), verbose=0)
    lookup = lodestar.layers.IdLookup(vocabulary=["a"], name=name)
    assert int(lookup(tf.constant("a"))) == 1
