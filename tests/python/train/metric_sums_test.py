"""Tests of metrics that threads and workers can or cannot add up."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.train import fit, metric_sums

LABELS = np.eye(4, dtype=np.float32)
SCORES = np.random.default_rng(1).dirichlet(np.ones(4), 4).astype(np.float32)
OPTIONS = {
    "IoU": {"num_classes": 2, "target_class_ids": [0]},
    "MeanIoU": {"num_classes": 2},
    "MeanMetricWrapper": {"fn": keras.losses.mean_squared_error},
    "MeanRelativeError": {"normalizer": [1.0] * 4},
    "OneHotIoU": {"num_classes": 4, "target_class_ids": [0]},
    "OneHotMeanIoU": {"num_classes": 4},
    "PrecisionAtRecall": {"recall": 0.5},
    "RecallAtPrecision": {"precision": 0.5},
    "SensitivityAtSpecificity": {"specificity": 0.5},
    "SpecificityAtSensitivity": {"sensitivity": 0.5},
}
CLASSES = {
    name: value
    for name, value in vars(keras.metrics).items()
    if inspect.isclass(value) and name != "Metric"
}


class Custom(keras.metrics.Metric):
    """A metric that updates its only variable by a function."""

    def __init__(self, update, name="custom", **options):
        super().__init__(name=name)
        self._update = update
        self.value = self.add_variable((), "zeros", name="value", **options)

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(self._update(self.value.value, y_pred))

    def result(self):
        return self.value.value


def largest(value, y_pred):
    return tf.maximum(value, tf.reduce_max(y_pred))


SUMS = {
    "added": lambda value, x: value + tf.reduce_sum(x),
    "added to": lambda value, x: tf.add_n([tf.reduce_sum(x), value, 1.0]),
    "cast": lambda value, x: tf.cast(
        tf.cast(value, tf.float64) - tf.cast(tf.reduce_sum(x), tf.float64),
        tf.float32,
    ),
    "chosen": lambda value, x: tf.where(
        tf.reduce_any(x > 1), value, value + tf.reduce_sum(x)
    ),
    "unchanged": lambda value, x: value,
}
OTHERS = {
    "largest": largest,
    "average": lambda value, x: 0.9 * value + 0.1 * tf.reduce_mean(x),
    "doubled": lambda value, x: value + value,
    "subtracted": lambda value, x: tf.reduce_sum(x) - value,
    "last": lambda value, x: tf.reduce_mean(x),
    "depends": lambda value, x: value + tf.reduce_sum(x) / (1.0 + value),
    "chosen by itself": lambda value, x: tf.where(value > 1, value, value + 1),
}


def check(metric, labels=LABELS, scores=SCORES):
    metric.update_state(labels, scores)  # creates its variables

    def update(state, batch):
        values = zip(metric.variables, state, strict=True)
        with keras.StatelessScope(list(values)) as scope:
            metric.update_state(*batch)
        return [
            before if (after := scope.get_current_value(v)) is None else after
            for v, before in zip(metric.variables, state, strict=True)
        ]

    batch = [tf.TensorSpec(x.shape, x.dtype) for x in (labels, scores)]
    metric_sums.check([metric], metric.variables, update, batch, "threads")


@pytest.mark.parametrize("name", CLASSES)
def test_metrics_of_keras_are_sums(name):
    labels, scores = LABELS, SCORES
    if name.startswith("Sparse"):
        labels = np.arange(4)
    elif name in ("IoU", "MeanIoU", "BinaryIoU"):
        labels = scores = np.array([0, 1, 1, 0])
    check(CLASSES[name](**OPTIONS.get(name, {})), labels, scores)


def test_metrics_of_lodestar():
    labels, scores = LABELS[0], SCORES[0]
    check(lodestar.metrics.BatchAUC(), labels, scores)
    with pytest.raises(ValueError, match="'recent' .*BatchAUC.*recent/recent'"):
        recent = lodestar.metrics.BatchAUC(slide_steps=3, name="recent")
        check(recent, labels, scores)


@pytest.mark.parametrize("update", SUMS.values(), ids=SUMS)
def test_sums(update):
    check(Custom(update))
    check(Custom(update, aggregation="none"))
    with pytest.raises(ValueError, match="not a sum over batches"):
        check(Custom(update, aggregation="mean"))


@pytest.mark.parametrize("update", OTHERS.values(), ids=OTHERS)
def test_others_are_refused(update):
    with pytest.raises(
        ValueError,
        match=r"The metric 'custom' \(Custom\) cannot be used with threads, .*"
        "variable 'custom/value' is not a sum over batches. Use a metric",
    ):
        check(Custom(update))


def test_threads():
    def make(metrics):
        ids = keras.Input((2,), dtype="int64")
        rows = lodestar.layers.DynamicEmbedding(4, combiner="sum")(ids)
        model = keras.Model(ids, keras.layers.Dense(1)(rows))
        model.compile(lodestar.optimizers.SGD(0.1), "mse", metrics=metrics)
        return model

    x, y = np.arange(16).reshape(8, 2), np.ones((8, 1), np.float32)
    data = [tf.data.Dataset.from_tensor_slices((x, y)).batch(4)] * 2
    count = Custom(lambda value, y: value + 1.0, "count")
    logs = fit(make([count]), data, threads=2, verbose=0).history
    assert logs["count"] == [4]
    model = make([count, "mae", Custom(largest, "largest")])
    logs = fit(model, data, threads=1, verbose=0).history
    assert logs["count"] == [4]
    with pytest.raises(
        ValueError, match=r"'largest' \(Custom\) .* with several threads"
    ):
        fit(model, data, threads=2, verbose=0)
