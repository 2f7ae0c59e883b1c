"""Exports that follow a snapshot folder in any process with the op library."""

import gc
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from followed_models import Export, Trainer, assert_serves, wait_until
from processes import without_lodestar
from served_models import op_library

import lodestar
from lodestar._library import gen_ops


@pytest.fixture
def trainer(tmp_path):
    return Trainer(tmp_path, follow=True)


def load(trainer):
    return Export(trainer.exported, trainer.snapshots)


def test_verify_compares_the_newest_version(trainer, monkeypatch):
    monkeypatch.setenv("LODESTAR_SNAPSHOTS", str(trainer.snapshots))
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
    np.testing.assert_array_equal(
        first(trainer.features)["rows"], initial["rows"]
    )
    assert_serves(second, trainer)
    before = trainer.outputs()
    del second
    gc.collect()
    assert first.poll() and first.version() == 1
    assert_serves(first, trainer)
    # Nor does the model that was exported change.
    del first
    gc.collect()
    for name, value in trainer.outputs().items():
        np.testing.assert_array_equal(value, before[name])


def test_the_thread_ends_with_the_model(tmp_path):
    trainer = Trainer(tmp_path, follow=True, poll_seconds=0.02)
    before = set(os.listdir("/proc/self/task"))
    loaded = load(trainer)
    assert loaded.stats()["following"]
    del loaded
    gc.collect()
    wait_until(lambda: set(os.listdir("/proc/self/task")) <= before)


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
def test_a_process_with_the_op_library_only(
    trainer, script, tmp_path, monkeypatch
):
    monkeypatch.setenv("LODESTAR_SNAPSHOTS", str(trainer.snapshots))
    clicks = trainer.features["clicks"]
    np.savez(
        tmp_path / "in.npz",
        clicks_values=clicks.values,
        clicks_row_splits=clicks.row_splits,
    )
    with without_lodestar(cwd=tmp_path) as process:
        process.run(_CHILD, op_library())
        for version in range(4):
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


def test_the_environment_overrides_the_folder(trainer, tmp_path, monkeypatch):
    exported = str(tmp_path / "own")
    lodestar.export.save(trainer.model, exported, follow=trainer.snapshots)
    trainer.save()
    refresh = tf.saved_model.load(exported).signatures["refresh"]
    assert refresh()["version"] == 1
    monkeypatch.setenv("LODESTAR_SNAPSHOTS", str(tmp_path / "moved"))
    refresh = tf.saved_model.load(exported).signatures["refresh"]
    assert refresh()["version"] == 0


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


def test_tables_on_devices_are_refused(tmp_path):
    table = lodestar.EmbeddingVariable(4, name="t", devices=["CPU:0", "CPU:0"])
    ids = keras.Input((), dtype="int64", name="ids")
    rows = lodestar.layers.DynamicEmbedding(table=table)(ids)
    model = keras.Model({"ids": ids}, {"rows": rows})
    with pytest.raises(ValueError, match="the table 't' is on "):
        lodestar.export.save(model, tmp_path / "m", follow=tmp_path / "s")


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
        ({"parts": [1, 1]}, "`parts` must have the length of `tables`, 1"),
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
    version = gen_ops.lodestar_snapshot_follower_resources(handle, own).version
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="less than 2, got 2"
    ):
        gen_ops.lodestar_snapshot_follower_table(version, index=2)
    gen_ops.lodestar_release_resource(handle)
