"""Tests of comparing exports with models."""

import json
import shutil

import export_models
import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.export import features_json, verify
from lodestar.export.compare import MismatchError, OutputDifference


@pytest.fixture(scope="module")
def model():
    return export_models.shared_collection_model()


@pytest.fixture(scope="module")
def path():
    return export_models.exported_collection("ragged")


def own_export(path, serve, default=None, name="serving_default"):
    """Writes an export of `number_model` with other functions."""
    lodestar.export.save(number_model(), path)
    document = features_json.read(path)
    spec = tf.TensorSpec([None, 2])
    module = tf.Module()
    module.serve = tf.function(serve, input_signature=[{"x": spec}])
    default = default or (lambda x: module.serve({"x": x}))
    module.of_signature = tf.function(default, input_signature=[spec])
    tf.saved_model.save(module, str(path), {name: module.of_signature})
    features_json.write(str(path), document)
    return path


def number_model():
    x = keras.Input((2,), name="x")
    return keras.Model(x, keras.layers.Lambda(lambda x: x)(x))


@pytest.mark.parametrize("signature", export_models.SIGNATURES)
def test_all_signatures_are_compared(signature, model):
    path = export_models.exported_collection(signature)
    result = verify(model, path, export_models.collection_inputs())
    assert result.examples == 3
    assert result.signatures == ("serve", "serving_default", "from_rows")
    assert result.max_difference < 1e-6
    assert set(result.outputs) == {"score", "hidden"}
    assert result.max_difference == max(
        output.max_difference for output in result.outputs.values()
    )


def test_the_worst_example_is_named(model, path):
    x = export_models.collection_inputs()
    table = model.get_layer("embed").features["author"].table
    before = table.export()
    table.insert_or_assign([4], table.find([4])[0] + 1.0)
    try:
        with pytest.raises(
            MismatchError,
            match=r"The output '(score|hidden)' of example 1, at \[1, \d\], is "
            r"-?[\d.e-]+ in the model, but -?[\d.e-]+ in the export through "
            r"'serve'\. They are .* apart, more than `atol`=1e-05",
        ):
            verify(model, path, x)
        result = verify(model, path, x, atol=100)
        assert {o.example for o in result.outputs.values()} == {1}
        assert 1e-5 < result.max_difference < 100
    finally:
        table.load_rows(before)
    assert verify(model, path, x).max_difference < 1e-6


def test_each_signature_can_be_the_one_that_differs(tmp_path):
    x = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    path = own_export(
        tmp_path / "s",
        lambda f: {"output_0": f["x"]},
        lambda x: {"output_0": x + [0.0, 0.5]},
    )
    with pytest.raises(MismatchError, match="through 'serving_default'"):
        verify(number_model(), path, x)
    result = verify(number_model(), path, x, atol=0.5)
    assert result.outputs["output_0"] == OutputDifference(
        0.5, 0, "serving_default"
    )


def test_other_names_of_outputs(tmp_path):
    path = own_export(tmp_path / "s", lambda f: {"other": f["x"]})
    with pytest.raises(
        MismatchError,
        match=r"The model has the outputs \['output_0'\], but the export "
        r"\['other'\] through 'serve'",
    ):
        verify(number_model(), path, np.ones((3, 2), np.float32))


def test_other_inputs_than_the_models(path, model):
    other = export_models.ragged_model()
    with pytest.raises(
        MismatchError,
        match=r"has the inputs \['x'\], but the export \['age', 'author', 'it",
    ):
        verify(other, path, export_models.collection_inputs())


def test_some_outputs(path, model):
    x = export_models.collection_inputs()
    layer = model.get_layer("score")
    before = layer.bias.numpy()
    layer.bias.assign(before + 1)
    try:
        result = verify(model, path, x, outputs=["hidden"])
        assert list(result.outputs) == ["hidden"]
        with pytest.raises(MismatchError, match="The output 'score'"):
            verify(model, path, x)
    finally:
        layer.bias.assign(before)
    with pytest.raises(
        ValueError,
        match=r"`outputs` has 'x', but the model has \['hidden', 'sc",
    ):
        verify(model, path, x, outputs=["x"])


def test_a_plain_export(tmp_path):
    m = export_models.ragged_model()
    ids = tf.ragged.constant([[1, 2], [], [3]], tf.int64)
    m(ids, training=True)
    path = str(tmp_path / "s")
    lodestar.export.save_plain(m, path)
    result = verify(m, path, ids, atol=0)
    assert result.signatures == ("serve", "serving_default")
    assert result.examples == 3
    m.get_layer("embed").table.insert_or_assign([3], [[9.0, 9.0]])
    with pytest.raises(MismatchError, match="'output_0' of example 2, at"):
        verify(m, path, ids)


def test_lists_tensors_and_dense_batches(tmp_path):
    a = keras.Input((None,), dtype="int64", ragged=True, name="a")
    b = keras.Input((1,), name="b")
    rows = lodestar.layers.DynamicEmbedding(1, combiner="sum")(a)
    m = keras.Model([a, b], keras.layers.Add()([rows, b]))
    ids, numbers = np.array([[1, 2], [3, 4]]), np.array([0.5, 1.5], np.float32)
    m([tf.ragged.constant(ids, tf.int64), tf.ones([2, 1])], training=True)
    lodestar.export.save(m, tmp_path / "s")
    for batch in (
        [ids, numbers],
        (tf.ragged.constant(ids.tolist(), tf.int32), numbers[:, None]),
        [
            lodestar.ragged.LoDTensor.from_lengths(ids.ravel(), [[2, 2]]),
            numbers,
        ],
        {"b": numbers, "a": [[1], [2, 3]], "label": 1},
    ):
        assert verify(m, tmp_path / "s", batch).examples == 2
    single = export_models.ragged_model()
    lodestar.export.save(single, tmp_path / "t", "padded", padding_id=0)
    for batch in (ids, [ids], {"x": ids}, ids.tolist(), [[1], []]):
        assert verify(single, tmp_path / "t", batch).examples == 2
    empty = tf.ragged.constant([], tf.int64, ragged_rank=1)
    result = verify(single, tmp_path / "t", empty)
    assert (result.examples, result.max_difference) == (0, 0.0)


def test_a_subclassed_model(tmp_path):
    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.embed = lodestar.layers.DynamicEmbedding(2, combiner="sum")

        def call(self, x):
            return self.embed(x)

    m = Subclassed()
    ids = tf.ragged.constant([[1, 2], [3]], tf.int64)
    m(ids, training=True)
    lodestar.export.save(
        m,
        tmp_path / "s",
        inputs={"ids": tf.RaggedTensorSpec([None, None], tf.int64)},
        from_rows=True,
    )
    assert verify(m, tmp_path / "s", ids).signatures[-1] == "from_rows"
    assert verify(m, tmp_path / "s", {"ids": ids}).max_difference == 0


def test_a_batch_that_padding_cannot_represent(tmp_path):
    m = export_models.ragged_model()
    lodestar.export.save(m, tmp_path / "s", "padded", padding_id=7)
    with pytest.raises(
        ValueError, match="Example 1 of the input 'x' cannot be p"
    ):
        verify(m, tmp_path / "s", [[1], [2, 7]])


@pytest.mark.parametrize("atol", [-1, float("nan"), "1", None, True])
def test_bad_atol(atol):
    with pytest.raises(ValueError, match="`atol` must be at least 0, got"):
        verify(None, "nowhere", [], atol=atol)


def test_an_unknown_signature(tmp_path):
    path = own_export(
        tmp_path / "s", lambda f: {"output_0": f["x"]}, name="regress"
    )
    with pytest.raises(ValueError, match="unknown signature 'regress'"):
        verify(number_model(), path, np.ones((1, 2), np.float32))


def test_a_folder_that_is_no_export(tmp_path):
    x = np.ones((1, 2), np.float32)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        verify(number_model(), tmp_path / "s", x)
    with pytest.raises(FileNotFoundError, match="has no features.json"):
        verify(number_model(), tmp_path, x)


def test_lookups_that_the_model_has_not(path, model, tmp_path):
    file = shutil.copytree(path, tmp_path / "s") / "features.json"
    document = json.loads(file.read_text())
    for argument in document["signatures"]["from_rows"]["arguments"]:
        if argument["name"] == "viewer":
            argument["layer"] = "gone"
    file.write_text(json.dumps(document))
    with pytest.raises(
        MismatchError, match="takes the rows of .*gone.*model l"
    ):
        verify(model, file.parent, export_models.collection_inputs())
