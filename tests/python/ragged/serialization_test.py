"""LoDTensor as named tensors, as a string, and in SavedModels."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lodestar.ragged import LoDTensor

DTYPES = [tf.float16, tf.bfloat16, tf.float32, tf.int64, tf.bool, tf.string]


def two_levels(dtype=tf.float32):
    rows = (
        tf.constant(["a", "b", "c"])
        if dtype == tf.string
        else tf.cast([0, 1, 2], dtype)
    )
    return LoDTensor.from_lengths(rows, [[2, 1], [1, 0, 2]])


def test_components():
    x = two_levels()
    components = x.components()
    assert list(components) == ["values", "lod_0", "lod_1"]
    assert LoDTensor.from_components(components).to_list() == x.to_list()
    both = {**x.components("a_"), **x.slice(1, 0, 2).components("b_")}
    assert LoDTensor.from_components(both, "a_").to_list() == x.to_list()
    assert LoDTensor.from_components(both, "b_").to_list() == [[0.0], []]
    plain = LoDTensor([1.0], ())
    assert LoDTensor.from_components(plain.components()).num_levels == 0


@pytest.mark.parametrize(
    "names, found",
    [
        ([], "none"),
        (["lod_0"], "lod_0"),
        (["values", "lod_1"], "lod_1, values"),
        (["values", "lod_0", "lod_2"], "lod_0, lod_2, values"),
        (["values", "row_splits"], "row_splits, values"),
    ],
)
def test_other_components_are_named(names, found):
    with pytest.raises(
        ValueError, match=f"`components` must have .*, got {found}"
    ):
        LoDTensor.from_components({name: tf.zeros([1]) for name in names})


def test_components_that_do_not_nest():
    components = {**two_levels().components(), "lod_0": [0, 4]}
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"3 units in `lod\[1\]`"
    ):
        LoDTensor.from_components(components)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_strings_round_trip(dtype):
    x = two_levels(dtype)
    serialized = x.serialize()
    assert (serialized.dtype, serialized.shape) == (tf.string, ())
    back = LoDTensor.parse(serialized, dtype, 2)
    assert (back.values.dtype, back.to_list()) == (dtype, x.to_list())
    plain = LoDTensor(x.values, ())
    assert (
        LoDTensor.parse(plain.serialize(), dtype, 0).to_list()
        == plain.to_list()
    )


def test_no_rows_round_trip_with_their_shape():
    x = LoDTensor.from_lengths(np.zeros([0, 3], np.float32), [[0, 0]])
    back = LoDTensor.parse(x.serialize(), tf.float32)
    assert (back.values.shape, back.to_list()) == ((0, 3), [[], []])


def test_strings_in_a_graph_and_a_dataset(tmp_path):
    @tf.function(input_signature=[LoDTensor.Spec(None, tf.float32, 2)])
    def write(x):
        return x.serialize()

    x = two_levels()
    path = str(tmp_path / "lod.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for _ in range(3):
            writer.write(write(x).numpy())
    dataset = tf.data.TFRecordDataset(path).map(
        lambda s: LoDTensor.parse(s, tf.float32, 2), num_parallel_calls=2
    )
    assert [y.to_list() for y in dataset] == [x.to_list()] * 3


def malformed():
    x = two_levels()
    parts = [tf.io.serialize_tensor(part) for part in (x.values, *x.lod)]
    whole = x.serialize().numpy()
    return [
        ("no tensor", b"abc", "Could not parse"),
        ("cut", whole[:-3], "Could not parse"),
        ("empty", b"", "Cannot parse|Could not parse"),
        ("values alone", parts[0].numpy(), r"parsed tensor \(float\)"),
        (
            "one level fewer",
            tf.io.serialize_tensor(tf.stack(parts[:2])).numpy(),
            "must have 3 parts, the values and 2 levels",
        ),
        (
            "a matrix",
            tf.io.serialize_tensor(tf.stack([parts, parts, parts])).numpy(),
            "must have 3 parts",
        ),
        (
            "a level in the place of the values",
            tf.io.serialize_tensor(tf.stack([parts[1], *parts[1:]])).numpy(),
            r"parsed tensor \(int64\) and dtype \(float\)",
        ),
        (
            "levels the other way around",
            tf.io.serialize_tensor(
                tf.stack([*parts[:1], *parts[:0:-1]])
            ).numpy(),
            "but there are",
        ),
        (
            "a level that is a scalar",
            tf.io.serialize_tensor(
                tf.stack(
                    [
                        *parts[:2],
                        tf.io.serialize_tensor(tf.constant(3, tf.int64)),
                    ]
                )
            ).numpy(),
            "must have rank 1",
        ),
    ]


@pytest.mark.parametrize(
    "serialized, message",
    [case[1:] for case in malformed()],
    ids=[case[0] for case in malformed()],
)
def test_malformed_strings_are_refused(serialized, message):
    with pytest.raises(
        (tf.errors.InvalidArgumentError, ValueError), match=message
    ):
        LoDTensor.parse(serialized, tf.float32, 2)
    dataset = tf.data.Dataset.from_tensors(serialized).map(
        lambda s: LoDTensor.parse(s, tf.float32, 2)
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(dataset)


def test_parse_refuses_no_levels_below_zero():
    with pytest.raises(ValueError, match="`num_levels` must be .* got -1"):
        LoDTensor.parse(b"", tf.float32, -1)


_SERVE = """
import sys
import lodestar
import tensorflow as tf

model = tf.saved_model.load(sys.argv[1])
serve = model.signatures["serving_default"]
x = lodestar.ragged.LoDTensor.from_nested_lists([[[1.0, 2.0]], [], [[3.0], []]])
out = lodestar.ragged.LoDTensor.from_components(serve(**x.components()))
assert out.to_list() == [[[2.0, 4.0]], [], [[6.0], []]], out
assert model.doubled(x).to_list() == out.to_list()
bad = {**x.components(), "lod_1": tf.constant([0, 2, 9, 3], tf.int64)}
try:
    serve(**bad)
except tf.errors.InvalidArgumentError as error:
    assert "`lod[1][2]`=9 is greater than" in str(error), error
else:
    raise AssertionError("taken")
print("served")
"""


def test_saved_model_signature_in_another_process(tmp_path):
    spec = LoDTensor.Spec([None], tf.float32, num_levels=2)
    module = tf.Module()
    module.doubled = tf.function(
        lambda x: LoDTensor(x.values * 2, x.lod), input_signature=[spec]
    )

    @tf.function
    def serve(**components):
        x = LoDTensor.from_components(components)
        return module.doubled(x).components()

    module.serve = serve
    tf.saved_model.save(
        module,
        str(tmp_path),
        signatures=serve.get_concrete_function(**spec.components()),
    )
    done = subprocess.run(
        [sys.executable, "-c", _SERVE, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "served\n", done.stderr
