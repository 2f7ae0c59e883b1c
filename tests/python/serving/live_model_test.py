"""What only a LiveModel does; promises_test.py has what exports do, too."""

import copy
import gc
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from followed_models import (
    Trainer,
    assert_serves,
    flip_byte,
    serve,
    table_file,
    wait_until,
)

import lodestar
from lodestar.export.served_function import ServedFunction
from lodestar.serving import LiveModel, live_model

both_ways = pytest.mark.parametrize("consistency", ["call", "row"])


@pytest.fixture
def trainer(tmp_path):
    return Trainer(tmp_path)


def follow(trainer, consistency="call", **options):
    return serve(trainer, consistency, **options)


@both_ways
def test_optimizer_slots_are_omitted(trainer, consistency):
    live = follow(trainer, consistency)
    for delta in (False, True, True):
        trainer.train()
        trainer.save(delta=delta)
        live.poll()
    assert trainer.table.stats()["slot_bytes"] > 0
    handle = live.loaded.tables["clicks"].resource_handle
    names = lodestar._library.gen_ops.lodestar_embedding_export(
        handle, optimizer_slots=True, dtype=tf.float32
    )[6]
    assert len(names) == 0


def test_metadata(trainer):
    live = follow(trainer)
    assert live.stats()["metadata"] is None
    trainer.save(metadata={"note": "first", "x": [1, None]})
    live.poll()
    assert live.stats()["metadata"] == {"note": "first", "x": [1, None]}
    trainer.save()
    live.poll()
    assert live.stats()["metadata"] == {}


class TestThread:
    def test_it_ends_with_close(self, trainer):
        with follow(trainer, poll_seconds=0.01) as live:
            wait_until(lambda: live.stats()["polls"] > 2)
            assert live.stats()["following"]
            trainer.save()
        live.close()
        stats = live.stats()
        assert not stats["following"]
        # The model continues to serve and to load, when it is asked to.
        trainer.train()
        trainer.save()
        assert live.stats()["polls"] == stats["polls"]
        assert live.poll() and live.version() == 2
        assert_serves(live, trainer)
        assert not live.stats()["following"]

    def test_it_ends_with_the_model(self, trainer):
        before = set(os.listdir("/proc/self/task"))
        live = follow(trainer, poll_seconds=0.02)
        assert set(os.listdir("/proc/self/task")) > before
        del live
        gc.collect()
        wait_until(lambda: set(os.listdir("/proc/self/task")) <= before)

    def test_the_model_is_not_copied(self, trainer):
        live = follow(trainer)
        for copied in (copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="LiveModel cannot be copi"):
                copied(live)


class TestRollback:
    @both_ways
    def test_it_serves_the_old_version_until_asked_to_follow(
        self, trainer, consistency
    ):
        outputs = {}
        for version in (1, 2, 3):
            trainer.train()
            trainer.save(delta=version > 1)
            outputs[version] = trainer.outputs()
        live = follow(trainer, consistency)
        assert live.version() == 3
        for version in (3, 1, 2, 3, 1):
            live.rollback(version)
            assert live.version() == version
            got = live(trainer.features)
            for name, value in outputs[version].items():
                np.testing.assert_allclose(got[name], value, 1e-6, 1e-6)
        trainer.train()
        trainer.save(delta=True)
        assert not live.poll()
        stats = live.stats()
        assert stats["pinned"] and stats["version"] == 1
        assert (stats["newest_version"], stats["lag_versions"]) == (4, 3)
        live.follow()
        assert live.poll() and live.version() == 4
        assert_serves(live, trainer)
        assert not live.stats()["pinned"]

    @both_ways
    def test_an_error_changes_nothing(self, trainer, consistency):
        for version in (1, 2, 3):
            trainer.train()
            trainer.save(delta=version > 1)
        live = follow(trainer, consistency)
        with pytest.raises(
            lodestar.snapshot.SnapshotError,
            match="has no version 9; it has 1, 2, 3",
        ):
            live.rollback(9)
        with pytest.raises(ValueError, match="`version` must be .* got 0"):
            live.rollback(0)
        flip_byte(table_file(trainer.snapshots, 2))
        with pytest.raises(
            lodestar.snapshot.CorruptSnapshotError, match="00000002"
        ):
            live.rollback(2)
        assert live.version() == 3 and not live.stats()["pinned"]
        assert_serves(live, trainer)
        other = lodestar.EmbeddingVariable(3, name="clicks")
        lodestar.snapshot.save(
            other, trainer.snapshots, dense=trainer.weights()
        )
        with pytest.raises(
            lodestar.snapshot.SnapshotError, match="'clicks' has dim 3"
        ):
            live.rollback(4)
        trainer.save()
        assert live.poll() and live.version() == 5


class TestOtherModels:
    def test_tables_by_other_names(self, trainer):
        trainer.train()
        lodestar.snapshot.save(
            {
                "of_training": trainer.table,
                "not read": lodestar.EmbeddingVariable(9, name="other"),
            },
            trainer.snapshots,
            dense=trainer.weights(),
        )
        with pytest.raises(
            lodestar.snapshot.SnapshotError,
            match="no table 'clicks', which the model reads; it has "
            "'not read', 'of_training'. .* use `rename` of LiveModel",
        ):
            follow(trainer)
        live = follow(trainer, rename={"of_training": "clicks"})
        assert_serves(live, trainer)
        with pytest.raises(ValueError, match="`rename` maps 'a' to 'b'"):
            follow(trainer, rename={"a": "b"})

    def test_without_weights(self, trainer):
        trainer.train()
        lodestar.snapshot.save(trainer.table, trainer.snapshots)
        with pytest.raises(
            lodestar.snapshot.SnapshotError, match="has no weight 'dense"
        ):
            follow(trainer)
        live = follow(trainer, weights="keep")
        want, got = trainer.outputs(), live(trainer.features)
        np.testing.assert_array_equal(got["rows"], want["rows"])
        assert (got["score"] != want["score"]).numpy().any()

    def test_the_newest_error_of_a_model_is_raised(self, trainer):
        """Unless a version fits; a damaged one is not an error."""
        for dim in (3, 5, 4):
            lodestar.snapshot.save(
                lodestar.EmbeddingVariable(dim, name="clicks"),
                trainer.snapshots,
                dense=trainer.weights(),
            )
        path = table_file(trainer.snapshots, 3)
        flip_byte(path)
        with pytest.raises(
            lodestar.snapshot.SnapshotError,
            match="'clicks' has dim 5 and dtype float32, but dim 4",
        ):
            follow(trainer)
        flip_byte(path)
        assert follow(trainer).version() == 3


class TestArguments:
    def test_wrong_ones(self, trainer, tmp_path):
        for seconds in (0, -1, "1", True, float("nan"), 1e7):
            with pytest.raises(ValueError, match="`poll_seconds` must be"):
                follow(trainer, poll_seconds=seconds)
        with pytest.raises(ValueError, match="`weights`='drop' is not in"):
            follow(trainer, weights="drop")
        with pytest.raises(ValueError, match="`consistency`='table' is not in"):
            follow(trainer, "table")
        with pytest.raises(ValueError, match="`snapshots` .* local or mounted"):
            LiveModel(trainer.exported, "gs://bucket/snapshots")
        with pytest.raises(FileNotFoundError, match="exist, .* lodestar.expo"):
            LiveModel(tmp_path / "nowhere", trainer.snapshots)
        lodestar.export.save_plain(trainer.model, tmp_path / "plain")
        with pytest.raises(
            ValueError, match="/plain' was written by export.save_plain"
        ):
            LiveModel(tmp_path / "plain", trainer.snapshots)

    def test_an_export_that_follows(self, tmp_path):
        trainer = Trainer(tmp_path, follow=True)
        with pytest.raises(ValueError, match="follows .*snapshots' by itself"):
            follow(trainer)

    def test_the_folder_is_the_one_of_the_argument(
        self, trainer, monkeypatch, tmp_path
    ):
        trainer.save()
        monkeypatch.setenv("LODESTAR_SNAPSHOTS", str(tmp_path / "others"))
        monkeypatch.chdir(tmp_path)
        live = LiveModel(trainer.exported, "snapshots", None)
        monkeypatch.chdir("/")
        assert live.version() == 1
        trainer.save()
        assert live.poll() and live.version() == 2

    def test_the_only_input(self, trainer):
        live = follow(trainer)
        want = live(trainer.features)
        clicks = trainer.features["clicks"]
        for call in (live, tf.function(live)):
            got = call(clicks)
            np.testing.assert_array_equal(got["rows"], want["rows"])
        with pytest.raises(ValueError, match=r"'click'\]\. Did you mean 'cl"):
            live({"click": clicks})
        with pytest.raises(
            ValueError, match="'clicks' must be ragged int64 .*, got"
        ):
            live(clicks.to_tensor())

    def test_a_model_that_tensorflow_loads_as_its_own(self, trainer):
        loaded = tf.saved_model.load(str(trainer.exported))

        class Loaded(tf.Module):
            """Has a function as an attribute, as TensorFlow's objects do."""

        plain = Loaded()
        vars(plain)["__call__"] = vars(loaded.serve)["__call__"]
        serve = ServedFunction.of(plain)
        assert serve(trainer.features["clicks"])["score"].shape == (32, 1)

    def test_stats_inside_a_tf_function(self, trainer):
        live = follow(trainer)
        with pytest.raises(
            RuntimeError, match="`LiveModel.stats` returns Python objects"
        ):
            tf.function(live.stats)()
        assert tf.function(lambda: live.version() or 7)() == 7


@pytest.mark.parametrize("half", [False, True])
def test_an_export_that_is_replaced_while_it_is_loaded(
    trainer, monkeypatch, half
):
    load, loads = tf.saved_model.load, []

    def replace_and_load(path):
        loads.append(path)
        if len(loads) == 1:
            lodestar.export.save(trainer.model, path)
            if half:
                raise tf.errors.DataLossError(None, None, "of two exports")
        return load(path)

    monkeypatch.setattr(tf.saved_model, "load", replace_and_load)
    assert_serves(follow(trainer), trainer)
    assert len(loads) == 2
    changing = iter(range(100))
    monkeypatch.setattr(live_model, "_fingerprint", lambda path: next(changing))
    with pytest.raises(OSError, match="was replaced during each"):
        follow(trainer)


def test_an_export_that_cannot_be_loaded(trainer, monkeypatch):
    def load(path):
        raise tf.errors.DataLossError(None, None, "a disk is gone")

    monkeypatch.setattr(tf.saved_model, "load", load)
    with pytest.raises(tf.errors.DataLossError, match="a disk is gone"):
        follow(trainer)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_oov_indices": 0},
        {"mask_token": "m", "output_mode": "count"},
        {"oov_ids": "last", "mask_token": "m", "num_oov_indices": 2},
    ],
    ids=str,
)
def test_id_lookups_of_every_numbering_are_followed(tmp_path, options):
    def model(vocabulary):
        words = keras.Input((2,), dtype="string", name="words")
        users = keras.Input((2,), dtype="int64", name="users")
        lookup = lodestar.layers.IdLookup(vocabulary, name="ids", **options)
        rows = lodestar.layers.DynamicEmbedding(2, name="rows")(users)
        return keras.Model(
            {"words": words, "users": users},
            {"ids": lookup(words), "rows": rows},
        )

    served = model(["a", "b"])
    lodestar.export.save(served, tmp_path / "model")
    lodestar.snapshot.save(served, tmp_path / "snapshots")
    live = LiveModel(tmp_path / "model", tmp_path / "snapshots", None)
    assert live.version() == 1
    words = tf.constant([["b", "a"]])
    users = tf.constant([[1, 2]], tf.int64)
    np.testing.assert_array_equal(
        live({"words": words, "users": users})["ids"],
        served.get_layer("ids")(words),
    )
    # Its first key missing, as if it were a mask token.
    for vocabulary in (["b"], ["b", "a"]):
        lodestar.snapshot.save(model(vocabulary), tmp_path / "snapshots")
        assert not live.poll()
        assert "another vocabulary" in live.stats()["last_error"]


@both_ways
def test_a_table_in_parts(tmp_path, consistency):
    table = lodestar.EmbeddingVariable(2, name="t", devices=["CPU:0", "CPU:0"])
    ids = keras.Input((), dtype="int64", name="ids")
    rows = lodestar.layers.DynamicEmbedding(table=table)(ids)
    model = keras.Model({"ids": ids}, {"rows": rows})
    lodestar.export.save(model, tmp_path / "model")
    snapshots = tmp_path / "snapshots"
    live = LiveModel(
        tmp_path / "model", snapshots, None, consistency=consistency
    )
    features = {"ids": tf.range(30, dtype=tf.int64)}
    for number in (1, 2, 3, 4):
        table.insert_or_assign(
            range(number, 20), tf.fill([20 - number, 2], 1.0 * number)
        )
        table.remove([number + 4])
        lodestar.snapshot.save(table, snapshots, delta=number > 1)
        assert live.poll() and live.version() == number
        np.testing.assert_array_equal(
            live(features)["rows"], model(features)["rows"]
        )
        assert live.stats()["rows"] == {"t": int(table.size())}
    assert live.stats()["full_updates"] == (2 if consistency == "call" else 1)
    assert live.stats()["rows_removed"] > 0


def test_a_model_without_an_embedding_table(tmp_path):
    class Ids(keras.Model):
        """Looks up words in an id table that can change."""

        def __init__(self):
            super().__init__()
            self.table = lodestar.lookup.IdTable(
                ["a"], mutable=True, name="ids"
            )

        def call(self, words):
            return self.table.lookup(words)

    model = Ids()
    model(tf.constant([["a"]]))
    inputs = {"words": tf.TensorSpec([None, None], tf.string)}
    lodestar.export.save(model, tmp_path / "model", inputs=inputs)
    live = LiveModel(tmp_path / "model", tmp_path / "snapshots", None)
    words = {"words": tf.constant([["a", "b", "c"]])}
    for number in (1, 2, 3):
        model.table.load(["b", "c"][: 1 + number % 2], [7, 9][: 1 + number % 2])
        lodestar.snapshot.save(model, tmp_path / "snapshots", delta=number > 1)
        assert live.poll()
        want = model(words["words"])
        np.testing.assert_array_equal(live(words)["output_0"], want)
    with pytest.raises(ValueError, match="a model with an embedding table"):
        lodestar.export.save(
            model, tmp_path / "m", inputs=inputs, follow=tmp_path / "s"
        )
