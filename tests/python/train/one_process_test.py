"""Compares lodestar.train.fit in one process with model.fit."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import snapshot
from lodestar.embedding.table_variable import as_table
from lodestar.train import evaluate, fit

_RNG = np.random.default_rng(5)
IDS = _RNG.integers(0, 60, (44, 2))
Y = _RNG.normal(size=(44, 1)).astype(np.float32)
WEIGHTS = _RNG.uniform(size=44).astype(np.float32)


def batches(known=True, anew=True):
    """Returns eleven batches, in a new order each epoch unless `anew` is False."""
    data = tf.data.Dataset.from_tensor_slices((IDS, Y, WEIGHTS))
    data = data.shuffle(20, seed=2, reshuffle_each_iteration=anew).batch(4)
    return data if known else data.filter(lambda ids, y, weight: True)


class OwnStep(keras.Model):
    """Reports a value that is not one of its metrics."""

    def train_step(self, data):
        logs = super().train_step(data)
        return {"loss": logs["loss"], "own": tf.constant(7.0)}


def make_model(kind=keras.Model, **options):
    keras.utils.set_random_seed(3)
    ids = keras.Input((2,), dtype="int64", name="ids")
    rows = lodestar.layers.DynamicEmbedding(4, combiner="sum", name="e")(ids)
    x = keras.layers.Dropout(0.3, seed=1)(keras.layers.Dense(3)(rows))
    model = kind(ids, keras.layers.Dense(1)(x))
    model.compile(
        lodestar.optimizers.Adam(0.05), "mse", metrics=["mae"], **options
    )
    return model


def state(model):
    """Returns all weights, for bitwise comparison."""
    variables = [*model.variables, *model.optimizer.variables]
    table = model.get_layer("e").table._export_all()
    del table["counters"]
    return [v.numpy().tobytes() for v in variables if as_table(v) is None] + [
        repr(np.asarray(v.numpy()).tolist()) for v in table.values()
    ]


class Calls(keras.callbacks.Callback):
    """Records calls of callbacks."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __getattribute__(self, name):
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        def call(number=None, logs=None):
            if isinstance(number, dict):
                number, logs = None, number
            self.calls.append((name, number, logs and dict(logs)))

        return call


@pytest.mark.parametrize(
    "options, known",
    [
        ({}, False),
        ({"run_eagerly": True}, True),
        ({"steps_per_execution": 4}, False),
        ({"steps_per_execution": 4}, True),
        ({"kind": OwnStep}, True),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_it_is_model_fit(options, known):
    here, there = Calls(), Calls()
    ours, keras_s = make_model(**options), make_model(**options)
    arguments = {
        "epochs": 3,
        "initial_epoch": 1,
        "validation_data": (IDS, Y),
        "validation_freq": 3,
        "verbose": 0,
    }
    # If the size is known, Keras begins one more epoch than it trains.
    found = fit(ours, batches(known, False), callbacks=[here], **arguments)
    wanted = keras_s.fit(batches(known, False), callbacks=[there], **arguments)
    assert found is ours.history
    assert found.history == wanted.history and found.epoch == [1, 2]
    assert state(ours) == state(keras_s)
    if "steps_per_execution" in options and known:
        # Keras counts steps that the last execution does not have.
        assert ("on_train_batch_end", 11) in [c[:2] for c in there.calls]
        assert ("on_train_batch_end", 10) in [c[:2] for c in here.calls]
        return
    if "steps_per_execution" in options:  # nor those of the validation
        calls = [c for c in here.calls if c[0] == "on_test_batch_end"]
        assert [c[1] for c in calls] == [1]
        for each in (here, there):
            each.calls = [c for c in each.calls if "test_batch" not in c[0]]
    assert here.calls == there.calls


def test_steps_are_counted_exactly():
    """With `steps_per_execution`, and when the data end within an epoch."""
    model, seen = make_model(steps_per_execution=4), Calls()
    fit(
        *(model, batches()),
        epochs=2,
        steps_per_epoch=9,
        callbacks=[seen],
        verbose=0,
    )
    ends = [c[1] for c in seen.calls if c[0] == "on_train_batch_end"]
    assert ends == [3, 7, 8] * 2
    repeated = make_model()
    fit(repeated, batches().take(4), steps_per_epoch=10, verbose=0)
    assert int(repeated.optimizer.iterations) == 10


def test_keras_restores_an_epoch_that_was_interrupted(tmp_path):
    def train(*callbacks):
        model = make_model()
        model.optimizer.build(model.trainable_variables)
        backup = keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))
        options = {"epochs": 4, "callbacks": [backup, *callbacks]}
        return fit(model, batches(), verbose=0, **options)

    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(Interrupt())
    assert train().epoch == [2, 3]


def test_paths_are_opened(tmp_path):
    lines = [f"{a} {b},{y > 0:d}" for (a, b), (y,) in zip(IDS, Y, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["ids,y", *lines]))
    schema = lodestar.data.Schema(
        [
            lodestar.data.Column.label("y"),
            lodestar.data.Column.sparse("ids", encoding="int"),
        ]
    )
    inputs = schema.inputs()
    rows = lodestar.layers.DynamicEmbedding(4, combiner="sum")(inputs["ids"])
    model = keras.Model(inputs, keras.layers.Dense(1)(rows))
    model.compile(lodestar.optimizers.SGD(0.1), "mse")
    for data in (str(tmp_path / "*.csv"), [tmp_path / "a.csv"]):
        fit(model, data, schema=schema, batch_size=10, verbose=0)
    assert int(model.optimizer.iterations) == 10


class Died(Exception):
    pass


class Die(keras.callbacks.Callback):
    """Raises in the second epoch, after all due snapshots are written."""

    def __init__(self, snapshots):
        super().__init__()
        self._snapshots = snapshots

    def on_train_batch_begin(self, batch, logs=None):
        if self._snapshots._writing is not None:
            self._snapshots._writing.wait()
        if int(self.model.optimizer.iterations) == 14:
            raise Died


class Subclassed(keras.Model):
    """A model that is not built before its first batch."""

    def __init__(self):
        super().__init__()
        self.embed = lodestar.layers.DynamicEmbedding(
            4, combiner="sum", name="e"
        )
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(self.embed(x))


def make_subclassed():
    keras.utils.set_random_seed(3)
    model = Subclassed()
    model.compile(lodestar.optimizers.Adam(0.05), "mse")
    return model


class Batches(keras.utils.PyDataset):
    """Two batches of Keras, of different sizes."""

    def __len__(self):
        return 2

    def __getitem__(self, number):
        part = slice(30 * number, 30 * number + 30)
        return IDS[part], Y[part]


WHOLE = tf.data.Dataset.from_tensor_slices((IDS, Y)).batch(30)


@pytest.fixture(scope="module")
def wanted():
    """Returns Keras's history of two epochs of WHOLE."""
    found = make_model().fit(WHOLE, epochs=2, validation_data=WHOLE, verbose=0)
    return found.history


@pytest.mark.parametrize(
    "data",
    [
        (IDS, Y),
        (tf.constant(IDS), Y.tolist()),
        ({"ids": IDS}, Y.astype(np.float64)),
        ([IDS], Y, np.ones(44)),
        Batches(),
        lambda context: WHOLE,
        WHOLE,
    ],
    ids=["arrays", "lists", "dict", "weights", "keras", "function", "dataset"],
)
def test_everything_that_keras_takes(data, wanted):
    """As data, as validation data, and in an evaluation."""
    found = make_model()
    options = {"batch_size": 30} if isinstance(data, tuple) else {}
    here = fit(
        *(found, data),
        epochs=2,
        validation_data=data,
        shuffle=False,
        verbose=0,
        **options,
    )
    for name, values in wanted.items():
        np.testing.assert_allclose(here.history[name], values, 1e-5)
    logs = evaluate(found, data, verbose=0, **options)
    assert logs["loss"] == pytest.approx(here.history["val_loss"][-1], 1e-5)


def test_arrays_are_shuffled_in_the_same_orders():
    first, second, sorted_ = make_model(), make_model(), make_model()
    for model in (first, second):
        fit(model, (IDS, Y), epochs=2, batch_size=4, verbose=0)
    fit(sorted_, (IDS, Y), epochs=2, batch_size=4, shuffle=False, verbose=0)
    assert state(first) == state(second) != state(sorted_)


def test_paths_of_validation_have_the_schema_of_the_data(tmp_path):
    (tmp_path / "a.csv").write_text("user,label\n7,0\n8,1\n9,1\n")
    (tmp_path / "b.csv").write_text("user,label\n9,1\n")
    schema = lodestar.data.Schema(
        [
            lodestar.data.Column.label("label"),
            lodestar.data.Column.sparse("user", encoding="int"),
        ]
    )
    inputs = schema.inputs()
    rows = lodestar.layers.DynamicEmbedding(4, combiner="sum")(inputs["user"])
    model = keras.Model(inputs, keras.layers.Dense(1)(rows))
    model.compile(lodestar.optimizers.SGD(0.1), "mse")
    found = fit(
        *(model, tmp_path / "a.csv"),
        validation_data=tmp_path / "b.csv",
        schema=schema,
        verbose=0,
    )
    assert len(found.history["val_loss"]) == 1
    evaluate(model, str(tmp_path / "b.csv"), schema=schema, verbose=0)
    (tmp_path / "c.csv").write_text("user,label\n")
    empty = [tmp_path / "c.csv"]
    message = "has no batch: no record was found in .*c.csv"
    for options in ({}, {"threads": 1}, {"snapshots": tmp_path / "s"}):
        with pytest.raises(ValueError, match=message):
            fit(model, empty, schema=schema, verbose=0, **options)
    with pytest.raises(ValueError, match=message):
        evaluate(model, empty, schema=schema, verbose=0)
    # All records are skipped.
    (tmp_path / "d.csv").write_text("user,label\nx,0\n")
    skipping = lodestar.data.open_dataset(
        *(tmp_path / "d.csv", schema), on_error="skip"
    )
    for options in ({}, {"threads": 1}, {"snapshots": tmp_path / "s"}):
        with pytest.raises(
            ValueError, match="`data` has no batch: no record was .*d.csv"
        ):
            fit(model, skipping, verbose=0, **options)
    with pytest.raises(ValueError, match=message):
        fit(
            *(model, tmp_path / "a.csv"),
            validation_data=empty,
            schema=schema,
            verbose=0,
        )


@pytest.mark.parametrize("make", [make_model, make_subclassed])
def test_snapshots_resume_bit_by_bit(tmp_path, make):
    whole = make()
    wanted = fit(whole, batches(), epochs=3, verbose=0)
    every_four = lodestar.callbacks.Snapshot(tmp_path, 4)
    with pytest.raises(Died):
        fit(
            *(make(), batches()),
            epochs=3,
            callbacks=[Die(every_four)],
            snapshots=every_four,
            verbose=0,
        )
    assert snapshot.versions(tmp_path)[-1].step == 12
    resumed = make()
    found = fit(resumed, batches(), epochs=3, snapshots=tmp_path, verbose=0)
    assert found.epoch == [1, 2]
    for name, values in wanted.history.items():
        assert found.history[name] == values[1:]
    assert state(resumed) == state(whole)
    assert snapshot.versions(tmp_path)[-1].step == 33


def test_data_that_end_too_soon_are_an_error(tmp_path):
    with pytest.raises(ValueError, match="`data` ended within an epoch"):
        fit(
            *(make_model(), batches()),
            epochs=3,
            steps_per_epoch=5,
            snapshots=tmp_path,
            verbose=0,
        )


def test_a_reader_restarts_after_each_epoch():
    model, reader = make_model(), snapshot.ResumableDataset(batches())
    fit(model, reader, epochs=3, verbose=0)
    assert int(model.optimizer.iterations) == 33


def test_metrics_of_an_evaluation():
    model = make_model()
    wanted = model.evaluate(IDS, Y, return_dict=True, verbose=0)
    data = tf.data.Dataset.from_tensors((IDS, Y))
    assert evaluate(model, data, verbose=0) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
    "data, options, error, message",
    [
        (3, {}, TypeError, "a function that returns a dataset, got int"),
        ([batches()], {}, TypeError, "dataset, got list of"),
        ((IDS, Y, Y, Y), {}, TypeError, "A tuple of arrays must be .* got 4"),
        ((IDS, Y[1:]), {}, ValueError, r"same number of .* got \[43, 44\]"),
        ((IDS, None, Y), {}, TypeError, "Sample weights need labels"),
        (lambda context: 1, {}, TypeError, "must return a tf.* got int"),
        (batches(), {"batch_size": 3}, ValueError, "paths or arrays"),
        ((IDS[:0], Y[:0]), {}, ValueError, "`data` has no batch"),
        (batches(), {"validation_data": 3}, TypeError, "`validation_data` mu"),
        (batches(), {"epochs": -1}, ValueError, "`epochs` must be an integer"),
        (batches(), {"steps_per_epoch": 0}, ValueError, "`steps` must be an"),
        (batches().take(0), {}, ValueError, "`data` has no batch"),
        (batches().repeat(), {}, ValueError, "`data` is endless. Pass the"),
        (batches(), {"sync_every": 2}, ValueError, "under ParameterServer"),
        (batches(), {"steps_per_round": 2}, ValueError, "or with `threads`"),
        (batches(), {"schema": "s.yaml"}, ValueError, "if `data` are paths"),
    ],
)
def test_errors_name_the_cause(data, options, error, message):
    seen = Calls()
    with pytest.raises(error, match=message):
        fit(make_model(), data, callbacks=[seen], **options)
    assert not any("batch" in name for name, *_ in seen.calls)


def test_models_that_cannot_be_trained():
    with pytest.raises(TypeError, match="`model` must be a keras.Model, got"):
        fit(None, batches())
    inputs = keras.Input((2,))
    with pytest.raises(ValueError, match="no optimizer. Call model.compile"):
        fit(keras.Model(inputs, inputs), batches())


def test_callbacks_that_lose_rows_are_refused():
    best = keras.callbacks.EarlyStopping("loss", restore_best_weights=True)
    model = make_model()
    with pytest.raises(RuntimeError, match="Training has not started"):
        fit(model, batches(), callbacks=[best], verbose=0)
    assert int(model.optimizer.iterations) == 0
