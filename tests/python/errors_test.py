"""describe_error returns one line, however deeply the error was raised."""

import keras
import pytest
import tensorflow as tf

import lodestar
from lodestar import optimizers
from lodestar._command_line import describe_error
from lodestar.data import Column, DataError, Schema
from lodestar.layers import DynamicEmbedding
from lodestar.paddle.multislot_dataset import MultiSlotDataset

SPEC = Schema([Column.label("click"), Column.dense("I", (1,))])


@pytest.fixture
def bad_file(tmp_path):
    path = tmp_path / "bad"
    path.write_text("1 1 1 2\n" * 3 + "1 1 1 x\n")
    return path


def wanted(path):
    return (
        f"{path}:4: slot 'I' at byte 7: value 1 of 1 is 'x', expected a number"
    )


def test_an_eager_error(bad_file):
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(MultiSlotDataset(bad_file, SPEC, 1))
    assert describe_error(error.value) == wanted(bad_file)


@pytest.mark.parametrize("train", ["fit", "evaluate"])
def test_the_sentence_is_a_note_on_errors_of_graphs(train):
    ids = keras.Input((1,), dtype="int64")
    rows = DynamicEmbedding(2, combiner="sum", ids=(0, 5), name="user")(ids)
    model = keras.Model(ids, rows)
    model.compile(optimizers.SGD(), "mse")
    data = tf.data.Dataset.from_tensors(([[7]], [[1.0, 1.0]]))
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        getattr(lodestar.train, train)(model, data, verbose=0)
    assert raised.value.__notes__ == [
        "The ids of layer `user` must be in [0, 5), got 7"
    ]
    assert describe_error(raised.value) == raised.value.__notes__[0]


def test_an_error_inside_tf_function(bad_file):
    dataset = MultiSlotDataset(bad_file, SPEC, 1)

    @tf.function
    def run():
        total = 0.0
        for _, label in dataset:
            total += tf.reduce_sum(label)
        return total

    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        run()
    assert describe_error(error.value) == wanted(bad_file)


@pytest.mark.parametrize("run_eagerly", [True, False])
def test_an_error_inside_fit(bad_file, run_eagerly):
    dense = keras.Input([1], name="I")
    model = keras.Model({"I": dense}, keras.layers.Dense(1)(dense))
    model.compile("sgd", "mse", run_eagerly=run_eagerly)
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        model.fit(MultiSlotDataset(bad_file, SPEC, 1), verbose=0)
    assert describe_error(error.value) == wanted(bad_file)


def test_other_errors():
    assert describe_error(DataError("a: b")) == "a: b"
    assert describe_error(ValueError("two\n  lines")) == "two lines"
    assert describe_error(KeyError()) == "KeyError"
    error = tf.errors.NotFoundError(None, None, "a; No such file or directory")
    assert describe_error(error) == "a: No such file or directory"
    error = tf.errors.UnknownError(None, None, "a; b; c")
    assert describe_error(error) == "a; b; c"
    with pytest.raises(OSError) as error:
        open("/nowhere/at/all")
    assert describe_error(error.value) == (
        "/nowhere/at/all: No such file or directory"
    )


def test_an_error_of_another_task_names_it():
    error = tf.errors.DataLossError(
        None,
        None,
        "'a', byte 7: is wrong\nAdditional GRPC error information from remote "
        "target /job:ps/replica:0/task:1 while calling /a.b/Enqueue:\n:UNKNOWN:"
        'Error received from peer {grpc_message:"...", grpc_status:15}',
    )
    assert (
        describe_error(error)
        == "'a', byte 7: is wrong (from /job:ps/replica:0/task:1)"
    )


def test_the_first_of_several_errors_is_reported():
    error = tf.errors.InvalidArgumentError(
        None,
        None,
        "Graph execution error:\n\nDetected at node next defined at (most "
        'recent call last):\n  File "a.py", line 1, in <module>\n\n2 root '
        "error(s) found.\n  (0) INVALID_ARGUMENT:   'a', byte 7: is wrong\n"
        "\t [[{{node next}}]]\nAdditional GRPC error information from remote "
        "target /job:worker/replica:0/task:0 while calling /a.b/Enqueue:\n:UN"
        "KNOWN:Error\n  (1) INVALID_ARGUMENT:  'b', byte 8: is wrong\n\t [[{{"
        "node next}}]]\n0 successful operations.\n1 derived errors ignored.",
    )
    assert describe_error(error) == "'a', byte 7: is wrong"
