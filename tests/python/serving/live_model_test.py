"""Tests of LiveModel while snapshots appear, disappear and break."""

import copy
import gc
import math
import shutil
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from followed_models import (
    Trainer,
    flip_byte,
    table_file,
    wait_until,
)

import lodestar
from lodestar.serving import LiveModel
from lodestar.serving.served_content import ServedContent


@pytest.fixture
def trainer(tmp_path):
    return Trainer(tmp_path)


def follow(trainer, **options):
    return LiveModel(
        trainer.exported, trainer.snapshots, poll_seconds=None, **options
    )


def wait_until_served(live, version):
    wait_until(lambda: live.version() == version)


def assert_serves(live, trainer):
    """Checks that `live` returns the outputs of the trained model."""
    want = trainer.outputs()
    got = live(trainer.features)
    np.testing.assert_array_equal(got["rows"], want["rows"])
    np.testing.assert_allclose(
        got["score"], want["score"], rtol=1e-6, atol=1e-6
    )


def test_the_newest_snapshot_is_served_and_deltas_follow(trainer):
    trainer.train()
    trainer.save()
    live = follow(trainer)
    assert live.version() == 1
    assert_serves(live, trainer)
    stats = live.stats()
    assert (stats["updates"], stats["full_updates"]) == (1, 1)
    for version in (2, 3):
        trainer.train()
        trainer.save(delta=True)
        assert live.poll()
        assert live.version() == version
        assert_serves(live, trainer)
    stats = live.stats()
    assert (stats["updates"], stats["full_updates"]) == (3, 1)
    assert stats["last_error"] is None
    assert not live.poll()


def test_several_deltas_at_once(trainer):
    trainer.train()
    trainer.save()
    live = follow(trainer)
    for _ in range(3):
        trainer.train()
        trainer.save(delta=True)
    assert live.poll() and live.version() == 4
    assert_serves(live, trainer)
    assert live.stats()["full_updates"] == 1


def test_removed_rows_go(trainer):
    trainer.train()
    trainer.save()
    live = follow(trainer)
    before = live.stats()["rows"]
    assert int(trainer.table.remove(trainer.table.export().ids[:3])) == 3
    trainer.save(delta=True)
    live.poll()
    assert_serves(live, trainer)
    stats = live.stats()
    assert stats["rows"]["clicks"] == before["clicks"] - 3
    assert stats["rows_removed"] == 3


def test_optimizer_slots_are_omitted(trainer):
    trainer.train()
    trainer.save()
    live = follow(trainer)
    assert trainer.table.stats()["slot_bytes"] > 0
    trainer.train()
    trainer.save(delta=True)
    live.poll()
    handle = live.loaded.tables["clicks"].resource_handle
    names = lodestar._library.gen_ops.lodestar_embedding_export(
        handle, optimizer_slots=True, dtype=tf.float32
    )[6]
    assert len(names) == 0


def test_without_snapshots_the_saved_model_is_served(trainer):
    want = trainer.outputs()
    live = follow(trainer)
    assert live.version() is None
    np.testing.assert_array_equal(live(trainer.features)["rows"], want["rows"])
    stats = live.stats()
    assert stats["version"] is None and stats["newest_version"] is None
    assert stats["last_error"] is None and stats["updates"] == 0
    assert not live.poll()
    trainer.train()
    trainer.save()
    assert live.poll() and live.version() == 1
    assert_serves(live, trainer)


def test_signatures_follow_snapshots(trainer):
    trainer.train()
    trainer.save()
    live = follow(trainer)
    ragged = trainer.features["clicks"]
    got = live.signatures["serving_default"](
        clicks_values=ragged.values, clicks_row_splits=ragged.row_splits
    )
    np.testing.assert_array_equal(got["rows"], trainer.outputs()["rows"])


def test_stats_describe_the_served_version(trainer):
    trainer.train()
    info = trainer.save(metadata={"note": "first"})
    began = time.monotonic()
    live = follow(trainer)
    stats = live.stats()
    seconds = time.monotonic() - began
    assert stats["version"] == info.version == 1
    assert stats["step"] == info.step
    assert stats["snapshot_time"] == info.time
    assert stats["metadata"] == {"note": "first"}
    assert stats["rows"] == {"clicks": int(trainer.table.size())}
    assert stats["bytes"] == info.bytes
    assert 0 <= stats["seconds_since_update"] < seconds
    assert 0 < stats["last_update_seconds"] < seconds
    assert stats["polls"] == 1 and not stats["following"]
    assert (stats["newest_version"], stats["lag_versions"]) == (1, 0)


def test_stats_match_the_visible_version(trainer, monkeypatch):
    live = follow(trainer)
    trainer.train()
    trainer.save()
    path = table_file(trainer.snapshots, 1)
    flip_byte(path)
    assert not live.poll()
    flip_byte(path)
    swap, seen = live._copies.swap, []

    def swap_and_look():
        swap()
        seen.append(live.stats())

    monkeypatch.setattr(live._copies, "swap", swap_and_look)
    assert live.poll()
    (stats,) = seen
    assert stats["version"] == 1 and stats["last_error"] is None
    assert stats["seconds_since_update"] >= 0


def test_stats_while_one_copy_loads_its_first_version(trainer, monkeypatch):
    live = follow(trainer, consistency="row")
    trainer.train()
    trainer.save()
    take, seen = ServedContent.take_whole, []

    def take_and_look(*arguments, **options):
        taken = take(*arguments, **options)
        seen.append(live.stats())
        return taken

    monkeypatch.setattr(ServedContent, "take_whole", take_and_look)
    assert live.poll()
    (stats,) = seen
    assert stats["version"] == 1 and stats["seconds_since_update"] == 0


class TestThread:
    def test_it_follows(self, trainer):
        trainer.train()
        trainer.save()
        with LiveModel(trainer.exported, trainer.snapshots, 0.02) as live:
            assert live.stats()["following"]
            for version in (2, 3):
                trainer.train()
                trainer.save(delta=True)
                wait_until_served(live, version)
                assert_serves(live, trainer)
        assert not live.stats()["following"]
        trainer.train()
        trainer.save(delta=True)
        time.sleep(0.1)
        assert live.version() == 3

    def test_it_ends_with_the_model(self, trainer):
        live = LiveModel(trainer.exported, trainer.snapshots, 0.02)
        thread = live._thread
        assert thread.is_alive() and thread.daemon
        live.close()
        live.close()
        assert not thread.is_alive()
        live = LiveModel(trainer.exported, trainer.snapshots, 0.02)
        thread = live._thread
        del live
        gc.collect()
        thread.join(300)
        assert not thread.is_alive()

    def test_it_is_not_copied(self, trainer):
        trainer.save()
        with LiveModel(trainer.exported, trainer.snapshots, None) as live:
            for copied in (copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match="LiveModel cannot be copi"):
                    copied(live)

    def test_it_continues_after_an_error(self, trainer):
        trainer.train()
        trainer.save()
        trainer.train()
        trainer.save(delta=True)
        path = table_file(trainer.snapshots, 2)
        flip_byte(path)
        with LiveModel(trainer.exported, trainer.snapshots, 0.01) as live:
            wait_until(lambda: live.stats()["failures"] > 1)
            assert live.version() == 1
            assert str(path) in live.stats()["last_error"]
            flip_byte(path)
            wait_until_served(live, 2)
            assert_serves(live, trainer)
            assert live.stats()["last_error"] is None

    def test_it_tries_less_and_less_often(self, trainer):
        trainer.train()
        trainer.save()
        flip_byte(table_file(trainer.snapshots, 1))
        began = time.monotonic()
        with LiveModel(trainer.exported, trainer.snapshots, 0.01) as live:
            wait_until(lambda: live.stats()["polls"] > 60)
            failures = live.stats()["failures"]
            seconds = time.monotonic() - began
        # After 2, 6, 14, 30, ... hundredths of a second or later; then every
        # minute.
        most = math.log2(seconds / 0.01 + 2) + seconds / 60
        assert 2 <= failures <= most < 60


class Fails:
    """A variable whose first assignments fail.

    As if memory ran out between tables and weights.
    """

    def __init__(self, variable, times):
        self.shape, self.dtype = variable.shape, variable.dtype
        self._variable = variable
        self._times = times

    @classmethod
    def replace_first(cls, live, times=1):
        variables = live._copies.idle(10)._weights
        name = next(iter(variables))
        variables[name] = cls(variables[name], times)

    def assign(self, value):
        if self._times:
            self._times -= 1
            raise MemoryError("no memory")
        self._variable.assign(value)


both_ways = pytest.mark.parametrize("live", ["call", "row"], indirect=True)


class TestBrokenSnapshots:
    @pytest.fixture
    def live(self, trainer, request):
        trainer.train()
        trainer.save()
        live = follow(trainer, consistency=getattr(request, "param", "call"))
        trainer.train()
        return live

    def assert_left_out(self, live, trainer, message, version=1):
        before = live(trainer.features)
        assert not live.poll()
        assert live.version() == version
        after = live(trainer.features)
        for name in before:
            np.testing.assert_array_equal(after[name], before[name])
        stats = live.stats()
        assert message in stats["last_error"], stats["last_error"]
        assert stats["failures"] > 0

    @pytest.mark.parametrize(
        "delta, file", [(True, "table-00000"), (False, "blobs")]
    )
    def test_a_flipped_byte(self, live, trainer, delta, file):
        trainer.save(delta=delta)
        path = trainer.snapshots / "00000002" / file
        flip_byte(path)
        self.assert_left_out(live, trainer, str(path))
        flip_byte(path)
        assert live.poll() and live.version() == 2
        assert_serves(live, trainer)
        assert live.stats()["last_error"] is None

    @pytest.mark.parametrize("file", ["table-00000", "blobs"])
    def test_files_of_two_versions_exchanged(self, live, trainer, file):
        trainer.train()
        trainer.save()
        path = trainer.snapshots / "00000002" / file
        content = path.read_bytes()
        path.write_bytes((trainer.snapshots / "00000001" / file).read_bytes())
        self.assert_left_out(live, trainer, str(path))
        path.write_bytes(content)
        assert live.poll() and live.version() == 2

    @pytest.mark.parametrize("delta", [True, False])
    def test_a_file_cut_or_missing(self, live, trainer, delta):
        trainer.save(delta=delta)
        path = table_file(trainer.snapshots, 2)
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        self.assert_left_out(live, trainer, f"{path}: is truncated")
        path.unlink()
        self.assert_left_out(live, trainer, f"{path}: is missing")
        path.write_bytes(content)
        assert live.poll()
        assert_serves(live, trainer)

    def test_a_manifest_that_does_not_exist_yet(self, live, trainer):
        trainer.save(delta=True)
        manifest = trainer.snapshots / "00000002" / "MANIFEST"
        partial = manifest.with_name("MANIFEST.partial")
        manifest.rename(partial)
        assert not live.poll()
        assert live.stats()["last_error"] is None
        partial.rename(manifest)
        assert live.poll()
        assert_serves(live, trainer)

    def test_a_manifest_that_is_broken(self, live, trainer):
        trainer.save(delta=True)
        manifest = trainer.snapshots / "00000002" / "MANIFEST"
        flip_byte(manifest)
        self.assert_left_out(live, trainer, str(manifest))

    @pytest.mark.parametrize("delta", [True, False])
    def test_the_newest_that_can_be_read_is_served(self, live, trainer, delta):
        trainer.save(delta=True)
        want = trainer.outputs()["rows"]
        trainer.train()
        trainer.save(delta=delta)
        flip_byte(table_file(trainer.snapshots, 3))
        assert live.poll()
        assert live.version() == 2
        np.testing.assert_array_equal(live(trainer.features)["rows"], want)
        stats = live.stats()
        assert str(table_file(trainer.snapshots, 3)) in stats["last_error"]
        assert (stats["newest_version"], stats["lag_versions"]) == (3, 1)

    @both_ways
    def test_a_failed_update_is_rolled_back(self, live, trainer):
        Fails.replace_first(live)
        trainer.save(delta=True)
        self.assert_left_out(live, trainer, "no memory")
        assert live.poll() and live.version() == 2
        assert_serves(live, trainer)

    @both_ways
    def test_a_failed_rollback_is_undone(self, live, trainer):
        trainer.save(delta=True)
        live.poll()
        Fails.replace_first(live)
        with pytest.raises(MemoryError):
            live.rollback(1)
        assert live.version() == 2 and not live.stats()["pinned"]
        assert_serves(live, trainer)

    @both_ways
    def test_a_failure_without_rollback_is_repaired(self, live, trainer):
        Fails.replace_first(live, times=2)
        trainer.save(delta=True)
        assert not live.poll() and live.version() == 1
        assert live.poll() and live.version() == 2
        assert live.stats()["full_updates"] == 2
        assert_serves(live, trainer)

    def test_versions_based_on_a_broken_one_are_skipped(self, live, trainer):
        trainer.save(delta=True)
        trainer.train()
        trainer.save(delta=True)
        path = table_file(trainer.snapshots, 2)
        flip_byte(path)
        self.assert_left_out(live, trainer, str(path))
        # A full snapshot needs none of them.
        trainer.save()
        assert live.poll() and live.version() == 4
        assert_serves(live, trainer)

    def test_a_broken_version_at_the_start_is_not_an_error(self, live, trainer):
        flip_byte(table_file(trainer.snapshots, 1))
        other = follow(trainer)
        assert other.version() is None
        assert "table-00000" in other.stats()["last_error"]

    def test_a_missing_parent(self, live, trainer):
        trainer.save(delta=True)
        trainer.train()
        trainer.save(delta=True)
        shutil.rmtree(trainer.snapshots / "00000002")
        self.assert_left_out(live, trainer, "00000002/MANIFEST is missing")


class TestRollback:
    @pytest.fixture
    def rows(self, trainer):
        """Returns {version: the rows of its lookup}."""
        rows = {}
        for version in (1, 2, 3):
            trainer.train()
            trainer.save(delta=version > 1)
            rows[version] = trainer.outputs()["rows"]
        return rows

    def test_it_serves_the_old_version_until_asked_to_follow(
        self, trainer, rows
    ):
        live = follow(trainer)
        assert live.version() == 3
        live.rollback(3)
        assert live.stats()["full_updates"] == 1
        for version in (1, 2, 3, 1):
            live.rollback(version)
            assert live.version() == version
            got = live(trainer.features)["rows"]
            np.testing.assert_array_equal(got, rows[version])
        trainer.train()
        trainer.save(delta=True)
        assert not live.poll()
        stats = live.stats()
        assert stats["pinned"] and stats["version"] == 1
        assert (stats["newest_version"], stats["lag_versions"]) == (4, 3)
        live.follow()
        assert live.poll() and live.version() == 4
        assert_serves(live, trainer)
        # It got there by deltas.
        assert live.stats()["full_updates"] == stats["full_updates"]
        assert not live.stats()["pinned"]

    def test_weights_are_rolled_back(self, trainer):
        trainer.train()
        trainer.save()
        want = trainer.outputs()["score"]
        trainer.train()
        trainer.save(delta=True)
        live = follow(trainer)
        live.rollback(1)
        np.testing.assert_allclose(
            live(trainer.features)["score"], want, rtol=1e-6, atol=1e-6
        )

    def test_an_error_changes_nothing(self, trainer, rows):
        live = follow(trainer)
        with pytest.raises(lodestar.snapshot.SnapshotError, match="version 9"):
            live.rollback(9)
        with pytest.raises(ValueError, match="`version` must be .* got 0"):
            live.rollback(0)
        flip_byte(table_file(trainer.snapshots, 2))
        with pytest.raises(
            lodestar.snapshot.CorruptSnapshotError, match="00000002"
        ):
            live.rollback(2)
        assert live.version() == 3 and not live.stats()["pinned"]
        got = live(trainer.features)["rows"]
        np.testing.assert_array_equal(got, rows[3])
        trainer.save()
        assert live.poll() and live.version() == 4


class TestOtherFolders:
    def test_compaction_needs_no_update(self, trainer):
        trainer.train()
        trainer.save()
        trainer.train()
        trainer.save(delta=True)
        live = follow(trainer)
        lodestar.snapshot.compact(trainer.snapshots)
        assert live.poll()
        assert live.version() == 3
        assert live.stats()["updates"] == 1
        assert_serves(live, trainer)
        trainer.train()
        trainer.save(delta=True)
        assert live.poll() and live.version() == 4
        stats = live.stats()
        assert (stats["updates"], stats["full_updates"]) == (2, 1)
        assert_serves(live, trainer)

    def test_a_version_with_an_unknown_parent_is_read_completely(self, trainer):
        trainer.save()
        live = follow(trainer)
        for _ in range(2):
            trainer.train()
            trainer.save()
            lodestar.snapshot.compact(trainer.snapshots)
        trainer.train()
        trainer.save(delta=True)
        assert live.poll()
        assert live.stats()["full_updates"] == 2
        assert_serves(live, trainer)

    def test_a_folder_that_starts_over(self, trainer):
        for _ in range(3):
            trainer.train()
            trainer.save()
        live = follow(trainer)
        shutil.rmtree(trainer.snapshots)
        assert not live.poll()
        assert live.version() == 3
        assert_serves(live, trainer)
        trainer.train()
        trainer.save()
        assert live.poll()
        assert (
            live.version()
            == lodestar.snapshot.versions(trainer.snapshots)[-1].version
        )
        assert_serves(live, trainer)

    def test_tables_by_other_names(self, trainer):
        trainer.train()
        lodestar.snapshot.save(
            {"of_training": trainer.table},
            trainer.snapshots,
            dense=trainer.weights(),
        )
        with pytest.raises(
            lodestar.snapshot.SnapshotError,
            match="no table 'clicks', which the model reads; it has "
            "'of_training'",
        ):
            follow(trainer)
        live = follow(trainer, rename={"of_training": "clicks"})
        assert_serves(live, trainer)
        with pytest.raises(ValueError, match="`rename` maps 'a' to 'b'"):
            follow(trainer, rename={"a": "b"})

    def test_tables_that_the_model_does_not_read(self, trainer):
        trainer.train()
        other = lodestar.EmbeddingVariable(9, name="other")
        lodestar.snapshot.save(
            [trainer.table, other], trainer.snapshots, dense=trainer.weights()
        )
        assert_serves(follow(trainer), trainer)


class TestWeights:
    def test_without_them_it_is_an_error(self, trainer):
        trainer.train()
        lodestar.snapshot.save(trainer.table, trainer.snapshots)
        with pytest.raises(
            lodestar.snapshot.SnapshotError, match="has no weights 'dense"
        ):
            follow(trainer)
        live = follow(trainer, weights="keep")
        want = trainer.outputs()
        np.testing.assert_array_equal(
            live(trainer.features)["rows"], want["rows"]
        )
        assert (live(trainer.features)["score"] != want["score"]).numpy().any()

    def test_other_shapes(self, trainer):
        trainer.save()
        live = follow(trainer)
        weights = dict(trainer.weights())
        name = next(iter(weights))
        lodestar.snapshot.save(
            trainer.table,
            trainer.snapshots,
            delta=True,
            dense={**weights, name: tf.zeros([3, 1])},
        )
        before = live(trainer.features)
        assert not live.poll()
        assert "shape (3, 1)" in live.stats()["last_error"]
        after = live(trainer.features)
        np.testing.assert_array_equal(after["rows"], before["rows"])
        assert live.version() == 1


def test_a_snapshot_of_another_model(trainer):
    table = lodestar.EmbeddingVariable(3, name="clicks")
    lodestar.snapshot.save(table, trainer.snapshots, dense=trainer.weights())
    with pytest.raises(
        lodestar.snapshot.SnapshotError,
        match="'clicks' has dim 3, but 4 in the model",
    ):
        follow(trainer)


def test_a_table_with_a_limit_loads_deltas(tmp_path):
    trainer = Trainer(tmp_path, eviction=lodestar.MaxRows(40))
    trainer.train()
    trainer.save()
    live = follow(trainer)
    trainer.train()
    trainer.save(delta=True)
    assert live.poll() and live.version() == 2
    assert live.stats()["full_updates"] == 1
    assert_serves(live, trainer)


def test_wrong_arguments(trainer, tmp_path):
    for seconds in (0, -1, "1", True, float("nan")):
        with pytest.raises(ValueError, match="`poll_seconds` must be"):
            LiveModel(trainer.exported, trainer.snapshots, seconds)
    with pytest.raises(ValueError, match="`weights`='drop' is not in"):
        follow(trainer, weights="drop")
    with pytest.raises(ValueError, match="local or mounted"):
        LiveModel(trainer.exported, "gs://bucket/snapshots")
    with pytest.raises(FileNotFoundError, match="exist, .* lodestar.export"):
        LiveModel(tmp_path / "nowhere", trainer.snapshots)
    lodestar.export.save_plain(trainer.model, tmp_path / "plain")
    with pytest.raises(
        ValueError, match="/plain' was written by export.save_plain"
    ):
        LiveModel(tmp_path / "plain", trainer.snapshots)


class TestIdTables:
    def model(self, keys):
        words = keras.Input((None,), dtype="string", ragged=True, name="words")
        lookup = lodestar.layers.IdLookup(vocabulary=keys, name="word_ids")
        table = lodestar.EmbeddingVariable(2, name="word_rows")
        embed = lodestar.layers.DynamicEmbedding(table=table, combiner="sum")
        model = keras.Model(words, embed(lookup(words)))
        model.compile(lodestar.optimizers.Adagrad(), "mse")
        return model

    def test_the_vocabulary_of_the_model_is_required(self, tmp_path):
        model = self.model(["a", "b"])
        lodestar.export.save(model, tmp_path / "model")
        lodestar.snapshot.save(model, tmp_path / "snapshots")
        live = LiveModel(tmp_path / "model", tmp_path / "snapshots", None)
        assert live.version() == 1
        lodestar.snapshot.save(self.model(["b", "a"]), tmp_path / "snapshots")
        assert not live.poll()
        assert "another vocabulary" in live.stats()["last_error"]
        assert live.version() == 1


def test_stats_inside_a_tf_function_raises(trainer):
    live = follow(trainer)
    with pytest.raises(
        RuntimeError, match="`LiveModel.stats` returns Python objects"
    ):
        tf.function(live.stats)()
    assert live.stats()["version"] is None
