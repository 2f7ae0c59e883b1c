"""Tests of the signature that returns metrics."""

import concurrent.futures
import json

import keras
import numpy as np
import plain_served
import pytest
import tensorflow as tf

import lodestar
from lodestar.export import signatures

AUC = keras.metrics.AUC
FEATURES = {
    "ids": tf.ragged.constant([[1, 2], [3], [], [1, 3, 9]], tf.int64),
    "price": tf.constant([[1.0, 0.0], [0.5, 1.0], [0.0, 0.0], [-1.0, 2.0]]),
}
CLICKS = np.array([[1.0], [0.0], [1.0], [0.0]], np.float32)
RAGGED = {
    "ids_values": FEATURES["ids"].values,
    "ids_row_splits": FEATURES["ids"].row_splits,
    "price": FEATURES["price"],
}
SIGNATURES = [
    ("ragged", {}),
    ("values_and_lengths", {}),
    ("padded", {"padding_id": 0}),
    ("examples", {}),
]


def trained(**units):
    """Returns a model with an output of each number of units; 1 is a sigmoid."""
    inputs = {
        "ids": keras.Input((None,), dtype="int64", ragged=True, name="ids"),
        "price": keras.Input((2,), name="price"),
    }
    rows = lodestar.layers.DynamicEmbedding(
        4, combiner="mean", default_row="initial", name="user"
    )(inputs["ids"])
    x = keras.layers.Concatenate()([rows, inputs["price"]])
    outputs = {
        name: keras.layers.Dense(n, "sigmoid" if n == 1 else "softmax")(x)
        for name, n in units.items()
    }
    model = keras.Model(inputs, outputs)
    model.compile(
        lodestar.optimizers.Adagrad(), {name: "mse" for name in units}
    )
    labels = {name: np.ones((4, n)) / n for name, n in units.items()}
    model.fit(FEATURES, labels, verbose=0)
    return model


@pytest.fixture(scope="module")
def model():
    return trained(score=1)


@pytest.fixture(scope="module")
def two():
    return trained(click=1, kind=3)


def evaluate_of(model, path, signature="ragged", export=None, **options):
    """Exports a model; returns its signature `evaluate`."""
    (export or lodestar.export.save)(model, path, signature, **options)
    return Evaluate(path)


class Evaluate:
    """The signature of a loaded folder, which must stay alive."""

    def __init__(self, path):
        self.loaded = tf.saved_model.load(str(path))
        self._function = self.loaded.signatures["evaluate"]
        self.specs = self._function.structured_input_signature[1]

    def __call__(self, **tensors):
        return self._function(**tensors)


def numbers(results):
    return {name: value.numpy() for name, value in results.items()}


def expected(metric, labels, scores):
    """Returns a metric of one batch, with the metric's own state."""
    metric.reset_state()
    metric.update_state(labels, scores)
    result = metric.result().numpy()
    metric.reset_state()
    return result


def assert_close(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


def arguments(model, signature, padding_id=None):
    """Returns the arguments of `serving_default` for a batch."""
    specs = signatures.model_inputs(model).specs
    return signatures.plain_tensors(specs, signature, padding_id).flatten(
        FEATURES
    )


@pytest.mark.parametrize(
    "export, signature, options",
    [
        (lodestar.export.save, *SIGNATURES[0]),
        (lodestar.export.save_plain, *SIGNATURES[1]),
        (lodestar.export.save, *SIGNATURES[2]),
        (lodestar.export.save_plain, *SIGNATURES[3]),
    ],
)
def test_metrics_of_a_batch(export, signature, options, model, tmp_path):
    metrics = {
        "auc": AUC(),
        "loss": keras.metrics.BinaryCrossentropy(),
        "error": keras.metrics.MeanSquaredError(),
        "batch_auc": lodestar.metrics.BatchAUC(),
        "recent_auc": lodestar.metrics.BatchAUC(slide_steps=2),
    }
    evaluate = evaluate_of(
        model, tmp_path, signature, export, metrics=metrics, **options
    )
    given = arguments(model, signature, **options)
    specs = evaluate.specs
    assert set(specs) == {*given, "labels"}
    assert specs["labels"].dtype == tf.float32
    assert specs["labels"].shape.as_list() == [None, 1]
    scores = model(FEATURES)["score"]
    wanted = {
        name: expected(metric, CLICKS, scores)
        for name, metric in metrics.items()
    }
    metrics["auc"].update_state(CLICKS, scores)
    before = [v.numpy() for v in metrics["auc"].variables]
    for _ in range(2):  # A call does not count in the next one.
        found = numbers(evaluate(**given, labels=tf.constant(CLICKS)))
        assert_close(found, wanted)
        assert {value.shape for value in found.values()} == {()}
    # Nor in the given metric, whose state the export has not changed.
    for variable, value in zip(metrics["auc"].variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    # The scores are the same as without metrics.
    lodestar.export.verify(model, tmp_path, FEATURES)


def test_concurrent_calls_do_not_mix(model, tmp_path):
    evaluate = evaluate_of(
        model, tmp_path, metrics={"error": keras.metrics.MeanAbsoluteError()}
    )
    wanted = []
    # Scores are between 0 and 1.
    labels = [
        tf.constant(np.full((4, 1), i % 2 * 9, np.float32)) for i in range(64)
    ]
    for y in labels:
        wanted.append(float(evaluate(**RAGGED, labels=y)["error"]))
    assert len(set(wanted)) == 2
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        found = threads.map(
            lambda y: float(evaluate(**RAGGED, labels=y)["error"]), labels
        )
        assert list(found) == wanted


def test_several_outputs(two, tmp_path):
    metrics = {
        "click": {"auc": AUC(), "loss": keras.metrics.BinaryCrossentropy()},
        # Metrics that are built by their first batch, and return a vector.
        "kind": {"f1": keras.metrics.F1Score(), "r2": keras.metrics.R2Score()},
    }
    evaluate = evaluate_of(two, tmp_path, metrics=metrics)
    kinds = np.eye(3, dtype=np.float32)[[0, 2, 1, 1]]
    found = numbers(
        evaluate(
            **RAGGED,
            labels_click=tf.constant(CLICKS),
            labels_kind=tf.constant(kinds),
        )
    )
    scores = two(FEATURES)
    assert_close(
        found,
        {
            f"{output}_{name}": expected(
                metric, {"click": CLICKS, "kind": kinds}[output], scores[output]
            )
            for output, of_output in metrics.items()
            for name, metric in of_output.items()
        },
    )
    assert found["kind_f1"].shape == (3,)
    document = json.loads((tmp_path / "features.json").read_text())
    described = document["signatures"]["evaluate"]
    assert described["arguments"] == [
        *document["signatures"]["serving_default"]["arguments"],
        {
            "name": "labels_click",
            "dtype": "float32",
            "shape": [None, 1],
            "output": "click",
        },
        {
            "name": "labels_kind",
            "dtype": "float32",
            "shape": [None, 3],
            "output": "kind",
        },
    ]
    assert described["outputs"] == [
        {"name": name, "dtype": "float32", "shape": [3] if "f1" in name else []}
        for name in ("click_auc", "click_loss", "kind_f1", "kind_r2")
    ]


def test_class_numbers_and_types_of_labels_by_output(two, tmp_path):
    top = keras.metrics.SparseTopKCategoricalAccuracy(2)
    evaluate = evaluate_of(two, tmp_path, metrics={"kind": {"top_2": top}})
    labels = evaluate.specs["labels_kind"]
    assert (labels.dtype, labels.shape.as_list()) == (tf.int64, [None])
    kinds = tf.constant([0, 2, 1, 1], tf.int64)
    found = numbers(evaluate(**RAGGED, labels_kind=kinds))
    wanted = expected(top, kinds, two(FEATURES)["kind"])
    assert_close(found, {"kind_top_2": wanted})
    evaluate = evaluate_of(
        two,
        tmp_path,
        metrics={"click": {"auc": AUC()}, "kind": {"auc": AUC()}},
        labels={"click": tf.TensorSpec([None], tf.int64)},
    )
    assert evaluate.specs["labels_click"].dtype == tf.int64
    assert evaluate.specs["labels_kind"].dtype == tf.float32


@pytest.mark.parametrize(
    "spec, labels",
    [
        (tf.TensorSpec([None], tf.int32), CLICKS[:, 0].astype(np.int32)),
        (tf.TensorSpec([None, 1], tf.bool), CLICKS > 0),
        (tf.TensorSpec([4, 1], tf.float64), CLICKS.astype(np.float64)),
    ],
    ids=str,
)
def test_types_of_labels(spec, labels, model, tmp_path):
    auc = AUC()
    evaluate = evaluate_of(model, tmp_path, metrics={"auc": auc}, labels=spec)
    found = numbers(evaluate(**RAGGED, labels=tf.constant(labels)))
    wanted = expected(auc, CLICKS, model(FEATURES)["score"])
    assert_close(found, {"auc": wanted})


def test_an_input_with_the_name_of_the_labels(tmp_path):
    labels = keras.Input((2,), name="labels")
    model = keras.Model(labels, keras.layers.Dense(1)(labels))
    evaluate = evaluate_of(
        model, tmp_path, metrics={"error": keras.metrics.MeanSquaredError()}
    )
    found = evaluate(labels=tf.ones([3, 2]), labels_=tf.zeros([3, 1]))
    wanted = np.mean(np.square(model(np.ones((3, 2)))))
    assert_close(numbers(found), {"error": wanted})


@pytest.mark.parametrize(
    "export", [lodestar.export.save, lodestar.export.save_plain]
)
def test_string_requests(export, tmp_path):
    columns = [
        lodestar.data.Column.label("click"),
        lodestar.data.Column.sparse("word", encoding="hash"),
    ]
    inputs = lodestar.data.Schema(columns).inputs()
    rows = lodestar.layers.DynamicEmbedding(2, combiner="sum")(inputs["word"])
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(rows))
    model.layers[1].table.lookup(
        lodestar.hash_ids(["red", "green"], column="word"), training=True
    )
    error = keras.metrics.MeanSquaredError()
    evaluate = evaluate_of(
        model,
        tmp_path,
        "padded",
        export,
        padding_id="",
        metrics={"error": error},
    )
    words = tf.constant([["red", "green"], ["red", ""], ["", ""], ["?", ""]])
    found = numbers(evaluate(word=words, labels=tf.constant(CLICKS)))
    ids = lodestar.hash_ids(["red", "green", "red", "?"], column="word")
    ids = tf.RaggedTensor.from_row_lengths(ids, [2, 1, 0, 1])
    wanted = expected(error, CLICKS, model({"word": ids}))
    assert_close(found, {"error": wanted})


def test_a_model_with_given_inputs(tmp_path):
    class Scorer(keras.Model):
        def call(self, x):
            return keras.ops.sum(x["a"], axis=1)

    error = keras.metrics.MeanSquaredError()
    evaluate = evaluate_of(
        Scorer(),
        tmp_path,
        inputs={
            "a": tf.TensorSpec([None, 2]),
            "b": tf.TensorSpec([None], tf.int64),
        },
        metrics={"error": error},
    )
    found = evaluate(
        a=tf.constant([[1.0, 2.0], [3.0, 4.0]]),
        b=tf.constant([1, 2], tf.int64),
        labels=tf.constant([3.0, 6.0]),
    )
    assert numbers(found) == {"error": 0.5}


def test_sizes_of_batches_and_labels(model, tmp_path):
    metrics = {"auc": AUC(), "error": keras.metrics.MeanSquaredError()}
    evaluate = evaluate_of(model, tmp_path, metrics=metrics)
    empty = {name: x[:0] for name, x in RAGGED.items()}
    empty["ids_row_splits"] = tf.zeros([1], tf.int64)
    found = evaluate(**empty, labels=tf.zeros([0, 1]))
    assert numbers(found) == {"auc": 0, "error": 0}
    for count in (1, 3):  # One row would be compared with all scores.
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match="`labels` must have a row for each example",
        ):
            evaluate(**RAGGED, labels=tf.zeros([count, 1]))


@pytest.mark.parametrize("signature, options", SIGNATURES[2:])
def test_an_export_that_follows_snapshots(signature, options, tmp_path):
    model = trained(score=1)
    error = keras.metrics.MeanSquaredError()
    evaluate = evaluate_of(
        model,
        tmp_path / "s",
        signature,
        metrics={"error": error},
        follow=tmp_path / "snapshots",
        poll_seconds=None,
        **options,
    )
    given = arguments(model, signature, **options)
    refresh = evaluate.loaded.signatures["refresh"]
    last = None
    for version in range(1, 4):
        model.fit(FEATURES, {"score": CLICKS}, verbose=0)
        lodestar.snapshot.save(model, tmp_path / "snapshots", delta=version > 1)
        assert int(refresh()["version"]) == version
        found = numbers(evaluate(**given, labels=tf.constant(CLICKS)))
        wanted = expected(error, CLICKS, model(FEATURES)["score"])
        assert_close(found, {"error": wanted})
        assert wanted != last
        last = wanted


def test_a_live_model_evaluates_each_version(tmp_path):
    model = trained(score=1)
    error = keras.metrics.MeanSquaredError()
    lodestar.export.save(model, tmp_path / "s", metrics={"error": error})
    live = lodestar.serving.LiveModel(
        tmp_path / "s", tmp_path / "snapshots", poll_seconds=None
    )
    for delta in (False, True):
        model.fit(FEATURES, {"score": CLICKS}, verbose=0)
        lodestar.snapshot.save(model, tmp_path / "snapshots", delta=delta)
        assert live.poll()
        found = live.signatures["evaluate"](**RAGGED, labels=CLICKS)
        wanted = expected(error, CLICKS, model(FEATURES)["score"])
        assert_close(numbers(found), {"error": wanted})


def test_other_processes_and_loaders(model, tmp_path, monkeypatch):
    auc = AUC()
    lodestar.export.save_plain(model, tmp_path / "s", metrics={"auc": auc})
    plain_served.load(tmp_path / "s")
    child = plain_served._CHILD.replace("serving_default", "evaluate")
    monkeypatch.setattr(plain_served, "_CHILD", child)
    found = plain_served.serve_elsewhere(
        str(tmp_path / "s"), {**RAGGED, "labels": CLICKS}, tmp_path
    )
    wanted = expected(auc, CLICKS, model(FEATURES)["score"])
    assert found == {"auc": (pytest.approx(wanted), pytest.approx(wanted))}


def test_warm_up_requests(model, tmp_path):
    lodestar.export.save(model, tmp_path, metrics={"auc": AUC()})
    lodestar.serving.write_warm_up(
        tmp_path, [{**RAGGED, "labels": CLICKS}], signature="evaluate"
    )
    with pytest.raises(ValueError, match="'labels'"):
        lodestar.serving.write_warm_up(tmp_path, [RAGGED], signature="evaluate")


class Wrong(keras.metrics.Metric):
    """A metric whose methods the tests replace."""

    def __init__(self, update=None, result=None):
        super().__init__(name="wrong")
        self.kept = self.add_variable((), "ones", name="kept")
        self._update, self._result = update, result

    def update_state(self, y_true, y_pred, sample_weight=None):
        if self._update is not None:
            self._update()
        self.kept.assign_add(keras.ops.sum(y_true))

    def result(self):
        return self.kept.value if self._result is None else self._result

    def reset_state(self):
        self.kept.assign(0.0)


class Kept(Wrong):
    """A metric whose state is never reset."""

    def reset_state(self):
        pass


OUTSIDE = tf.Variable(0.0)
SUM = keras.metrics.MeanSquaredError()


@pytest.mark.parametrize(
    "metrics, message",
    [
        ({}, "`metrics` must map names to metrics.*got {}"),
        ([AUC()], "`metrics` must map names to metrics"),
        (AUC(), "`metrics` must map names to metrics"),
        ({"auc": "AUC"}, "'auc' must be a keras.metrics.Metric, got 'AUC'"),
        ({"auc": AUC}, "'auc' must be a keras.metrics.Metric, got <class"),
        ({"a b": SUM}, "ASCII letters.*got 'a b'"),
        ({"1a": SUM}, "ASCII letters.*got '1a'"),
        ({"é": SUM}, "ASCII letters.*got 'é'"),
        ({"": SUM}, "ASCII letters.*got ''"),
        ({7: SUM}, "ASCII letters.*got 7"),
        ({"mean": keras.metrics.Mean()}, "'mean', a Mean, does not compare"),
        ({"sum": keras.metrics.Sum()}, "'sum', a Sum, does not compare"),
        ({"kind": {"sum": SUM}}, r"'kind', but the model has \['score'\]"),
        ({"score": {}}, r"`metrics\['score'\]` must not be empty"),
        (
            {"score": {"sum": SUM}, "sum": SUM},
            r"must map each of the outputs \['score'\] that has metrics",
        ),
        ({"kept": Kept()}, "'kept', a Kept, has state that its `reset_state`"),
        (
            {"outside": Wrong(lambda: OUTSIDE.assign_add(1.0))},
            "'outside', a Wrong, has state",
        ),
        ({"text": Wrong(result="1")}, "'text' must return a tensor, got a str"),
        (
            {"two": Wrong(result={"a": 1, "b": 2})},
            "'two' must return a tensor, got a TrackedDict",
        ),
        (
            {"classes": keras.metrics.TopKCategoricalAccuracy(k="x")},
            "'classes' does not accept the output 'score', float32 .*labels",
        ),
    ],
    ids=str,
)
def test_refused_metrics(metrics, message, model, tmp_path):
    for export in (lodestar.export.save, lodestar.export.save_plain):
        with pytest.raises(ValueError, match=message):
            export(model, tmp_path / "s", metrics=metrics)
    assert not (tmp_path / "s").exists()
    assert OUTSIDE.numpy() == 0


@pytest.mark.parametrize(
    "metrics, message",
    [
        (
            {"auc": AUC()},
            r"each of the outputs \['click', 'kind'\].*'click': {'auc'",
        ),
        (
            {"click": {"auc": AUC()}, "kind": AUC()},
            r"each of the outputs \['click', 'kind'\]",
        ),
    ],
)
def test_refused_metrics_of_several_outputs(metrics, message, two, tmp_path):
    with pytest.raises(ValueError, match=message):
        lodestar.export.save(two, tmp_path / "s", metrics=metrics)


def test_metrics_with_equal_names(tmp_path):
    x = keras.Input((2,), name="x")
    dense = keras.layers.Dense(1)(x)
    model = keras.Model(x, {"a": dense, "a_b": dense})
    with pytest.raises(ValueError, match="two metrics 'a_b_c'"):
        lodestar.export.save(
            model,
            tmp_path / "s",
            metrics={"a": {"b_c": SUM}, "a_b": {"c": SUM}},
        )


FLAT, NESTED = {"auc": AUC()}, {"score": {"auc": AUC()}}
VECTOR = tf.TensorSpec([None])


@pytest.mark.parametrize(
    "metrics, labels, message",
    [
        (None, VECTOR, "`labels` requires `metrics`"),
        (FLAT, "float32", "of 'score' must be a tf.TensorSpec .*got 'float32'"),
        (FLAT, {"score": VECTOR}, "of 'score' must be a tf.TensorSpec"),
        (FLAT, tf.TensorSpec([]), "of 'score' must be a tf.TensorSpec"),
        (FLAT, tf.TensorSpec(None), "of 'score' must be a tf.TensorSpec"),
        (FLAT, tf.RaggedTensorSpec([None, None]), "must be a tf.TensorSpec"),
        (NESTED, VECTOR, "`labels` must map outputs to types"),
        (
            NESTED,
            {"kind": VECTOR},
            r"`labels` has \['kind'\], but `metrics` has",
        ),
    ],
    ids=str,
)
def test_refused_labels(metrics, labels, message, model, tmp_path):
    with pytest.raises(ValueError, match=message):
        lodestar.export.save(
            model, tmp_path / "s", metrics=metrics, labels=labels
        )
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("labels", [None, VECTOR])
def test_outputs_without_a_batch_of_numbers(labels, tmp_path):
    x = keras.Input((None, 2), ragged=True, name="x")
    model = keras.Model(x, lodestar.sequence.softmax(x))
    with pytest.raises(ValueError, match="'output_0' must be a dense tensor"):
        lodestar.export.save(model, tmp_path / "s", metrics=FLAT, labels=labels)
