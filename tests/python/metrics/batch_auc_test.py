"""Compares BatchAUC with a formula on ranks."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.metrics import BatchAUC


def formula(labels, scores, weights=None):
    """Returns the fraction of pairs in order; ties count one half."""
    labels, scores = np.ravel(labels) > 0.5, np.ravel(scores)
    weights = np.ones(len(labels)) if weights is None else np.ravel(weights)
    pairs = np.outer(weights[labels], weights[~labels])
    ahead = np.sign(scores[labels][:, None] - scores[~labels])
    return (pairs * (ahead + 1) / 2).sum() / pairs.sum()


def batches(count=20, size=64):
    """Returns labels, scores with ties, and weights, some of them 0."""
    rng = np.random.default_rng(3)
    for _ in range(count):
        yield (
            rng.integers(0, 2, [size, 1]),
            rng.integers(-9, 9, [size, 1]).astype(np.float32),
            rng.integers(0, 4, size).astype(np.float32),
        )


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function])
@pytest.mark.parametrize("weighted", [True, False])
def test_it_is_the_mean_of_exact_areas(wrap, weighted):
    metric = BatchAUC()
    update = wrap(
        lambda labels, scores, weights: metric.update_state(
            labels, scores, weights if weighted else None
        )
    )
    areas = []
    for labels, scores, weights in batches():
        update(*map(tf.constant, (labels, scores, weights)))
        areas.append(formula(labels, scores, weights if weighted else None))
        assert float(metric.result()) == pytest.approx(np.mean(areas), rel=1e-6)
    metric.reset_state()
    assert np.isnan(metric.result())


@pytest.mark.parametrize(
    "labels, scores, area",
    [
        ([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], 0.75),
        ([0, 1], [0.5, 0.5], 0.5),
        ([[0], [1], [1]], [[1], [2], [3]], 1.0),
    ],
)
def test_one_batch(labels, scores, area):
    assert float(BatchAUC(dtype="float64")(labels, scores)) == area


def test_it_counts_pairs():
    rng = np.random.default_rng(0)
    y, s = rng.integers(0, 2, 300), rng.integers(0, 20, 300)
    positive, negative = s[y == 1], s[y == 0]
    wins = (positive[:, None] > negative).mean()
    ties = (positive[:, None] == negative).mean()
    found = float(BatchAUC(dtype="float64")(y, s))
    assert found == pytest.approx(wins + ties / 2)


def test_batches_of_any_size_share_a_trace():
    metric = BatchAUC(dtype="float64")
    specs = [tf.TensorSpec([None], t) for t in (tf.int64, tf.float32)]
    update = tf.function(metric.update_state, input_signature=specs)
    areas = []
    for labels, scores, _ in [*batches(3, 5), *batches(3, 1), *batches(2, 0)]:
        update(labels[:, 0], scores[:, 0])
        if 0 < labels.sum() < len(labels):
            areas.append(formula(labels, scores))
    assert metric.result().dtype == tf.float64
    np.testing.assert_allclose(metric.result(), np.mean(areas), rtol=1e-12)
    with pytest.raises(tf.errors.InvalidArgumentError, match="differ in size"):
        update(np.zeros(3, np.int64), np.zeros(2, np.float32))


def test_a_batch_of_one_class_is_omitted():
    metric = BatchAUC()
    for labels, weights in [
        ([1, 1], None),
        ([0, 0], None),
        ([], None),
        ([0, 1], [1.0, 0.0]),
        ([0, 1], [0.0, 1.0]),
    ]:
        metric.update_state(labels, np.ones(len(labels)), weights)
        assert np.isnan(metric.result())
    metric.update_state([0, 1], [0.1, 0.2])
    assert metric.result() == 1.0
    metric.update_state([1, 1], [0.1, 0.2])
    assert metric.result() == 1.0
    metric.update_state([1, 0], [0.5, 0.5])
    assert metric.result() == 0.75


def test_scores_of_any_kind():
    def area(labels, scores, **options):
        metric = BatchAUC()
        metric.update_state(labels, scores, **options)
        return float(metric.result())

    assert area([0, 1, 1], [-np.inf, 3.0, np.inf]) == 1.0
    assert np.isnan(area([0, 1], [np.nan, 1.0]))
    # One float64 ulp apart, and integers.
    assert area([0, 1], np.array([0.1, np.nextafter(0.1, 1)])) == 1.0
    assert area([True, False], [2, 7]) == 0.0
    assert area([[0.0], [1.0]], tf.constant([[1], [2]], tf.float16)) == 1.0
    assert area([0, 1, 0], [1, 2, 3], sample_weight=[[3], [1], [1]]) == 0.75
    assert area([[0, 1], [1, 0]], [[1, 2], [3, 4]], sample_weight=[1, 0]) == 1.0
    with pytest.raises(ValueError, match="has 2 labels, but .* 3 scores"):
        area([0, 1], [1.0, 2.0, 3.0])


def test_a_model_trains_with_it_and_keeps_it(tmp_path):
    rng = np.random.default_rng(1)
    x = rng.normal(size=[256, 4]).astype(np.float32)
    y = (x[:, :1] + x[:, 1:2] > 0).astype(np.float32)
    # With some weights two scores are so close that rounding swaps them.
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")]
    )
    model.compile(
        "adam",
        "binary_crossentropy",
        metrics=[BatchAUC()],
        weighted_metrics=[BatchAUC(name="weighted")],
    )
    history = model.fit(
        x, y, 32, sample_weight=np.ones(256), epochs=3, verbose=0
    ).history
    np.testing.assert_allclose(history["batch_auc"], history["weighted"])
    assert 0.0 <= history["batch_auc"][0] <= 1.0
    scores = model.predict(x, verbose=0)
    want = np.mean(
        [formula(y[a : a + 32], scores[a : a + 32]) for a in range(0, 256, 32)]
    )
    logs = model.evaluate(x, y, 32, return_dict=True, verbose=0)
    assert logs["batch_auc"] == pytest.approx(want, abs=1e-6)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.evaluate(x, y, 32, return_dict=True, verbose=0) == logs


def test_its_config():
    metric = lodestar.metrics.BatchAUC(name="auc", dtype="float64")
    again = keras.metrics.deserialize(keras.metrics.serialize(metric))
    assert type(again) is BatchAUC
    assert again.get_config() == metric.get_config()
    assert (again.name, again.dtype) == ("auc", "float64")


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function])
@pytest.mark.parametrize("weighted", [True, False])
def test_recent_batches_are_pooled(wrap, weighted):
    metric = BatchAUC(dtype="float64", slide_steps=3, num_thresholds=100)
    specs = [tf.TensorSpec([None], "float32")] * 3
    update = metric.update_state
    if wrap is tf.function:
        update = tf.function(update, input_signature=specs)
    rng = np.random.default_rng(7)
    seen = []
    for size in (5, 40, 1, 0, 33, 64, 2):
        labels = rng.integers(0, 2, size).astype(np.float32)
        # In the middle of a bucket, except 0 and 1.
        scores = rng.choice([0, 1, *(np.arange(100) + 0.5) / 100], size)
        scores = scores.astype(np.float32)
        weights = rng.integers(0, 4, size).astype(np.float32)
        if not weighted:
            weights[:] = 1
        update(labels, scores, weights)
        seen.append((labels, np.floor(scores * 100), weights))
        recent = [np.concatenate(column) for column in zip(*seen[-3:])]
        with np.errstate(invalid="ignore"):  # without a pair
            wanted = formula(*recent)
        assert float(metric.result()) == pytest.approx(wanted, nan_ok=True)
    metric.reset_state()
    assert np.isnan(metric.result())


def test_scores_of_several_batches_are_compared():
    metric = BatchAUC(dtype="float64", slide_steps=2)
    metric.update_state([1, 1], [0.9, 0.2])
    assert np.isnan(metric.result())  # no pair yet
    metric.update_state([0, 0], [0.1, 0.5])
    assert float(metric.result()) == 0.75
    metric.update_state([1], [0.05])  # the first batch leaves
    assert float(metric.result()) == 0.0


@pytest.mark.parametrize("options", [{}, {"slide_steps": 1}])
def test_from_softmax(options):
    metric = BatchAUC(dtype="float64", from_softmax=True, **options)
    scores = np.array([0.1, 0.4, 0.35, 0.8])
    pairs = np.stack([1 - scores, scores], -1)
    assert float(metric([[0], [0], [1], [1]], pairs)) == 0.75
    with pytest.raises(
        ValueError, match=r"must have shape \[..., 2\] .* \(4,\)"
    ):
        metric.update_state([0, 0, 1, 1], scores)
    update = tf.function(
        metric.update_state,
        input_signature=[tf.TensorSpec([None]), tf.TensorSpec(None)],
    )
    update(tf.constant([0.0, 1]), tf.constant(pairs[:2], tf.float32))
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have shape"):
        update(tf.constant([0.0]), tf.ones([1, 3]))


def test_scores_out_of_range():
    metric = BatchAUC(slide_steps=2)
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"(?s)must be in \[0, 1\]"
        ):
            metric.update_state([0, 1], [0.5, wrong])
    assert float(metric([0, 1], [0.5, 0.6])) == 1.0


def test_config_of_all_options():
    metric = BatchAUC(slide_steps=3, num_thresholds=9, from_softmax=True)
    again = keras.metrics.deserialize(keras.metrics.serialize(metric))
    assert again.get_config() == metric.get_config()
    assert again.variables[0].shape == (3, 2, 10)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"slide_steps": 0}, "`slide_steps` must be an integer of at least 1"),
        ({"num_thresholds": 0}, "`num_thresholds` must be an integer"),
        ({"from_softmax": 1}, "`from_softmax`=1 is not a Python bool"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        BatchAUC(**options)


def test_a_model_with_two_outputs_per_sample():
    x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2, activation="softmax")]
    )
    model.compile(
        keras.optimizers.SGD(0.5),
        "sparse_categorical_crossentropy",
        metrics=[BatchAUC(slide_steps=4, from_softmax=True)],
    )
    history = model.fit(x, y, batch_size=8, epochs=5, verbose=0).history
    assert history["batch_auc"][-1] > 0.9
