"""A missing private name of TensorFlow or Keras never causes silent errors.

For each name that lodestar._private reads, the code that depends on it runs
while that module cannot find the name. The result must be the usual one, or the
error listed here.
"""

import ast
import functools
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import _library, _private

X = np.arange(12).reshape(6, 2)
Y = np.ones((6, 1))


@keras.saving.register_keras_serializable("missing_names_test")
class Bare(keras.Model):
    """Looks up a bare table, without a `training` argument."""

    def __init__(self):
        super().__init__()
        self.rows = lodestar.EmbeddingVariable(2, name="rows")
        self.dense = keras.layers.Dense(1)

    def call(self, ids):
        return self.dense(self.rows.lookup(ids, combiner="sum"))

    def get_config(self):
        return {}


def layers():
    ids = keras.Input((2,), dtype="int64")
    rows = lodestar.layers.DynamicEmbedding(2, combiner="sum", name="rows")
    return keras.Model(ids, keras.layers.Dense(1)(rows(ids)))


def compiled(model):
    model.compile(lodestar.optimizers.Adagrad(0.1), "mse")
    return model


@functools.cache
def trained():
    model = compiled(Bare())
    model.fit(X, Y, verbose=0)
    return model


def assert_same(other):
    want, found = trained().rows.export(), other.rows.export()
    np.testing.assert_array_equal(found.ids, want.ids)
    np.testing.assert_array_equal(found.rows, want.rows)


def assert_trained(table):
    assert int(table.size()) == X.size
    start = lodestar.EmbeddingVariable.from_config(table.get_config())
    start.lookup(X, training=True)
    assert np.all(start.lookup(X) != table.lookup(X))


# The code that runs.


def fit_layer():
    model = compiled(layers())
    model.fit(X, Y, verbose=0)
    assert_trained(model.get_layer("rows").table)


def fit_plain():
    model = layers()
    model.compile("adam", "mse")
    with pytest.raises(RuntimeError, match="lodestar.optimizers.Adam"):
        model.fit(X, Y, verbose=0)


def fit_untold():
    model = compiled(Bare())
    model.fit(X, Y, verbose=0)
    assert_trained(model.rows)


def fit_lost():
    rows = lodestar.EmbeddingVariable(2, name="rows")
    ids = keras.Input((2,), dtype="int64")
    looked_up = keras.layers.Lambda(
        lambda ids: rows.lookup(ids, combiner="sum"), output_shape=(2,)
    )(ids)
    model = compiled(keras.Model(ids, keras.layers.Dense(1)(looked_up)))
    with pytest.raises(RuntimeError, match="never gets its gradient"):
        model.fit(X, Y, verbose=0)


def narrow():
    ids = keras.Input((2,), dtype="int32")
    layer = lodestar.layers.DynamicEmbedding(2, combiner="sum")
    pairs = keras.ops.concatenate([ids, ids], 1)
    with pytest.raises(ValueError, match="Keras cast them to int32"):
        keras.Model(ids, layer(pairs)).predict(X + 2**40, verbose=0)


def fill():
    ids = keras.Input((2,), dtype="int64")
    layer = lodestar.layers.DynamicEmbedding(2, combiner="sum")
    with pytest.raises(ValueError, match="filled short rows with 0"):
        model = keras.Model(ids, layer(ids))
        model.predict(tf.sparse.from_dense(X), verbose=0)


def lose_ragged():
    rows = keras.layers.Dense(2)(keras.Input((None, 2), ragged=True))
    try:
        lodestar.sequence.pool(rows)
    except TypeError as error:
        if "(Dense) made it from a ragged tensor" not in str(error):
            raise


def recurrent():
    ids = keras.Input((None,), dtype="int64", ragged=True)
    rows = lodestar.layers.DynamicEmbedding(2)(ids)
    try:
        model = keras.Model(ids, keras.layers.GRU(2)(rows))
    except TypeError as error:
        if "(GRU) got ragged rows" not in str(error):
            raise
        return
    model.predict(tf.ragged.constant([[1, 2], [3]], tf.int64), verbose=0)


def predict():
    model = Bare()
    model.predict(X, verbose=0)
    assert int(model.rows.size()) == 0


def freeze():
    model = compiled(Bare())
    model.rows.lookup(X[:2], training=True)
    before = model.rows.export()
    model.rows.trainable = False
    model.fit(X, Y, verbose=0)
    np.testing.assert_array_equal(model.rows.export().rows, before.rows)


def recompute():
    rows = lodestar.EmbeddingVariable(2, name="rows")
    again = tf.recompute_grad(lambda x: x * rows.lookup(X, training=True))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(again(tf.ones([])))
    with pytest.raises(RuntimeError, match="as tf.recompute_grad does"):
        tape.gradient(loss, rows.value)


def penalize():
    with pytest.raises(RuntimeError, match="Penalize the rows"):
        with tf.GradientTape():
            tf.nn.l2_loss(trained().rows)


def decay():
    kept = lodestar.EmbeddingVariable(2, name="kept")
    kept.insert_or_assign([1], [[1.0, 1.0]])
    optimizer = lodestar.optimizers.SGD(0.1, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_list=[kept])
    optimizer.apply([tf.IndexedSlices(tf.zeros((1, 2)), [1])], [kept])
    np.testing.assert_array_equal(kept.lookup([1]), [[1.0, 1.0]])


def accumulate():
    model = layers()
    optimizer = lodestar.optimizers.SGD(1.0, gradient_accumulation_steps=2)
    model.compile(optimizer, "mse")
    table = model.get_layer("rows").table
    table.lookup(X, training=True)
    for step in range(4):
        before = table.lookup(X).numpy()
        model.train_on_batch(X, Y)
        assert (step % 2 == 0) == np.array_equal(before, table.lookup(X))


def replay():
    model = layers()
    inner = keras.optimizers.Adadelta(1.0)
    model.compile(lodestar.optimizers.wrap(inner), "mse")
    model.fit(X, Y, verbose=0)
    assert_trained(model.get_layer("rows").table)


def files(path):
    trained().save(path / "m.keras")
    assert_same(keras.saving.load_model(path / "m.keras"))


def weights(path):
    trained().save_weights(path / "m.weights.h5")
    other = Bare()
    other(X)
    other.load_weights(path / "m.weights.h5")
    assert_same(other)


def checkpoint(path):
    saved = tf.train.Checkpoint(model=trained()).save(path / "checkpoint")
    other = Bare()
    other(X)
    tf.train.Checkpoint(model=other).restore(saved).expect_partial()
    assert_same(other)


def saved_model(path):
    module = tf.Module()
    module.rows = trained().rows
    module.lookup = tf.function(
        lambda ids: module.rows.lookup(ids),
        input_signature=[tf.TensorSpec([None], tf.int64)],
    )
    tf.saved_model.save(module, str(path / "s"))
    loaded = tf.saved_model.load(str(path / "s"))
    ids = tf.constant([1, 2, 99], tf.int64)
    np.testing.assert_array_equal(
        loaded.lookup(ids), trained().rows.lookup(ids)
    )


def legacy_file(path):
    with pytest.raises(RuntimeError, match="legacy .h5 files"):
        layers().save(path / "m.h5")


def copies_of_weights():
    with pytest.raises(RuntimeError, match="represents the rows"):
        trained().get_weights()


def register_class():
    class Registered(tf.Module):
        pass

    assert _private.saved_class(Registered) is Registered


def load_ops():
    ops = _library.load(_library.path)
    assert ops.lodestar_library_version().dtype == tf.string


def check_overridden():
    _private.check_overridden()


def mask():
    _private._keras_masks_have_this_name.cache_clear()
    _private.set_keras_mask(tf.zeros([1]), None)


def device_and_copy():
    import copy

    with tf.device("/CPU:0"):
        table = lodestar.EmbeddingVariable(2)
    table.lookup([1], training=True)
    assert int(copy.deepcopy(table).size()) == 1
    with tf.Graph().as_default():
        del table


def schema_of_inputs(path):
    lodestar.export.save(layers(), str(path / "e"))


def go_on():
    """Returns callbacks and functions that resume, the only users of some names."""
    callback = keras.callbacks.TensorBoard("unused")
    _private.set_batch_counters(callback, _private.batch_counters(callback))
    model = compiled(layers())
    _private.forget_initial_epoch(model)
    _private.loss_tracker(model)
    assert _private.restored_epoch(model) is None
    assert _private.anew(tf.function(lambda x: x))(1) == 1
    assert not _private.is_symbolic_build()
    assert _private.addresses_of_cluster() == {}


TRAIN = [fit_layer, fit_untold, predict, freeze, penalize]
SAVE = [files, weights, checkpoint, legacy_file, copies_of_weights]
LOST = (TypeError, "Declare an input of a Keras model")
NEEDS_TRAINING = (RuntimeError, "Pass training=True to train the rows")
OVERRIDDEN = ([check_overridden], {check_overridden: (ImportError, "has no")})
RECORD = (TRAIN, {fit_untold: NEEDS_TRAINING})
SAVE_CONTEXT = (
    [saved_model],
    {saved_model: (RuntimeError, "cannot be in a SavedModel")},
)
OPS = ([load_ops], {})
# The file could be one that cannot hold tables.
NO_FILE = (RuntimeError, "represents the rows")
GLOBALS = ([*TRAIN, *SAVE], {files: NO_FILE, weights: NO_FILE})
LEGACY = ([legacy_file, files], {files: NO_FILE})
OTHERS = ([go_on], {})
STOPPED = ([fit_layer, recompute], {})
GRAPHS = ([fit_layer, fit_untold, fit_lost], {})
DEVICE = ([device_and_copy], {})
WRAPS = (tf.errors.InvalidArgumentError, "outside of .* which that cast wraps")
CONVERSIONS = (
    [fit_layer, narrow, fill, lose_ragged],
    {narrow: WRAPS, lose_ragged: LOST},
)
HISTORY = ([schema_of_inputs, lose_ragged], {lose_ragged: LOST})
# By name: the code to run without it, and the error each raises.
WITHOUT = {
    "tensorflow.python.eager.record": RECORD,
    "could_possibly_record": RECORD,
    "tensorflow.python.pywrap_tfe": STOPPED,
    "TFE_Py_TapeSetIsStopped": STOPPED,
    "tensorflow.python.framework.ops": GRAPHS,
    "_default_graph_stack": GRAPHS,
    "stack": GRAPHS,
    "tensorflow.python.saved_model.save_context": SAVE_CONTEXT,
    "in_save_context": SAVE_CONTEXT,
    "tensorflow.python.saved_model.registration": ([register_class], {}),
    "register_serializable": ([register_class], {}),
    "tensorflow.python.client.pywrap_tf_session": OPS,
    "tensorflow.python.framework._pywrap_python_op_gen": OPS,
    "TF_LoadLibrary": OPS,
    "TF_GetOpList": OPS,
    "GetPythonWrappers": OPS,
    "tensorflow.python.checkpoint.checkpoint_context": ([checkpoint], {}),
    "in_async_metrics_context": ([checkpoint], {}),
    "tensorflow.python.eager.context": OTHERS,
    "get_server_def": OTHERS,
    "__internal__": DEVICE,
    "eager_context": DEVICE,
    "eager_mode": DEVICE,
    "get_device_name": DEVICE,
    "keras.src.backend.common.global_state": GLOBALS,
    "get_global_attribute": GLOBALS,
    "use_legacy_config": LEGACY,
    "keras.src.legacy.saving.saving_options": LEGACY,
    "keras_option_scope": LEGACY,
    "name_scope_stack": ([fit_plain], {}),
    "caller": ([fit_plain], {}),
    "current_call_ctx": ([fit_layer, fit_untold], {}),
    "entry_layer": ([fit_layer, fit_untold], {}),
    "_use_weight_decay": (
        [decay, fit_layer],
        {decay: (RuntimeError, "excludes from weight decay")},
    ),
    "_iterations": ([fit_layer, accumulate, replay], {}),
    "_learning_rate": ([replay], {}),
    "original_scope": ([fit_untold, files], {}),
    "_outbound_nodes": (
        [recurrent],
        {recurrent: (ValueError, "inner ragged dimension")},
    ),
    "_inbound_nodes": CONVERSIONS,
    "node_index": CONVERSIONS,
    "input_tensors": CONVERSIONS,
    "_keras_history": HISTORY,
    "operation": HISTORY,
    "_keras_mask": (
        [mask],
        {mask: (RuntimeError, "unknown attribute for masks")},
    ),
    "_loss_tracker": OTHERS,
    "_initial_epoch": OTHERS,
    "_global_train_batch": OTHERS,
    "_global_test_batch": OTHERS,
    "_batches_seen_since_last_saving": OTHERS,
    "_last_batch_seen": OTHERS,
    "_autograph": OTHERS,
    **{n: OVERRIDDEN for ns in _private._OVERRIDDEN.values() for n in ns},
}
# Base classes; they are tested by an import in another process.
AT_IMPORT = {"keras.src.saving.keras_saveable", "KerasSaveable"}


def names_read():
    """Returns the private names that the module reads."""
    tree = ast.parse(pathlib.Path(_private.__file__).read_text())
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = ast.unparse(node.func)
            if function in ("getattr", "hasattr", "_module", "_global"):
                name = node.args[function in ("getattr", "hasattr")]
                if isinstance(name, ast.Constant):
                    yield name.value
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value
            private = name.startswith("_") and name.isidentifier()
            if id(node) not in documentation and (
                private or name.startswith(("tensorflow.", "keras.src"))
            ):
                yield name


def test_all_names_are_here():
    read = {n for n in names_read() if n[:2] != "__" or n == "__internal__"}
    read -= {"_self_"}  # a prefix
    assert read == {*WITHOUT, *AT_IMPORT}


def without(monkeypatch, name):
    """Hides a name from lodestar._private only."""
    module, read = _private._module, _private._global

    def get(value, attribute, *default):
        if attribute != name:
            return getattr(value, attribute, *default)
        if default:
            return default[0]
        raise AttributeError(name)

    def has(value, attribute):
        return attribute != name and hasattr(value, attribute)

    for function, replaced in {
        "getattr": get,
        "hasattr": has,
        "_module": lambda path: None if path == name else module(path),
        "_global": lambda key: None if key == name else read(key),
    }.items():
        monkeypatch.setattr(_private, function, replaced, raising=False)


@pytest.mark.parametrize("name", WITHOUT)
def test_without(name, monkeypatch, tmp_path):
    trained()
    without(monkeypatch, name)
    _private._tells_of_legacy_files.cache_clear()
    done, raised = WITHOUT[name]
    for what in done:
        given = [tmp_path] if what.__code__.co_argcount else []
        if what in raised:
            error, message = raised[what]
            with pytest.raises(error, match=message):
                what(*given)
        else:
            what(*given)
    _private._keras_masks_have_this_name.cache_clear()
    _private._tells_of_legacy_files.cache_clear()


def test_without_the_class_that_keras_files_look_for(tmp_path):
    code = """
import importlib, pathlib, sys
find = importlib.import_module
def find_others(name, *args):
    if name == "keras.src.saving.keras_saveable":
        raise ImportError
    return find(name, *args)
importlib.import_module = find_others
import missing_names_test as checks
from lodestar import _private
assert _private.file_may_lack_tables()
path = pathlib.Path(sys.argv[1])
for save in (checks.files, checks.weights):
    try:
        save(path)
    except RuntimeError as error:
        assert "represents the rows" in str(error)
    else:
        raise AssertionError(save)
checks.checkpoint(path)
model = checks.layers()
model(checks.X, training=True)
model.save_weights(path / "l.weights.h5")
other = checks.layers()
other.load_weights(path / "l.weights.h5")
assert other.get_layer("rows").table.shape == (12, 2)
"""
    path = os.pathsep.join([str(pathlib.Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
