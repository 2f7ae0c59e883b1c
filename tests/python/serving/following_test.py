"""Exports that follow a snapshot folder in any process with the op library."""

import functools
import gc
import os
import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from followed_models import (
    MutableIds,
    Trainer,
    wait_until,
)
from processes import without_lodestar
from served_models import op_library

import lodestar
from lodestar._library import gen_ops
from lodestar.snapshot import id_contents


@pytest.fixture
def trainer(tmp_path):
    return Trainer(tmp_path, follow=True)


def load(trainer):
    return tf.saved_model.load(str(trainer.exported))


def refresh(loaded):
    return int(loaded.signatures["refresh"]()["version"])


def stats(loaded):
    outputs = loaded.signatures["follower_stats"]()
    return {name: value.numpy() for name, value in outputs.items()}


def is_at(loaded, version):
    return stats(loaded)["version"] == version


def assert_serves(loaded, want, trainer):
    got = loaded.serve(trainer.features)
    assert set(got) == set(want)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-6, atol=1e-6)


def test_serves_new_rows_weights_and_deletions(trainer):
    loaded = load(trainer)
    assert_serves(loaded, trainer.outputs(), trainer)
    for version in range(1, 6):
        trainer.train()
        if version > 1:
            trainer.table.remove(trainer.ids[version : version + 5])
        trainer.save(delta=version > 1)
        assert refresh(loaded) == version
        assert_serves(loaded, trainer.outputs(), trainer)
    found = stats(loaded)
    assert found["version"] == 5
    assert found["step"] == 5
    assert found["updates"] == 5
    assert found["full_updates"] == 2
    assert found["failures"] == 0
    assert found["last_error"] == b""
    assert found["snapshot_time"].startswith(b"20")
    assert found["seconds_since_update"] > 0
    assert refresh(loaded) == 5


def test_the_newest_version_is_served_from_the_start(trainer):
    trainer.train()
    trainer.save()
    trainer.train()
    trainer.save(delta=True)
    loaded = load(trainer)
    assert_serves(loaded, trainer.outputs(), trainer)
    # All signatures read it.
    got = loaded.signatures["serving_default"](
        clicks_values=trainer.features["clicks"].values,
        clicks_row_splits=trainer.features["clicks"].row_splits,
    )
    np.testing.assert_allclose(
        got["score"], trainer.outputs()["score"], rtol=1e-6, atol=1e-6
    )
    # And so do the tables.
    numbers = lodestar.serving.table_numbers.of_loaded(loaded)
    assert numbers["rows"] == {"clicks": int(trainer.table.size())}


def test_verify_compares_the_newest_version(trainer):
    trainer.train()
    trainer.save()
    result = lodestar.export.verify(
        trainer.model, trainer.exported, trainer.features
    )
    assert result.signatures == ("serve", "serving_default")
    trainer.train()
    with pytest.raises(ValueError, match="in the export through 'serve'"):
        lodestar.export.verify(
            trainer.model, trainer.exported, trainer.features, atol=0
        )


def test_a_thread_polls(tmp_path):
    trainer = Trainer(tmp_path, follow=True, poll_seconds=0.02)
    loaded = load(trainer)
    for version in range(1, 4):
        trainer.train()
        trainer.save(delta=version > 1)
        wait_until(functools.partial(is_at, loaded, version))
        assert_serves(loaded, trainer.outputs(), trainer)
    # The thread ends with the model.
    before = set(os.listdir("/proc/self/task"))
    del loaded
    gc.collect()
    wait_until(lambda: set(os.listdir("/proc/self/task")) < before)


def test_a_call_gets_its_version_once(trainer):
    graph = load(trainer).signatures["serving_default"].graph.as_graph_def()
    ops = [
        node.op
        for nodes in (
            graph.node,
            *(function.node_def for function in graph.library.function),
        )
        for node in nodes
    ]
    assert ops.count("Lodestar>SnapshotFollowerResources") == 1
    # The follower itself is captured.
    assert "Lodestar>SnapshotFollower" not in ops


def test_two_loads_are_independent(trainer):
    first = load(trainer)
    initial = trainer.outputs()
    trainer.train()
    trainer.save()
    second = load(trainer)
    assert_serves(first, initial, trainer)
    assert_serves(second, trainer.outputs(), trainer)
    del second
    gc.collect()
    assert refresh(first) == 1
    assert_serves(first, trainer.outputs(), trainer)


_CHILD = """
import sys, numpy as np, tensorflow as tf
tf.load_op_library(sys.argv[1])
"""
_TF2 = """
import sys, numpy as np, tensorflow as tf
path, source, out = sys.argv[1:]
global loaded
if "loaded" not in sys.modules:
    sys.modules["loaded"] = tf.saved_model.load(path)
loaded = sys.modules["loaded"]
version = loaded.signatures["refresh"]()["version"].numpy()
x = {k: tf.constant(v) for k, v in np.load(source).items()}
scores = loaded.signatures["serving_default"](**x)
np.savez(out, version=version, **{k: v.numpy() for k, v in scores.items()})
"""
# What TensorFlow Serving does.
_V1 = """
import sys, numpy as np, tensorflow as tf
path, source, out = sys.argv[1:]
if "session" not in sys.modules:
    graph = tf.Graph()
    session = tf.compat.v1.Session(graph=graph)
    with graph.as_default():
        meta = tf.compat.v1.saved_model.load(session, ["serve"], path)
    sys.modules["session"] = session, meta
session, meta = sys.modules["session"]
def run(name, features):
    signature = meta.signature_def[name]
    fetch = {k: v.name for k, v in signature.outputs.items()}
    feed = {signature.inputs[k].name: v for k, v in features.items()}
    return session.run(fetch, feed)
version = run("refresh", {})["version"]
np.savez(out, version=version, **run("serving_default", np.load(source)))
"""


@pytest.mark.parametrize("script", [_TF2, _V1], ids=["tf2", "v1"])
def test_a_process_with_the_op_library_only(trainer, script, tmp_path):
    clicks = trainer.features["clicks"]
    np.savez(
        tmp_path / "in.npz",
        clicks_values=clicks.values,
        clicks_row_splits=clicks.row_splits,
    )
    with without_lodestar(cwd=tmp_path) as process:
        process.run(_CHILD, op_library())
        for version in range(5):
            if version:
                trainer.train()
                trainer.table.remove(trainer.ids[version : version + 3])
                trainer.save(delta=version > 1)
            process.run(
                script, trainer.exported, tmp_path / "in.npz", tmp_path / "out"
            )
            got = dict(np.load(tmp_path / "out.npz"))
            assert got.pop("version") == version
            for name, value in trainer.outputs().items():
                np.testing.assert_allclose(
                    got[name], value, rtol=1e-6, atol=1e-6
                )


def test_a_version_beyond_the_cap_is_not_read_again(tmp_path):
    trainer = Trainer(tmp_path, eviction=lodestar.MaxRows(9), follow=True)
    loaded = load(trainer)
    more = lodestar.EmbeddingVariable(4, name="clicks")
    more.insert_or_assign(range(10), tf.ones([10, 4]))
    lodestar.snapshot.save(more, trainer.snapshots, dense=trainer.weights())
    for _ in range(2):
        assert refresh(loaded) == 0
        assert stats(loaded)["failures"] == 1
    trainer.train()
    trainer.save()
    assert refresh(loaded) == 2
    assert_serves(loaded, trainer.outputs(), trainer)


def test_the_environment_overrides_the_folder(trainer, tmp_path, monkeypatch):
    trainer.train()
    trainer.save()
    moved = tmp_path / "moved"
    os.rename(trainer.snapshots, moved)
    loaded = load(trainer)
    assert refresh(loaded) == 0
    monkeypatch.setenv("LODESTAR_SNAPSHOTS", str(moved))
    assert refresh(load(trainer)) == 1


def test_each_call_sees_one_version(tmp_path):
    trainer = Trainer(tmp_path, follow=True, poll_seconds=0.005)
    loaded = load(trainer)
    layer = trainer.model.layers[-1]
    layer.bias.assign([0.0])
    ids = trainer.ids

    def write(version):
        # Then every score is the version's square.
        value = float(version)
        trainer.table.insert_or_assign(ids, tf.fill([len(ids), 4], value))
        layer.kernel.assign(tf.fill([4, 1], value / 4))
        trainer.save(delta=version > 1)

    write(1)
    assert refresh(loaded) == 1
    features = {"clicks": tf.RaggedTensor.from_tensor(ids[:, None])}
    done = threading.Event()
    seen = set()
    failures = []

    def call():
        while not done.is_set():
            outputs = loaded.serve(features)
            rows = np.unique(outputs["rows"])
            scores = np.unique(outputs["score"])
            if len(rows) > 1 or len(scores) > 1 or scores != rows**2:
                failures.append((rows, scores))
            seen.add(float(rows[0]))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for version in range(2, 30):
        write(version)
        time.sleep(0.01)
    wait_until(lambda: is_at(loaded, 29) or failures)
    wait_until(lambda: 29.0 in seen or failures)
    done.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(seen) > 3


class Inner(keras.layers.Layer):
    """A layer that reads its weight and a table in a tf.function."""

    def __init__(self):
        super().__init__()
        self.table = lodestar.EmbeddingVariable(3, name="inner")

    def build(self, shape):
        self.scale = self.add_weight(name="scale", shape=(3,), dtype="bfloat16")

    @tf.function
    def _rows(self, ids):
        if tf.size(ids) > 0:
            rows = self.table.lookup(ids)
        else:
            rows = tf.zeros([0, 3])
        return rows * tf.cast(self.scale, tf.float32)

    def call(self, ids):
        return self._rows(ids)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_several_tables_and_inner_functions(dtype, tmp_path):
    tables = [
        lodestar.EmbeddingVariable(4, name=name, dtype=dtype, **options)
        for name, options in (
            ("a", {"default_row": "initial"}),
            ("b", {"default_row": lodestar.SharedRows(5)}),
        )
    ]
    ids = keras.Input((), dtype="int64", name="ids")
    rows = lodestar.layers.EmbeddingCollection(
        {
            "x": lodestar.Feature(tables[0], combiner=None, salt="x"),
            "y": lodestar.Feature(tables[1], combiner=None),
        }
    )({"x": ids, "y": ids})
    inner = Inner()
    outputs = {**rows, "inner": inner(ids)}
    model = keras.Model({"ids": ids}, outputs)
    path = str(tmp_path / "model")
    lodestar.export.save(
        model, path, follow=tmp_path / "snapshots", poll_seconds=None
    )
    loaded = tf.saved_model.load(path)
    rng = np.random.default_rng(3)
    dims = {"a": 4, "b": 4, "inner": 3}
    features = {"ids": tf.range(20, dtype=tf.int64)}
    for version in range(1, 5):
        for table in (*tables, inner.table):
            table.insert_or_assign(
                rng.choice(20, 9, replace=False),
                tf.cast(rng.normal(size=[9, dims[table.name]]), table.dtype),
            )
        inner.scale.assign(rng.normal(size=3))
        lodestar.snapshot.save(model, tmp_path / "snapshots", version > 1)
        assert refresh(loaded) == version
        got, want = loaded.serve(features), model(features)
        for name, value in want.items():
            np.testing.assert_array_equal(
                tf.cast(got[name], tf.float32), tf.cast(value, tf.float32)
            )
        assert len(loaded.serve({"ids": features["ids"][:0]})["inner"]) == 0


def test_a_model_with_a_schema(tmp_path):
    column = lodestar.data.Column
    schema = lodestar.data.Schema(
        [column.sparse("city", encoding="hash"), column.label("click")]
    )
    inputs = schema.inputs()
    table = lodestar.EmbeddingVariable(2, name="t", default_row="initial")
    rows = lodestar.layers.DynamicEmbedding(table=table, combiner="sum")
    model = keras.Model(inputs, {"rows": rows(inputs["city"])})
    path = str(tmp_path / "model")
    snapshots = tmp_path / "snapshots"
    lodestar.export.save(model, path, follow=snapshots, poll_seconds=None)
    loaded = tf.saved_model.load(path)
    ids = lodestar.hash_ids(["Rome"], column="city")
    table.insert_or_assign(ids, [[1.0, 2.0]])
    lodestar.snapshot.save(model, snapshots)
    assert refresh(loaded) == 1
    strings = {"city": tf.ragged.constant([["Rome"], []])}
    np.testing.assert_array_equal(
        loaded.serve(strings)["rows"], [[1, 2], [0, 0]]
    )
    hashed = {"city": tf.ragged.constant([ids.numpy().tolist()], tf.int64)}
    np.testing.assert_array_equal(loaded.serve_ids(hashed)["rows"], [[1, 2]])


class Words(keras.Model):
    """Scores words by a vocabulary that can change and one that cannot."""

    def __init__(self):
        super().__init__()
        self.numbers = lodestar.lookup.IdTable(
            ["a"], mutable=True, name="numbers"
        )
        self.places = lodestar.lookup.IdTable(
            np.array([5], np.int32), mutable=True, name="places"
        )
        self.fixed = lodestar.layers.IdLookup(
            ["x", "y"], mask_token="", name="fixed"
        )
        self.table = lodestar.EmbeddingVariable(
            2, name="t", default_row="initial"
        )

    def call(self, words):
        numbers = self.numbers.lookup(words)
        return {
            "numbers": numbers,
            "places": self.places.lookup(tf.strings.length(words)),
            "fixed": self.fixed(words),
            "rows": self.table.lookup(numbers),
        }


def test_id_tables_are_followed(tmp_path, monkeypatch):
    model = Words()
    words = tf.constant(["a", "b", "x", "", "long", "longer"])
    model(words)
    path, snapshots = str(tmp_path / "model"), tmp_path / "snapshots"
    lodestar.export.save(
        model,
        path,
        inputs={"words": tf.TensorSpec([None], tf.string)},
        follow=snapshots,
        poll_seconds=None,
    )
    loaded = tf.saved_model.load(path)
    for version in range(1, 6):
        if version != 4:  # where the content is that of version 3
            model.numbers.insert(["b" * version], [version])
            model.places.insert(np.array([version], np.int32), [version])
        model.table.insert_or_assign([version], [[version, version]])
        lodestar.snapshot.save(model, snapshots, delta=version > 1)
        assert refresh(loaded) == version
        got, want = loaded.serve({"words": words}), model(words)
        for name, value in want.items():
            np.testing.assert_array_equal(got[name], value)
    # A version without id tables leaves the exported ones.
    lodestar.snapshot.save([model.table], snapshots)
    assert refresh(loaded) == 6
    got = loaded.serve({"words": words})["numbers"]
    np.testing.assert_array_equal(got, [0, -1, -1, -1, -1, -1])
    # A vocabulary that is part of the model cannot change.
    other = Words()
    other.fixed.set_vocabulary(["x", "z"])
    other(words)
    lodestar.snapshot.save(other, snapshots)
    assert refresh(loaded) == 6
    assert (
        "the IdLookup 'fixed' has another vocabulary than the model"
        in stats(loaded)["last_error"].decode()
    )
    # A key has one id.
    to_arrays = id_contents.to_arrays

    def twice(table):
        arrays = to_arrays(table)
        if table is model.places:
            keys, ids = arrays["keys"], arrays["ids"]
            arrays["keys"] = np.concatenate([keys, keys])
            arrays["ids"] = np.concatenate([ids, ids + 1])
        return arrays

    monkeypatch.setattr(id_contents, "to_arrays", twice)
    lodestar.snapshot.save(model, snapshots)
    assert refresh(loaded) == 6
    error = stats(loaded)["last_error"].decode()
    assert "the id table 'places': key " in error and "has two values" in error


def test_outputs_keep_their_shapes(trainer, tmp_path):
    plain = str(tmp_path / "plain")
    lodestar.export.save(trainer.model, plain)
    both = [tf.saved_model.load(plain), load(trainer)]
    shapes = [
        {
            name: (spec.shape.as_list(), spec.dtype)
            for name, spec in model.signatures[
                "serving_default"
            ].structured_outputs.items()
        }
        for model in both
    ]
    assert shapes[0] == shapes[1]


def test_the_exporting_model_is_unchanged(trainer):
    trainer.train()
    trainer.save()
    loaded = load(trainer)
    before = trainer.outputs()
    del loaded
    gc.collect()
    for name, value in trainer.outputs().items():
        np.testing.assert_array_equal(value, before[name])


def test_invalid_options(trainer, tmp_path):
    for options, message in (
        ({"from_rows": True}, "`from_rows` and `follow` cannot be combined"),
        ({"poll_seconds": 0}, "`poll_seconds` must be a number of seconds"),
        ({"poll_seconds": "1"}, "`poll_seconds` must be a number of seconds"),
        ({"follow": "gs://x/y"}, "`follow` must be a folder of a local or"),
        ({"follow": ""}, "`follow` must be the path of a folder"),
    ):
        options = {"follow": tmp_path / "s", **options}
        with pytest.raises(ValueError, match=message):
            lodestar.export.save(trainer.model, tmp_path / "m", **options)
        assert not (tmp_path / "m").exists()


def test_snapshots_inside_the_export_are_refused(trainer, tmp_path):
    # The next export would delete them.
    path = tmp_path / "m"
    (tmp_path / "link").symlink_to(path)
    for follow in (path, path / "snapshots", tmp_path / "link" / "snapshots"):
        with pytest.raises(ValueError, match="must be outside of `path`="):
            lodestar.export.save(trainer.model, path, follow=follow)
    lodestar.export.save(trainer.model, path, follow=tmp_path / "mine")


def test_models_whose_content_cannot_be_followed(tmp_path):
    model = MutableIds()
    model(tf.constant(["a"]))
    with pytest.raises(ValueError, match="a model with an embedding table"):
        lodestar.export.save(
            model,
            tmp_path / "m",
            inputs={"words": tf.TensorSpec([None], tf.string)},
            follow=tmp_path / "s",
        )
    table = lodestar.EmbeddingVariable(4, name="t", devices=["CPU:0", "CPU:0"])
    ids = keras.Input((), dtype="int64", name="ids")
    rows = lodestar.layers.DynamicEmbedding(table=table)(ids)
    model = keras.Model({"ids": ids}, {"rows": rows})
    with pytest.raises(ValueError, match="the table 't' is on "):
        lodestar.export.save(model, tmp_path / "m", follow=tmp_path / "s")


def test_a_live_model_does_not_follow_it_as_well(trainer):
    with pytest.raises(ValueError, match="follows .*snapshots' by itself"):
        lodestar.serving.LiveModel(trainer.exported, trainer.snapshots)


def follower(**attributes):
    names = {"folder": "", "tables": ["t"], "weights": []}
    return gen_ops.lodestar_snapshot_follower(**{**names, **attributes})


@pytest.mark.parametrize(
    "attributes, message",
    [
        ({"poll_seconds": -1.0}, r"`poll_seconds` must be in \[0, 1e"),
        ({"poll_seconds": 1e10}, r"`poll_seconds` must be in \[0, 1e"),
        ({"poll_seconds": float("inf")}, r"`poll_seconds` must be in \[0, 1e"),
        ({"vocabularies": ["v"]}, "`digests` must have the length of"),
    ],
)
def test_invalid_attributes_of_the_op(attributes, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        follower(**attributes)


def test_own_resources_must_be_those_of_the_follower():
    variable = lodestar.EmbeddingVariable(2, name="t")
    table = variable._parts[0].resource_handle
    weight = tf.Variable(1.0)
    handle = follower(shared_name="other_resources", weights=["w"])
    for own in ([table], [table, weight.handle, weight.handle]):
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=f"`own` must have the 2 resources .* got {len(own)}",
        ):
            gen_ops.lodestar_snapshot_follower_resources(handle, own)
    nothing = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[])
    for own in ([table, table], [table, nothing], [weight.handle] * 2):
        with pytest.raises(tf.errors.OpError):
            gen_ops.lodestar_snapshot_follower_refresh(handle, own)
    own = [table, weight.handle]
    assert gen_ops.lodestar_snapshot_follower_refresh(handle, own) == 0
    gen_ops.lodestar_release_resource(handle)
