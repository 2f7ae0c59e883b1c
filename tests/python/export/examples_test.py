"""Tests of inputs as serialized tf.Examples."""

import export_models
import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.export.examples import ExampleForm

SPECS = {
    "bag": tf.RaggedTensorSpec([None, None], tf.int64),
    "deep": tf.RaggedTensorSpec([None] * 3, tf.string, ragged_rank=2),
    "deeper": tf.RaggedTensorSpec([None] * 4, tf.int32, ragged_rank=3),
    "track": tf.RaggedTensorSpec([None, None, 2], tf.float32, ragged_rank=1),
    "three": tf.TensorSpec([None, 3], tf.int64),
    "grid": tf.TensorSpec([None, 2, 2], tf.float16),
    "one": tf.TensorSpec([None], tf.string),
    "on": tf.TensorSpec([None, 1], tf.bool),
    "spare": tf.SparseTensorSpec([None, None], tf.int64),
}


def ragged(rows, dtype, rank, inner=()):
    return tf.ragged.constant(
        rows,
        dtype,
        ragged_rank=rank,
        inner_shape=inner,
        row_splits_dtype=tf.int64,
    )


def batch():
    return {
        "bag": ragged([[1, -2], []], tf.int64, 1),
        "deep": ragged([[["a", "b"], []], []], tf.string, 2),
        "deeper": ragged([[], [[[1], [2, 3]], [], [[]]]], tf.int32, 3),
        "track": ragged([[[1, 2]], [[3, 4], [5, 6]]], tf.float32, 1, (2,)),
        "three": tf.constant([[1, 2, 2**62], [4, 5, 6]], tf.int64),
        "grid": tf.reshape(tf.range(8, dtype=tf.float16), [2, 2, 2]),
        "one": tf.constant(["x", b"\xff"]),
        "on": tf.constant([[True], [False]]),
        "spare": tf.sparse.from_dense(tf.constant([[7, 8], [0, 0]], tf.int64)),
    }


def values(x):
    if isinstance(x, tf.RaggedTensor):
        return x.to_list()
    if isinstance(x, tf.SparseTensor):
        return [t.numpy().tolist() for t in (x.indices, x.values)]
    return x.numpy().tolist()


@pytest.mark.parametrize("graph", [False, True])
def test_serialized_examples_are_parsed(graph):
    form = ExampleForm(SPECS)
    parse = tf.function(form.parse) if graph else form.parse
    got = parse(form.serialize(batch()))
    for name, want in batch().items():
        assert got[name].dtype == SPECS[name].dtype
        assert values(got[name]) == values(want), name
        assert SPECS[name].is_compatible_with(got[name]), name


def test_layout_of_an_example():
    serialized = ExampleForm(SPECS).serialize(batch())
    example = tf.train.Example.FromString(serialized[1].numpy())
    features = example.features.feature
    assert features["deeper"].int64_list.value == [1, 2, 3]
    assert features["deeper_lengths_0"].int64_list.value == [2, 0, 1]
    assert features["deeper_lengths_1"].int64_list.value == [1, 2, 0]
    example = tf.train.Example.FromString(serialized[0].numpy())
    assert example.features.feature["deep_lengths"].int64_list.value == [2, 0]
    assert list(example.features.feature["bag"].int64_list.value) == [1, -2]


def test_no_examples():
    form = ExampleForm({"bag": SPECS["bag"], "three": SPECS["three"]})
    empty = {
        "bag": ragged([], tf.int64, 1),
        "three": tf.zeros([0, 3], tf.int64),
    }
    got = form.parse(form.serialize(empty))
    assert got["bag"].nrows() == 0 and got["three"].shape == [0, 3]


def test_an_absent_ragged_feature_is_empty_and_a_dense_one_an_error():
    form = ExampleForm({"bag": SPECS["bag"], "deep": SPECS["deep"]})
    got = form.parse([tf.train.Example().SerializeToString()])
    assert got["bag"].to_list() == [[]] and got["deep"].to_list() == [[]]
    form = ExampleForm({"three": SPECS["three"]})
    with pytest.raises(tf.errors.InvalidArgumentError, match="three"):
        form.parse([tf.train.Example().SerializeToString()])


@pytest.mark.parametrize(
    "spec, features, message",
    [
        (SPECS["deep"], {"x": [b"a"], "x_lengths": [5]}, ""),
        (
            tf.TensorSpec([None], tf.int32),
            {"x": [2**40]},
            "feature x has values beyond int32",
        ),
    ],
)
def test_values_that_do_not_fit(spec, features, message):
    form = ExampleForm({"x": spec})
    example = tf.train.Example()
    for name, values in features.items():
        feature = example.features.feature[name]
        is_text = isinstance(values[0], bytes)
        kind = feature.bytes_list if is_text else feature.int64_list
        kind.value.extend(values)
    for parse in (form.parse, tf.function(form.parse)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            parse([example.SerializeToString()])


def test_inputs_that_do_not_fit_together():
    specs = {
        "deep_lengths": tf.TensorSpec([None], tf.int64),
        "deep": SPECS["deep"],
    }
    with pytest.raises(
        ValueError,
        match="The input 'deep_lengths' has the name of the feature .*'deep'",
    ):
        ExampleForm(specs)
    form = ExampleForm({"bag": SPECS["bag"], "one": SPECS["one"]})
    three = {"bag": batch()["bag"], "one": tf.constant(["a", "b", "c"])}
    with pytest.raises(ValueError, match="different numbers of examples: .*3"):
        form.serialize(three)


@pytest.mark.parametrize(
    "spec, message",
    [
        (tf.TensorSpec([None, None], tf.int64), "axes of known size"),
        (tf.TensorSpec([None], tf.uint64), "cannot hold uint64"),
        (tf.TensorSpec([None], tf.float64), "cannot hold float64"),
        (
            tf.SparseTensorSpec([None, None, None], tf.int64),
            "a sparse input needs one axis",
        ),
        (
            tf.RaggedTensorSpec([None, 3, None], tf.int64, ragged_rank=2),
            "ragged axes must all be of unknown size",
        ),
        (
            tf.RaggedTensorSpec([None, None, None], tf.int64, ragged_rank=1),
            "inner axes need a known size",
        ),
    ],
)
def test_inputs_without_a_form(spec, message):
    with pytest.raises(
        ValueError, match=f"The input 'x', .* cannot be in a tf.*{message}"
    ):
        ExampleForm({"x": spec})


def test_a_served_model_accepts_examples(tmp_path):
    m = export_models.shared_collection_model()
    path = str(tmp_path / "s")
    lodestar.export.save(m, path, "examples")
    loaded = tf.saved_model.load(path)
    serve = loaded.signatures["serving_default"]
    x = export_models.collection_inputs()
    examples = []
    for i in range(3):
        example = tf.train.Example()
        for name in ("viewer", "items"):
            feature = example.features.feature[name]
            for value in x[name][i].numpy():
                if name == "viewer":
                    feature.int64_list.value.append(value)
                else:
                    feature.bytes_list.value.append(value)
        author = example.features.feature["author"]
        author.int64_list.value.append(x["author"][i].numpy())
        age = example.features.feature["age"]
        age.float_list.value.extend(x["age"][i].numpy())
        examples.append(example.SerializeToString())
    got = serve(examples=tf.constant(examples))
    want = m.predict(x, verbose=0)
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])
    with pytest.raises(tf.errors.InvalidArgumentError, match="parse"):
        serve(examples=tf.constant([b"no example"]))


def test_a_dense_input_of_unknown_size_is_named(tmp_path):
    ids = keras.Input((None,), dtype="int64", name="ids")
    layer = lodestar.layers.DynamicEmbedding(2, combiner="sum")
    with pytest.raises(ValueError, match="The input 'ids'"):
        lodestar.export.save(
            keras.Model(ids, layer(ids)), tmp_path / "s", "examples"
        )
    assert not (tmp_path / "s").exists()
