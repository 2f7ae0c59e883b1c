"""Tests of the variable that represents a table and carries its gradient."""

import contextlib
import gc
import types
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.embedding import dense_view
from lodestar.embedding.table_variable import as_table


def table(**options):
    return lodestar.EmbeddingVariable(4, name="hooked", **options)


def test_a_table_is_one_trainable_variable():
    t = table()
    assert isinstance(t, keras.Variable) and t.trainable
    assert t.shape == (0, 4) and t.value.shape == (0, 4)
    assert (t.name, t.path, t.dtype) == (
        "hooked",
        "hooked/embeddings",
        "float32",
    )
    t.lookup([1, 2], training=True)
    assert t.shape == (2, 4) and t.value.shape == (0, 4)


def test_tables_compare_by_identity():
    t, other = table(), table()
    assert t == t and t != other and t in [other, t] and {t: 1}[t] == 1
    with pytest.raises(TypeError, match="table.lookup.ids."):
        _ = t[0]


def test_a_table_is_an_argument_of_a_tf_function():
    @tf.function
    def lookup(tables, ids):
        traces.append(1)
        return tables["a"].lookup(ids, training=True)

    traces, t, other = [], table(), table()
    for given in (t, other, t):
        lookup({"a": given}, tf.constant([1, 2]))
    assert len(traces) == 2 and t.shape == other.shape == (2, 4)


def test_watched_variables_lead_back_to_the_table():
    t = table()
    with tf.GradientTape() as tape:
        t.lookup([1], training=True)
    assert [as_table(v) for v in tape.watched_variables()] == [t]
    assert as_table(tf.Variable(1.0)) is None
    assert as_table(keras.Variable(1.0)) is None


def test_plain_optimizer_after_the_wrapper_raises_too():
    layer = lodestar.layers.DynamicEmbedding(1, combiner="sum")
    ids = keras.Input((2,), dtype="int64")
    model = keras.Model(ids, layer(ids))
    x, y = np.ones((4, 2), int), np.ones((4, 1))
    model.compile(lodestar.optimizers.SGD(), "mse")
    model.fit(x, y, verbose=0)
    model.compile("sgd", "mse")
    with pytest.raises(RuntimeError, match="Use the optimizer of the same"):
        model.fit(x, y, verbose=0)


def test_gradient_is_never_made_dense():
    t = table()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(t.lookup([1], training=True))
    gradient = tape.gradient(loss, t)
    assert isinstance(gradient, tf.IndexedSlices)
    with pytest.raises(
        RuntimeError, match="cannot be converted to a dense tensor"
    ):
        tf.convert_to_tensor(gradient)


def test_a_config_holds_no_rows():
    t = table(optimizer="adam")
    t.lookup([1, 2], training=True)
    made = keras.saving.serialize_keras_object({"table": t})
    assert made["table"]["config"]["value"] == []
    again = lodestar.EmbeddingVariable.from_config(t.get_config())
    assert again.get_config() == t.get_config()


def test_any_name_of_a_table_can_be_in_a_saved_model(tmp_path):
    module = tf.Module()
    module.tables = [
        lodestar.EmbeddingVariable(4, name=name)
        for name in ("of users", "naïve/ü", "_id", "用户", "%s")
    ]
    module.read = tf.function(
        lambda ids: [table.lookup(ids) for table in module.tables],
        input_signature=[tf.TensorSpec([None], tf.int64)],
    )
    for table in module.tables:
        table.lookup([1], training=True)
    tf.saved_model.save(module, tmp_path)
    loaded, ids = tf.saved_model.load(tmp_path), tf.constant([1], tf.int64)
    for rows, table in zip(loaded.read(ids), module.tables, strict=True):
        np.testing.assert_array_equal(rows, table.lookup(ids))


# A table as users see it in `layer.weights`.

READERS = {
    "convert": tf.convert_to_tensor,
    "identity": tf.identity,
    "norm": tf.norm,
    "l2_loss": tf.nn.l2_loss,
    "raw op": lambda v: tf.raw_ops.L2Loss(t=v),
    "global norm": lambda v: tf.linalg.global_norm([v]),
    "operator": lambda v: v * v,
    "operator of a number": lambda v: 2.0 - v,
    "shape": tf.shape,
    "keras": lambda v: keras.ops.sum(keras.ops.square(v)),
    "keras convert": lambda v: keras.ops.convert_to_tensor(v, "float32") * 1.0,
    "regularizer": keras.regularizers.L2(0.5),
    "numpy function": np.linalg.norm,
    "numpy ufunc": np.abs,
    "numpy reduction": np.add.reduce,
    "numpy function of a list": lambda v: np.concatenate([v, v]),
    "numpy operator": lambda v: np.full(4, 2.0) * v,
}
IDS = [3, -(2**63), 2**63 - 1, 0, 7]
EACH_READER = pytest.mark.parametrize(
    "read", READERS.values(), ids=READERS.keys()
)
DTYPES = ["float32", "float16", "bfloat16"]


def filled(**options):
    t = table(**options)
    rows = np.arange(20.0).reshape(5, 4) - 3
    t.insert_or_assign(IDS, rows)
    return t


@EACH_READER
@pytest.mark.parametrize("devices", [None, ["/CPU:0"] * 3])
def test_readers_get_the_rows(read, devices):
    t = filled(devices=devices)
    dense = tf.convert_to_tensor(t)
    exported = t.export().rows.numpy()
    assert sorted(dense.numpy().tolist()) == sorted(exported.tolist())
    if devices is None:
        np.testing.assert_array_equal(dense, exported)
    np.testing.assert_array_equal(read(t), read(dense))


@pytest.mark.parametrize("dtype", DTYPES)
def test_readers_get_rows_of_the_dtype_of_the_table(dtype):
    t = filled(dtype=dtype)
    dense = tf.convert_to_tensor(t)
    assert dense.dtype == dtype
    np.testing.assert_array_equal(dense, t.export().rows)
    assert np.positive(t).dtype == dense.numpy().dtype


@pytest.mark.parametrize(
    "read", [np.asarray, np.array, keras.ops.convert_to_numpy]
)
@pytest.mark.parametrize("name", ["read", "save_own_variables", "save"])
def test_as_an_array_a_table_has_no_rows(read, name):
    scope = {"reader": read}
    exec(f"def {name}(self):\n    return reader(self)", scope)
    assert scope[name](filled()).shape == (0,)
    with tf.GradientTape():
        assert scope[name](filled()).shape == (0,)


@EACH_READER
def test_reading_a_table_as_dense_weight_under_a_tape_raises(read):
    t = filled()
    with pytest.raises(RuntimeError, match="Penalize the rows"):
        with tf.GradientTape():
            read(t)

    @tf.function(autograph=False)
    def graph():
        return tf.convert_to_tensor(read(t))

    with pytest.raises(RuntimeError, match="Penalize the rows"):
        graph()


@pytest.mark.parametrize("eager", [False, True])
def test_a_penalty_over_trainable_variables_is_refused_in_fit(eager):
    class Penalized(keras.Model):
        def __init__(self):
            super().__init__()
            self.rows = lodestar.layers.DynamicEmbedding(4, combiner="sum")
            self.dense = keras.layers.Dense(1)

        def call(self, ids):
            return self.dense(self.rows(ids))

        def compute_loss(self, *args, **kwargs):
            penalty = tf.add_n(
                [tf.nn.l2_loss(v) for v in self.trainable_variables]
            )
            return super().compute_loss(*args, **kwargs) + penalty

    model = Penalized()
    optimizer = lodestar.optimizers.SGD()
    model.compile(optimizer, "mse", run_eagerly=eager)
    with pytest.raises(RuntimeError, match="isinstance.v, lodestar.Emb"):
        model.fit(np.ones((4, 2), int), np.ones((4, 1)), verbose=0)


@EACH_READER
@pytest.mark.parametrize("devices", [None, ["/CPU:0"] * 3])
def test_an_empty_table_reads_as_one_row_of_zeros(read, devices):
    t = table(devices=devices)
    zeros = tf.zeros([1, 4])
    np.testing.assert_array_equal(read(t), read(zeros))


def test_reading_changes_and_counts_nothing():
    t = filled(admission=lodestar.MinCount(2), eviction=lodestar.MaxRows(9))
    before, stats = t.export(), t.stats()
    for read in READERS.values():
        read(t)
    assert t.stats() == stats
    for old, new in zip(before, t.export()):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("devices", [None, ["/CPU:0"] * 3])
def test_of_a_huge_table_readers_get_a_sample(devices, monkeypatch):
    monkeypatch.setattr(dense_view, "_MOST_NUMBERS", 40)
    t = table(devices=devices, embeddings_initializer="normal")
    t.lookup(np.arange(1000), training=True)
    exported = {tuple(row) for row in t.export().rows.numpy()}
    with pytest.warns(UserWarning, match="'hooked' .* has 1000 rows, of which"):
        shown = tf.convert_to_tensor(t)
    assert 10 <= shown.shape[0] <= 12 and shown.shape[1] == 4
    shown = [tuple(row) for row in shown.numpy()]
    assert len({*shown}) == len(shown) and {*shown} <= exported
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [*map(tuple, np.positive(t))] == shown  # once per table


class Board(keras.callbacks.TensorBoard):
    """Writes histograms to `self.written`, without TensorBoard."""

    def __init__(self, **options):
        super().__init__(write_graph=False, **options)
        self.written = {}

    @property
    def summary(self):
        @contextlib.contextmanager
        def as_default(step=None):
            yield

        def write(name, data, step):
            self.written[name, step] = np.asarray(tf.convert_to_tensor(data))

        def image(name, data, step):
            write(name, data, step)
            data = tf.image.convert_image_dtype(data, tf.uint8, saturate=True)
            tf.io.encode_png(data)

        writer = types.SimpleNamespace(
            as_default=as_default, flush=lambda: None, close=lambda: None
        )
        return types.SimpleNamespace(
            create_file_writer=lambda path: writer,
            scalar=write,
            histogram=write,
            image=image,
        )


@pytest.mark.parametrize("grow", [True, False])
def test_tensorboard_of_keras_shows_the_rows(grow, tmp_path):
    ids = keras.Input((2,), dtype="int64")
    layer = lodestar.layers.DynamicEmbedding(
        4, combiner="sum", grow=grow, name="rows"
    )
    model = keras.Model(ids, keras.layers.Dense(1)(layer(ids)))
    model.compile(lodestar.optimizers.SGD(), "mse")
    board = Board(log_dir=tmp_path, histogram_freq=1, write_images=True)
    x = np.arange(12).reshape(6, 2)
    model.fit(x, np.ones((6, 1)), epochs=2, verbose=0, callbacks=[board])
    rows = layer.table.export().rows if grow else np.zeros([1, 4])
    np.testing.assert_array_equal(
        board.written["rows/embeddings/histogram", 1], rows
    )
    assert board.written["rows/embeddings/image", 1].size == np.size(rows)


# Lookups under a tape that no optimizer step follows.

X = np.arange(12).reshape(6, 2)
Y = np.ones((6, 1))
UNFOLLOWED = "lookups under a gradient tape that no optimizer followed"


def wrap(inner="sgd", **options):
    inner = keras.optimizers.get(inner)
    return lodestar.optimizers.wrap(inner, **options)


def functional(eager=False, devices=None, optimizer=None):
    ids = keras.Input((2,), dtype="int64")
    layer = lodestar.layers.DynamicEmbedding(2, combiner="sum", devices=devices)
    model = keras.Model(ids, keras.layers.Dense(1)(layer(ids)))
    model.compile(optimizer or wrap(), "mse", run_eagerly=eager)
    return model, layer.table


def on_devices(eager=False):
    return functional(eager, devices=["/CPU:0"] * 2)


def collection(eager=False):
    ids = keras.Input((2,), dtype="int64")
    feature = lodestar.Feature(output_dim=2, combiner="sum")
    layer = lodestar.layers.EmbeddingCollection({"a": feature, "b": feature})
    rows = layer({"a": ids, "b": ids})
    rows = keras.layers.Concatenate()([rows["a"], rows["b"]])
    model = keras.Model(ids, keras.layers.Dense(1)(rows))
    model.compile(wrap(), "mse", run_eagerly=eager)
    return model, layer.tables[1]


def subclassed(eager=False):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.table = lodestar.EmbeddingVariable(2)
            self.dense = keras.layers.Dense(1)

        def call(self, ids):
            return self.dense(self.table.lookup(ids, combiner="sum"))

    model = Model()
    model.compile(wrap(), "mse", run_eagerly=eager)
    return model, model.table


def gradients(model, ids, **training):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(tf.convert_to_tensor(ids), **training))
    return tape.gradient(loss, model.trainable_variables)


@pytest.fixture
def no_warning():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*" + UNFOLLOWED)
        yield


@pytest.mark.parametrize(
    "make, look",
    [
        (functional, "size"),
        (on_devices, "export"),
        (collection, "lookup"),
        (subclassed, "size"),
    ],
)
def test_rows_that_no_optimizer_follows_are_reported_once(make, look):
    gc.collect()  # optimizers of other tests, which could follow the lookups
    model, table = make()
    model.fit(X, Y, verbose=0)
    gradients(model, X + 100)
    looks = {
        "size": table.size,
        "export": table.export,
        "lookup": lambda: model(tf.constant(X)),
    }
    with pytest.warns(UserWarning, match=f"12 new rows from {UNFOLLOWED}"):
        looks[look]()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*" + UNFOLLOWED)
        gradients(model, X + 200)
        assert int(table.size()) == 36


@pytest.mark.parametrize(
    "make, eager",
    [(functional, False), (subclassed, False), (subclassed, True)],
)
def test_fit_warns_of_nothing(make, eager, no_warning):
    model, table = make(eager)
    model.fit(X, Y, validation_data=(X + 50, Y), epochs=2, verbose=0)
    assert int(table.size()) == 12
    model.predict(X, verbose=0)
    table.export()


@pytest.mark.parametrize(
    "make, steps, graph",
    [
        (functional, 1, False),
        (functional, 3, False),
        (collection, 3, False),
        (subclassed, 1, True),
        (subclassed, 3, False),
    ],
)
def test_custom_loops_cause_no_warning(make, steps, graph, no_warning):
    model, table = make()
    optimizer, sums = model.optimizer, []

    def step(ids):
        found = gradients(model, ids)
        if steps == 1:
            optimizer.apply_gradients(zip(found, model.trainable_variables))
        return found

    if graph:
        step = tf.function(step, autograph=False)
    for count in range(2 * steps):
        sums.append(step(X + 100 * count))
        table.size()  # as in a loop that prints progress
        if len(sums) == steps > 1:
            for found in sums:
                optimizer.apply(found, model.trainable_variables)
            sums.clear()
            model.evaluate(X, Y, verbose=0)
    assert int(table.size()) == 24 * steps


def test_accumulation_by_keras_warns_of_nothing(no_warning):
    inner = keras.optimizers.SGD(gradient_accumulation_steps=4)
    model, table = functional(optimizer=wrap(inner))
    for count in range(6):
        found = gradients(model, X + 100 * count)
        model.optimizer.apply(found, model.trainable_variables)
        table.size()


@pytest.mark.parametrize("make", [functional, subclassed])
def test_explicit_training_causes_no_warning(make, no_warning):
    model, table = make()
    model.fit(X, Y, verbose=0)
    if make is not subclassed:  # whose call has no `training` argument
        gradients(model, X + 100, training=False)
        assert int(table.size()) == 12
        gradients(model, X + 100, training=True)
        assert int(table.size()) == 24
    with tf.GradientTape():
        table.lookup(X + 200, training=True)
    table.size()
    gradients(model, X)  # adds nothing
    table.size()
    table.trainable = False
    with tf.GradientTape():
        table.lookup(X + 300)
    assert int(table.size()) == (24 if make is subclassed else 36)
