"""Compares Hogwild training with model.fit."""

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from click_models import (
    BATCH,
    ROWS,
    SPEC,
    make_dense_model,
    make_inputs,
    make_model,
    wrap,
    write,
    write_files,
)

import lodestar
from lodestar.data import open_dataset
from lodestar.paddle import InMemoryDataset, train_from_dataset


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"), 5)


def check_metrics(found, model, data):
    """Checks that these are the metrics of the data; the model must not learn."""
    wanted = model.evaluate(data, return_dict=True, verbose=0)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, err_msg=name)


def test_all_samples_of_each_epoch_are_counted_once(files):
    model = make_model(rate=0.0)  # so that the order does not matter
    steps = 0
    for threads, names in ((1, files[:3]), (4, files)):
        data = open_dataset(names, SPEC, BATCH)
        found = train_from_dataset(model, data, threads=threads)
        shown = model.get_metrics_result()
        steps += len(names) * -(-ROWS // BATCH)
        assert int(model.optimizer.iterations) == steps
        for metrics in (found, shown):
            check_metrics(metrics, model, data)
    memory = InMemoryDataset(SPEC, BATCH, num_queues=3)
    memory.load(files)
    found = train_from_dataset(model, memory, threads=2)
    check_metrics(found, model, memory.dataset())


@pytest.mark.parametrize("unit", ["step", "occurrence"])
def test_threads_lose_no_count_of_steps_and_occurrences(files, unit):
    inputs = make_inputs()
    table = lodestar.EmbeddingVariable(
        4, name="t", admission=lodestar.MinCount(1, unit=unit)
    )
    # Two lookups in each step, which steps of other threads can separate.
    rows = [
        lodestar.layers.DynamicEmbedding(table=table, combiner="sum")(inputs[f])
        for f in ("a", "b")
    ]
    rows[0] = keras.layers.Dense(4)(keras.layers.Dense(256)(rows[0]))
    model = keras.Model(inputs, keras.layers.Dense(1)(rows[0] + rows[1]))
    model.compile(wrap(), "mse")
    data = open_dataset(files, SPEC, BATCH)
    train_from_dataset(model, data, threads=4)
    steps = len(files) * -(-ROWS // BATCH)
    assert int(model.optimizer.iterations) == int(table.step) == steps
    if unit == "step":
        return
    counts = np.zeros(100, np.int64)
    for features, _ in data:
        for name in ("a", "b"):
            np.add.at(counts, features[name].flat_values.numpy(), 1)
    np.testing.assert_array_equal(table.frequency(np.arange(100)), counts)


def test_threads_learn(files):
    model = make_model(rate=0.3)
    data = open_dataset(files, SPEC, BATCH)
    first = train_from_dataset(model, data, threads=3)
    for _ in range(8):
        last = train_from_dataset(model, data, threads=3)
    assert first["AUC"] < 0.8 and last["AUC"] > 0.95


class Traced(keras.layers.Layer):
    """Records when it is called."""

    def __init__(self):
        super().__init__()
        self.traces = []

    def call(self, x):
        self.traces.append(1)
        return x


def test_one_epoch_per_day_is_one_trace(tmp_path):
    layer = Traced()
    model = make_model(layers=[layer])
    rng = np.random.default_rng(4)
    for day, parts in (("0227", 2), ("0228", 3), ("0229", 1), ("0301", 4)):
        (tmp_path / f"2024{day}").mkdir()
        for part in range(parts):
            write(tmp_path / f"2024{day}" / f"part-{part}", rng)
    days = lodestar.data.files_by_day(
        f"{tmp_path}/%Y%m%d/part-*", "20240227", "20240301"
    )
    steps, traces = [], []
    for files in days.values():
        data = open_dataset(files, SPEC, BATCH)
        train_from_dataset(model, data, threads=2)
        steps.append(int(model.optimizer.iterations))
        traces.append(len(layer.traces))
    assert steps == [16, 40, 48, 80]
    assert traces == [traces[0]] * 4
    model.compile(model.optimizer, "mse")
    train_from_dataset(model, data, threads=2)
    assert len(layer.traces) > traces[0]


_A_DATASET_FOR_EACH_PASS = """
import logging, sys
import click_models, lodestar, tensorflow as tf
warned = []
class Handler(logging.Handler):
    def emit(self, record):
        warned.append(record.getMessage())
tf.get_logger().addHandler(Handler(logging.WARNING))
model = click_models.make_model()
for _ in range(6):
    data = lodestar.data.open_dataset(sys.argv[1:], click_models.SPEC, 100000)
    lodestar.paddle.train_from_dataset(model, data, threads=2)
assert not [text for text in warned if "retracing" in text], warned
"""


def test_a_dataset_per_epoch_does_not_warn_of_retracing(files, fresh_process):
    # TensorFlow counts traces per process.
    fresh_process.run(_A_DATASET_FOR_EACH_PASS, *files[:2])


def test_fetched_values_are_printed_with_labels(files, capsys):
    model = make_model()
    data = open_dataset(files, SPEC, BATCH)
    logs = train_from_dataset(
        model,
        data,
        threads=2,
        fetch=["loss", "hidden"],
        fetch_info=["the loss", "mean of the hidden layer"],
        print_period=10,
    )
    lines = capsys.readouterr().out.splitlines()
    last = lines.pop()
    assert re.fullmatch(r"epoch: \d+ steps in \d+\.\d s", last)
    assert int(last.split()[1]) == int(model.optimizer.iterations) >= 40
    starts = [f"step {n}: the loss 0." for n in (10, 20, 30, 40)]
    assert [line[: len(starts[0])] for line in lines] == starts
    assert all(", mean of the hidden layer 0." in line for line in lines)
    assert set(logs) == {"loss", "AUC", "accuracy"}


def test_a_fetched_layer_is_averaged_over_a_period(files):
    model = make_model(rate=0.0)
    data = open_dataset(files[:1], SPEC, BATCH)
    got = []
    train_from_dataset(
        model,
        data,
        threads=1,
        fetch=["hidden"],
        print_period=4,
        on_period=lambda steps, values: got.append((steps, values["hidden"])),
    )
    hidden = keras.Model(model.input, model.get_layer("hidden").output)
    means = [float(tf.reduce_mean(hidden(x))) for x, _ in data]
    wanted = [(4, np.mean(means[:4])), (8, np.mean(means[4:8]))]
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_a_snapshot_between_steps_is_consistent(files, tmp_path):
    model = make_model()
    seen = []

    def save(steps, values):
        assert threading.current_thread() is threading.main_thread()
        lodestar.snapshot.save(model, tmp_path / "snapshots")
        seen.append((steps, int(model.optimizer.iterations)))

    data = open_dataset(files, SPEC, BATCH)
    train_from_dataset(model, data, threads=3, print_period=9, on_period=save)
    assert seen == [(9, 9), (18, 18), (27, 27), (36, 36)]
    assert len(lodestar.snapshot.versions(tmp_path / "snapshots")) == len(seen)
    other = make_model()
    lodestar.snapshot.restore(other, tmp_path / "snapshots")
    assert int(other.optimizer.iterations) == 36


def test_no_more_threads_than_files(files, capsys):
    data = open_dataset(files[:2], SPEC, BATCH)
    train_from_dataset(make_model(), data, threads=8)
    assert "2 threads instead of 8" in capsys.readouterr().out
    train_from_dataset(make_model(), data, threads=2, print_period=1000)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_bad_line_ends_all_threads_and_is_named(files, threads, tmp_path):
    bad = tmp_path / "bad.txt"
    with open(files[0]) as file:
        lines = file.readlines()
    lines[41] = "1 0 2 x\n"
    bad.write_text("".join(lines))
    model = make_model()
    lodestar.snapshot.save(model, tmp_path / "before")
    data = open_dataset([*files, bad, *files * 50], SPEC, BATCH)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        train_from_dataset(model, data, threads=threads)
    assert f"{bad}:42" in str(caught.value)
    assert caught.value.__notes__ == [f"in {bad}, batch 6"]
    # Far from the end.
    assert int(model.optimizer.iterations) < 40 * len(files)
    lodestar.snapshot.verify(tmp_path / "before")
    train_from_dataset(model, open_dataset(files, SPEC, BATCH), threads=threads)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_error_of_the_callback_ends_all_threads(files, error):
    model = make_model()

    def end(steps, values):
        raise error("of the callback")

    data = open_dataset(files * 40, SPEC, BATCH)
    before = threading.active_count()
    with pytest.raises(error, match="of the callback"):
        train_from_dataset(
            model, data, threads=2, print_period=20, on_period=end
        )
    assert threading.active_count() == before
    assert int(model.optimizer.iterations) == 20


def test_ctrl_c_ends_all_threads_and_leaves_the_last_snapshot(files, tmp_path):
    trainer = f"""
import sys, threading, time
import click_models, lodestar
from lodestar.data import open_dataset

def save(steps, values):
    lodestar.snapshot.save(model, {str(tmp_path / "snapshots")!r})
    print(steps, flush=True)

model = click_models.make_model()
data = open_dataset({files!r} * 10_000, click_models.SPEC, 8)
before = threading.active_count()
try:
    lodestar.paddle.train_from_dataset(
        model, data, threads=2, print_period=50, on_period=save
    )
except KeyboardInterrupt:
    steps = int(model.optimizer.iterations)
    deadline = time.monotonic() + 60
    # A thread that was just starting may end a little later, without a step.
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before
    assert int(model.optimizer.iterations) == steps
    print("ended", steps, flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", trainer],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout.readline() == "50\n"
        process.send_signal(signal.SIGINT)
        lines = process.stdout.read().splitlines()
    assert process.returncode == 0
    ended, steps = lines[-1].split()
    assert ended == "ended"
    saved = [50, *map(int, lines[:-1])]
    folder = tmp_path / "snapshots"
    lodestar.snapshot.verify(folder)
    model = make_model()
    lodestar.snapshot.restore(model, folder)
    restored = int(model.optimizer.iterations)
    # The version that the signal interrupted may be complete without its line.
    assert saved[-1] <= restored <= int(steps) < saved[-1] + 100


def test_a_file_without_a_batch_and_a_repeated_file(files, tmp_path):
    short = write(tmp_path / "short", np.random.default_rng(1), BATCH - 1)
    model = make_model(rate=0.0)
    names = [short, files[0], short, files[1], files[0], short]
    data = open_dataset(names, SPEC, BATCH, drop_remainder=True)
    got = train_from_dataset(model, data, threads=3)
    assert int(model.optimizer.iterations) == 24
    twice = open_dataset([files[0], files[1], files[0]], SPEC, BATCH)
    check_metrics(got, model, twice)
    # With the step known, and without.
    data = open_dataset([short, short], SPEC, BATCH, drop_remainder=True)
    for known in (model, make_model()):
        before = int(known.optimizer.iterations)
        with pytest.raises(ValueError, match="`data` has no batch"):
            train_from_dataset(known, data, threads=2)
        assert int(known.optimizer.iterations) == before


@pytest.mark.parametrize("format", [None, "multislot"])
def test_an_empty_file_is_an_error_that_names_it(files, format, tmp_path):
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(
        (lodestar.data.DataError, tf.errors.InvalidArgumentError),
        match=f"{empty}: the file",
    ):
        data = open_dataset([*files, empty], SPEC, BATCH, format=format)
        train_from_dataset(make_model(), data, threads=2)


def test_a_model_without_tables(files):
    model = make_dense_model("sgd")
    data = open_dataset(files, SPEC, BATCH)
    first = train_from_dataset(model, data, threads=2)
    assert int(model.optimizer.iterations) == 40
    assert train_from_dataset(model, data, threads=2)["loss"] < first["loss"]


def test_a_list_of_datasets(files):
    model = make_model(rate=0.0)
    parts = [
        open_dataset(file, SPEC, BATCH).map(lambda x, y: (x, 1 - y))
        for file in files[:2]
    ]
    got = train_from_dataset(model, parts, threads=2)
    data = open_dataset(files[:2], SPEC, BATCH)
    wanted = model.evaluate(data, return_dict=True, verbose=0)
    np.testing.assert_allclose(
        got["accuracy"], 1 - wanted["accuracy"], rtol=1e-4
    )


def test_a_model_is_freed_with_its_step(files):
    model = make_model()
    train_from_dataset(model, open_dataset(files, SPEC, BATCH), threads=2)
    gone = weakref.ref(model)
    del model
    keras.backend.clear_session()
    gc.collect()
    assert gone() is None


def environment():
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


class OwnStep(keras.Model):
    def train_step(self, data):
        return {}


def compiled(model, **options):
    model.compile("sgd", "mse", **options)
    return model


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"dataset": [1]}, TypeError, "`data` must be paths.*got list"),
        ({"threads": -1}, ValueError, "threads"),
        ({"print_period": 0}, ValueError, "print_period"),
        ({"fetch": ["no"]}, ValueError, "has 'no', which is neither"),
        ({"fetch": "loss"}, ValueError, "`fetch`='loss' must be a list"),
        ({"fetch_info": ["a"]}, ValueError, "a label for each of"),
        ({"model": 3}, TypeError, "`model` must be a keras.Model"),
    ],
)
def test_errors_name_the_cause(files, change, error, message):
    arguments = {
        "model": make_model(),
        "dataset": open_dataset(files, SPEC, BATCH),
        **change,
    }
    with pytest.raises(error, match=message):
        train_from_dataset(**arguments)


def test_models_that_it_does_not_train(files):
    data = open_dataset(files, SPEC, BATCH)
    model = make_model()
    inputs, out = model.input, model.output
    with pytest.raises(ValueError, match="no optimizer. Call model.compile"):
        train_from_dataset(keras.Model(inputs, out), data)
    with pytest.raises(ValueError, match="must not override `train_step`"):
        train_from_dataset(compiled(OwnStep(inputs, out)), data)
    with tf.distribute.OneDeviceStrategy("/CPU:0").scope():
        under = make_model()
    with pytest.raises(ValueError, match="under OneDeviceStrategy"):
        train_from_dataset(under, data)


def test_models_that_one_thread_trains(files):
    data = open_dataset(files, SPEC, BATCH)
    adds = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    for options in ({"optimizer": wrap(adds)}, {"run_eagerly": True}):
        model = make_model(**options)
        with pytest.raises(ValueError, match="Use threads=1"):
            train_from_dataset(model, data, threads=2)
        train_from_dataset(model, data, threads=1)
