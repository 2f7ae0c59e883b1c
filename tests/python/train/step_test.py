"""Compares the training step of threads with Keras's."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from click_models import (
    BATCH,
    ROWS,
    SPEC,
    make_dense_model,
    make_model,
    state,
    wrap,
    write_files,
)

import lodestar
from lodestar.data import Column, Schema, open_dataset
from lodestar.paddle import train_from_dataset


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"), 3)


def does_what_fit_does(make, files, **options):
    """Trains two models equally with both steps; returns the logs of both."""
    data = open_dataset(files, SPEC, BATCH)
    fitted, ours = make(), make()
    logs = fitted.fit(data, epochs=1, verbose=0).history
    got = train_from_dataset(ours, data, threads=1, **options)
    for a, b in zip(state(fitted), state(ours), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert set(got) == set(logs)
    for name, values in logs.items():
        np.testing.assert_allclose(
            got[name], values[0], rtol=1e-5, err_msg=name
        )
    return ours


@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_one_thread_equals_fit(files, optimizer, caplog):
    logger = tf.get_logger()
    logger.addHandler(caplog.handler)
    try:
        ours = does_what_fit_does(lambda: make_model(optimizer), files)
    finally:
        logger.removeHandler(caplog.handler)
    assert int(ours.optimizer.iterations) == len(files) * ROWS // BATCH
    assert not [text for text in caplog.messages if "AutoGraph" in text]


class SquareLoss(keras.layers.Layer):
    def call(self, x):
        self.add_loss(0.1 * keras.ops.mean(keras.ops.square(x)))
        return x


def test_losses_of_layers(files):
    does_what_fit_does(
        lambda: make_model(
            layers=[
                keras.layers.Dense(
                    6,
                    kernel_regularizer=keras.regularizers.L2(0.03),
                    activity_regularizer=keras.regularizers.L1(0.02),
                ),
                SquareLoss(),
            ]
        ),
        files,
        fetch=["loss", "hidden"],
    )


class CallCount(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.calls = keras.metrics.Sum(name="calls")

    def call(self, x):
        self.calls.update_state(1.0)
        return x


def test_a_metric_of_a_layer_restarts_with_each_epoch(files):
    model = make_model(layers=[CallCount()])
    for _ in range(2):
        data = open_dataset(files, SPEC, BATCH)
        got = train_from_dataset(model, data, threads=1)
        assert got["calls"] == len(files) * ROWS // BATCH


def test_layers_that_keep_a_state(files):
    does_what_fit_does(
        lambda: make_model(
            layers=[keras.layers.BatchNormalization(), keras.layers.Dropout(0)]
        ),
        files,
    )


class OwnModel(keras.Model):
    """A model without `training`, with a mean loss and its own metric."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.level = self.add_weight(
            shape=(), initializer="ones", trainable=False, name="level"
        )
        self.greatest = Greatest()

    def call(self, inputs):
        return super().call(inputs)

    def compute_loss(self, x, y, y_pred, sample_weight=None):
        loss = super().compute_loss(x, y, y_pred, sample_weight)
        self.level.assign(0.9 * self.level + 0.1 * loss)
        self.greatest.update_state(loss)
        return loss / keras.ops.stop_gradient(self.level.value)


class Greatest(keras.metrics.Metric):
    """A metric that is not a sum."""

    def __init__(self):
        super().__init__(name="greatest")
        self.value = self.add_weight(
            shape=(), initializer=keras.initializers.Constant(-np.inf)
        )

    def update_state(self, value, sample_weight=None):
        self.value.assign(keras.ops.maximum(self.value, value))

    def result(self):
        return keras.ops.convert_to_tensor(self.value)

    def reset_state(self):
        self.value.assign(-np.inf)


def test_a_loss_of_the_models_own(files):
    ours = does_what_fit_does(lambda: make_model(model=OwnModel), files)
    assert float(ours.level) != 1


class OwnMetrics(keras.Model):
    """A model that overrides `metrics`."""

    @property
    def metrics(self):
        return [m for m in super().metrics if m.name != "loss"]


def test_a_model_that_does_not_show_its_loss(files):
    does_what_fit_does(lambda: make_model(model=OwnMetrics), files)


def test_run_eagerly(files):
    does_what_fit_does(lambda: make_model(run_eagerly=True), files[:1])


def test_a_model_without_tables_counts_its_steps(files):
    ours = does_what_fit_does(lambda: make_dense_model("adam"), files)
    # The three partial batches at the ends of files are no steps.
    assert int(ours.optimizer.iterations) == len(files) * ROWS // BATCH


def test_averages_replace_weights_at_the_end(files):
    does_what_fit_does(
        lambda: make_dense_model(
            keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5)
        ),
        files,
    )


def test_a_scaled_loss(files):
    does_what_fit_does(
        lambda: make_model(
            optimizer=lodestar.optimizers.LossScaleOptimizer(
                wrap(), initial_scale=8.0
            )
        ),
        files,
    )


def test_a_loss_for_each_output(files, tmp_path):
    spec = Schema(
        [Column.label("one"), Column.label("two")]
        + [s for s in SPEC if s.kind != "label"]
    )
    path = tmp_path / "two.txt"
    with open(files[0]) as text:
        path.write_text("".join(f"1 {line.split()[1]} {line}" for line in text))
    data = open_dataset([path, path], spec, BATCH)
    model = make_model()
    two = keras.layers.Dense(1)(model.get_layer("hidden").output)
    model = keras.Model(model.input, {"one": model.output, "two": two})
    # Keras counts these two per batch, and counts an extra empty batch.
    losses = {
        "one": keras.losses.BinaryCrossentropy(),
        "two": keras.losses.MeanSquaredError(),
    }
    model.compile(wrap(rate=0.0), losses, metrics={"one": ["accuracy"]})
    for _ in range(2):
        got = train_from_dataset(model, data, threads=2)
        wanted = model.evaluate(data, return_dict=True, verbose=0)
        assert set(got) == set(wanted)
        for name in ("loss", "one_accuracy"):
            np.testing.assert_allclose(got[name], wanted[name], rtol=1e-4)
        for name, loss in losses.items():
            means = [loss(y[name], model(x)[name]) for x, y in data]
            np.testing.assert_allclose(
                got[f"{name}_loss"], np.mean(means), rtol=1e-4
            )


@pytest.mark.parametrize("name", ["hidden", "rows", "no"])
def test_fetchable_tensors_of_a_model_of_one_input(name, tmp_path):
    spec = Schema([Column.label("y"), Column.sparse("a")])
    path = tmp_path / "part"
    path.write_text("1 1 2 3 4\n1 0 1 5\n")
    ids = keras.Input((None,), dtype="int64", ragged=True, name="a")
    feature = lodestar.Feature(output_dim=4, combiner="sum")
    rows = lodestar.layers.EmbeddingCollection(
        {"a": feature, "b": feature}, name="rows"
    )({"a": ids, "b": ids})
    hidden = keras.layers.Dense(2, name="hidden")(rows["a"] + rows["b"])
    model = keras.Model(ids, keras.layers.Dense(1)(hidden))
    model.compile(wrap(), "mse")
    got = []

    def train():
        train_from_dataset(
            model,
            open_dataset(path, spec, 1),
            fetch=[name],
            print_period=1,
            on_period=lambda steps, values: got.append(values),
        )

    if name == "hidden":
        train()
        assert len(got) == 2 and set(got[0]) == {"hidden"}
    else:
        wanted = {"rows": "has several", "no": "neither one of the metrics"}
        with pytest.raises(ValueError, match=wanted[name]):
            train()


def test_an_error_of_a_step_is_not_the_end_of_a_file(files):
    class Dequeue(keras.layers.Layer):
        def call(self, x, training=None):
            return x + queue.dequeue() if training else x

    queue = tf.queue.FIFOQueue(1, tf.float32, [()])
    queue.close()
    model = make_model(layers=[Dequeue()])
    with pytest.raises(tf.errors.OutOfRangeError, match="closed"):
        train_from_dataset(model, open_dataset(files, SPEC, BATCH), threads=2)
