"""Tests of warm-up requests, parsed by protobuf."""

import itertools
import os

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from served_models import assert_same_outputs, batch, plain, trained_model
from tensorflow.core.framework import tensor_pb2

import lodestar
from lodestar.serving import write_warm_up

_TEXT = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
# Message -> its fields: (name, number, type or message).
_MESSAGES = {
    "ModelSpec": [("name", 1, _TEXT), ("signature_name", 3, _TEXT)],
    "Input": [("key", 1, _TEXT), ("value", 2, ".tensorflow.TensorProto")],
    "PredictRequest": [
        ("model_spec", 1, ".test.ModelSpec"),
        ("inputs", 2, ".test.Input"),
    ],
    "PredictLog": [("request", 1, ".test.PredictRequest")],
    "PredictionLog": [("predict_log", 6, ".test.PredictLog")],
}


def prediction_log():
    """Returns the message class, as defined in the server's own files."""
    file = descriptor_pb2.FileDescriptorProto(
        name="warm_up_test.proto",
        package="test",
        syntax="proto3",
        dependency=[tensor_pb2.DESCRIPTOR.name],
    )
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, number, kind in fields:
            field = described.field.add(name=name, number=number, label=1)
            if name == "inputs":
                field.label = 3
            if isinstance(kind, str):
                field.type, field.type_name = 11, kind
            else:
                field.type = kind
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName("test.PredictionLog")
    )


@pytest.fixture(scope="module")
def model():
    return trained_model()


@pytest.fixture(scope="module", params=["save", "save_plain"])
def path(request, model, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("served") / "größe")
    getattr(lodestar.export, request.param)(model, path)
    return path


def one(**changes):
    return {**plain(batch(3, 2)), **changes}


def test_the_requests_are_those_that_were_given(model, path):
    log_class = prediction_log()
    sizes = (0, 1, 300)
    file = write_warm_up(
        path, (plain(batch(n, n)) for n in sizes), model_name="ranker"
    )
    assert file == f"{path}/assets.extra/tf_serving_warmup_requests"
    assert os.listdir(os.path.dirname(file)) == [os.path.basename(file)]
    loaded = tf.saved_model.load(path)
    records = list(tf.data.TFRecordDataset(file).as_numpy_iterator())
    assert len(records) == len(sizes)
    for record, size in zip(records, sizes, strict=True):
        log = log_class.FromString(record)
        # Only fields that these messages define.
        assert log.SerializeToString(deterministic=True) == record
        request = log.predict_log.request
        assert request.model_spec.name == "ranker"
        assert request.model_spec.signature_name == "serving_default"
        inputs = {i.key: tf.make_ndarray(i.value) for i in request.inputs}
        want = plain(batch(size, size))
        assert set(inputs) == set(want)
        for name, array in want.items():
            np.testing.assert_array_equal(inputs[name], array)
        scores = loaded.signatures["serving_default"](
            **{
                name: tf.io.parse_tensor(
                    value.SerializeToString(), tf.as_dtype(value.dtype)
                )
                for name, value in ((i.key, i.value) for i in request.inputs)
            }
        )
        assert_same_outputs(scores, model(batch(size, size), training=False))


def test_again_replaces_and_lists_are_converted(path):
    write_warm_up(path, [one()] * 1000)
    lists = {k: v.tolist() for k, v in one().items()}
    file = write_warm_up(path, [{**lists, "clicks_values": [], **empty()}])
    (record,) = tf.data.TFRecordDataset(file).as_numpy_iterator()
    assert record


def empty():
    return {"clicks_row_splits": [0, 0, 0]}


def test_a_failure_keeps_the_old_file(path):
    file = write_warm_up(path, [one()])
    before = open(file, "rb").read()
    with pytest.raises(ValueError):
        write_warm_up(path, [one(), one(number=[[1.0]])])
    assert open(file, "rb").read() == before


def test_a_failed_write_leaves_no_file(path):
    folder = os.path.dirname(write_warm_up(path, [one()]))
    before = os.listdir(folder)
    os.remove(f"{folder}/{before[0]}")
    os.mkdir(f"{folder}/{before[0]}")  # no file can take its name
    with pytest.raises(tf.errors.OpError):
        write_warm_up(path, [one()])
    assert os.listdir(folder) == before
    os.rmdir(f"{folder}/{before[0]}")


def test_the_folder_loads_and_is_replaced_as_before(model, tmp_path):
    path = tmp_path / "m"
    lodestar.export.save(model, path)
    write_warm_up(path, [one()])
    assert lodestar.export.verify(model, str(path), batch(1, 4), atol=1e-5)
    lodestar.export.save(model, path)
    assert not (path / "assets.extra").exists()


@pytest.mark.parametrize(
    "examples, options, error, message",
    [
        ([], {}, ValueError, "`examples` must have 1 to 1000 .* got none"),
        (None, {}, TypeError, "not iterable"),
        (one(), {}, TypeError, "`examples` must be a list of mappings"),
        (
            [one(), [1]],
            {},
            TypeError,
            r"`examples\[1\]` must map .* got a list",
        ),
        (
            [one()],
            {"signature": "other"},
            ValueError,
            "`signature` must be .* got 'other'",
        ),
        (
            [one()],
            {"signature": "serve"},
            ValueError,
            "`signature` must be .* got 'serve'",
        ),
        (
            [one()],
            {"model_name": 3},
            ValueError,
            "`model_name` must be a string or None, got 3",
        ),
        ([{}], {}, ValueError, r"`examples\[0\]` must have .* got \[\]"),
        (
            [one(), one(x=1)],
            {},
            ValueError,
            r"`examples\[1\]` must have .* got .*'x'",
        ),
        (
            [one(clicks_values=tf.ragged.constant([[1], []]))],
            {},
            ValueError,
            r"\['clicks_values'\] must be a dense .* got a RaggedTensor",
        ),
        (
            [one(clicks_values=[[1], [2, 3]])],
            {},
            ValueError,
            r"\['clicks_values'\] must be a tensor of int64: .*non-rectangular",
        ),
        (
            [one(clicks_values=[1.5])],
            {},
            ValueError,
            "must be a tensor of int64: .*Cannot convert",
        ),
        (
            [one(clicks_values=np.array([1.5]))],
            {},
            ValueError,
            "must be a tensor of int64: .*it has the dtype float64",
        ),
        ([one(color=[1, 2])], {}, ValueError, "must be a tensor of string"),
        ([one(color=None)], {}, ValueError, "must be a tensor of string"),
        (
            [one(number=[1.0, 2.0])],
            {},
            ValueError,
            r"\['number'\] must have the shape \(None, 3\), got \(2,\)",
        ),
    ],
)
def test_invalid_requests(path, examples, options, error, message):
    with pytest.raises(error, match=message):
        write_warm_up(path, examples, **options)


def test_more_than_the_server_takes(path):
    with pytest.raises(
        ValueError, match="must have 1 to 1000 requests.* got more"
    ):
        write_warm_up(path, itertools.repeat(one()))


def test_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_warm_up(tmp_path / "none", [one()])
