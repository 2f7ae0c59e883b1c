"""Schema.inputs: the inputs of a model match the datasets of its schema."""

import zipfile

import keras
import pytest
import tensorflow as tf

import lodestar
from lodestar.data import Column, Schema
from lodestar.paddle.multislot_dataset import MultiSlotDataset
from lodestar.schema import ColumnInput, keras_inputs

SCHEMA = Schema(
    [
        Column.label("click"),
        Column.dense("I", [2]),
        Column.dense("count", dtype="uint64"),
        Column.sparse("a/b"),
        Column.sparse("weight", dtype="float"),
        Column.one_hot("day", 7),
        Column.sparse("aside", used=False),
    ]
)
# Names that Keras refuses for a layer, or TensorFlow for a scope.
NAMES = ["_id", "a/b", "a%2Fb", "a b", "ü", "item", "a_b", "in"]


def ids_model(names, schema=None, given=dict):
    schema = schema or Schema(
        [
            Column.label("click"),
            *(Column.sparse(name, encoding="hash") for name in names),
            Column.sparse("aside", used=False),
        ],
        na_values=["", "?"],
    )
    inputs = schema.inputs()
    bags = [
        lodestar.layers.DynamicEmbedding(2, combiner="sum")(inputs[name])
        for name in names
    ]
    score = keras.layers.Dense(1)(keras.layers.Concatenate()(bags))
    chosen = given({name: inputs[name] for name in names})
    return schema, keras.Model(chosen, score)


def reloaded(model, path):
    file = path / "model.keras"
    model.save(file)
    keras_inputs._carried.clear()  # as in another process
    return keras.models.load_model(file)


def written(path):
    """Returns the size of the config in a .keras file in bytes."""
    with zipfile.ZipFile(path / "model.keras") as file:
        return file.getinfo("config.json").file_size


def test_inputs_match_the_dataset(tmp_path):
    path = tmp_path / "clicks.txt"
    path.write_text("1 1 2 0.5 3 1 7 2 8 9 2 1.5 2 1 6 0\n")
    features, _ = MultiSlotDataset(path, SCHEMA, 1).element_spec
    inputs = SCHEMA.inputs()
    assert list(inputs) == ["a/b", "weight", "I", "count", "day"]
    assert set(inputs) == set(features)
    for name, tensor in inputs.items():
        assert tensor.shape == tuple(features[name].shape)
        assert tensor.dtype == features[name].dtype.name
        assert tensor.ragged == (name in ("a/b", "weight"))
    model = keras.Model(inputs, inputs["I"])
    for batch, _ in MultiSlotDataset(path, SCHEMA, 1):
        assert model(batch).numpy().tolist() == [[0.5, 3.0]]


def test_shapes_of_inputs():
    inputs = Schema(
        [Column.dense("I", [-1, 2]), Column.sparse("C", depth=2)]
    ).inputs()
    assert inputs["I"].shape == (None, None, 2)
    assert inputs["C"].shape == (None, None, None)


@pytest.mark.parametrize(
    "given", [dict, lambda inputs: list(inputs.values())], ids=["dict", "list"]
)
def test_keras_file_keeps_the_schema_and_all_names(tmp_path, given):
    schema, model = ids_model(NAMES, given=given)
    features = {
        name: tf.ragged.constant([[1, 2], [3]], tf.int64) for name in NAMES
    }
    wanted = model(features, training=True)
    loaded = reloaded(model, tmp_path)
    assert Schema.of(loaded) == schema
    assert [t.name for t in loaded.inputs] == [t.name for t in model.inputs]
    assert loaded.predict(features, verbose=0).shape == (2, 1)
    assert sorted(t.name for t in model.inputs) == sorted(NAMES)
    assert all(t.ragged for t in loaded.inputs)
    assert loaded(features).numpy().tolist() == wanted.numpy().tolist()


def test_model_of_some_inputs_keeps_the_whole_schema(tmp_path):
    schema, model = ids_model(["a", "b", "c"])
    last = model.input["c"]
    part = keras.Model({"c": last}, keras.ops.cast(last, "float32"))
    assert Schema.of(part) == schema
    loaded = reloaded(part, tmp_path)
    assert Schema.of(loaded) == schema
    whole = reloaded(model, tmp_path)
    last = whole.input["c"]
    part = keras.Model([last], keras.ops.cast(last, "float32"))
    assert Schema.of(part) == schema
    assert Schema.of(reloaded(part, tmp_path)) == schema


def test_nested_models_keep_the_schema(tmp_path):
    schema, inner = ids_model(["a", "b"])
    inputs = schema.inputs()
    outer = keras.Model(inputs, inner(inputs))
    loaded = reloaded(outer, tmp_path)
    assert Schema.of(loaded) == schema
    (nested,) = [x for x in loaded.layers if isinstance(x, keras.Model)]
    assert Schema.of(nested) == schema


def test_sequential_model_keeps_the_schema(tmp_path):
    schema = Schema([Column.label("y"), Column.dense("x", [3])])
    model = keras.Sequential([schema.inputs()["x"], keras.layers.Dense(1)])
    assert Schema.of(model) == schema
    assert Schema.of(reloaded(model, tmp_path)) == schema


def test_clone_on_new_inputs_keeps_the_schema():
    schema, model = ids_model(["a", "b"])
    inputs = {name: schema.inputs()[name] for name in "ab"}
    clone = keras.models.clone_model(model, input_tensors=inputs)
    assert Schema.of(clone) == schema


def test_config_of_one_input_has_the_schema():
    schema, model = ids_model(["a", "b"])
    for layer in model.layers:
        if isinstance(layer, ColumnInput):
            config = layer.get_config()
            keras_inputs._carried.clear()
            assert ColumnInput.from_config(config).schema == schema


def test_schemas_of_two_files_are_not_mixed_up(tmp_path):
    schema, model = ids_model(["a", "b"])
    model.save(tmp_path / "model.keras")
    config = model.get_layer("a").get_config()
    other = Schema([Column.sparse("a"), Column.sparse("b")])
    inputs = other.inputs()
    another = keras.Model(inputs, keras.ops.cast(inputs["a"], "float32"))
    config["schema"] = another.get_layer("a").get_config()["schema"]
    assert ColumnInput.from_config(config).schema == other
    assert Schema.of(model) == schema


def test_file_of_many_columns_is_small(tmp_path):
    names = [f"c{i}" for i in range(300)]
    schema = Schema([Column.dense(name) for name in names])
    inputs = schema.inputs()
    model = keras.Model(inputs, keras.layers.Add()(list(inputs.values())))
    loaded = reloaded(model, tmp_path)
    assert written(tmp_path) < 300 * 2000
    assert Schema.of(loaded) == schema
