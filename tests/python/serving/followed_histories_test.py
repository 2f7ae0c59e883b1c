"""Readers of a folder whose versions were removed, replaced or set back."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from followed_models import Trainer

import lodestar


class Live:
    """A LiveModel."""

    def __init__(self, trainer, **options):
        self.live = lodestar.serving.LiveModel(
            trainer.exported, trainer.snapshots, poll_seconds=None, **options
        )

    def refresh(self):
        self.live.poll()
        return self.live.version()

    def __call__(self, features):
        return self.live(features)


class InPlace(Live):
    """A LiveModel with a single copy of the tables."""

    def __init__(self, trainer):
        super().__init__(trainer, consistency="row")


class Export:
    """An export that follows the folder by itself."""

    def __init__(self, trainer):
        lodestar.export.save(
            trainer.model, trainer.exported, follow=trainer.snapshots
        )
        self.loaded = tf.saved_model.load(str(trainer.exported))

    def refresh(self):
        return int(self.loaded.signatures["refresh"]()["version"])

    def __call__(self, features):
        return self.loaded.serve(features)


@pytest.fixture(params=[Live, InPlace, Export])
def reader_of(request):
    return request.param


@pytest.fixture
def trainer(tmp_path):
    return Trainer(tmp_path)


def assert_serves(reader, trainer):
    want, got = trainer.outputs(), reader(trainer.features)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-6, atol=1e-6)


def restored(trainer, version, folder):
    """Returns a new trainer, as of another process, that restored a version."""
    folder.mkdir()
    new = Trainer(folder)
    new.snapshots = trainer.snapshots
    # Its examples differ.
    new._rng = np.random.default_rng(17)
    lodestar.snapshot.restore(new.model, trainer.snapshots, version=version)
    return new


def follow(trainer, reader_of, newest):
    """Returns a reader of versions 1 to `newest`, of which one is full."""
    trainer.train()
    trainer.save()
    reader = reader_of(trainer)
    assert reader.refresh() == 1
    for version in range(2, newest + 1):
        trainer.train()
        assert trainer.save(delta=True).kind == "delta"
        assert reader.refresh() == version
    assert_serves(reader, trainer)
    return reader


def remove(trainer, *versions):
    for version in versions:
        shutil.rmtree(trainer.snapshots / f"{version:08d}")


def test_training_goes_on_from_an_older_version(trainer, reader_of, tmp_path):
    reader = follow(trainer, reader_of, 4)
    # A bad day.
    remove(trainer, 3, 4)
    new = restored(trainer, 2, tmp_path / "new")
    for version in (3, 4, 5):
        new.train()
        info = new.save(delta=True)
        assert (info.version, info.parent) == (version, version - 1)
        if version > 3:
            # The folder has other versions 3 and 4 than those that were read.
            assert reader.refresh() == version
            assert_serves(reader, new)
    new.train()
    new.save(delta=True)
    assert reader.refresh() == 6
    assert_serves(reader, new)


def test_a_new_history_may_be_longer(trainer, reader_of, tmp_path):
    reader = follow(trainer, reader_of, 3)
    remove(trainer, 3)
    new = restored(trainer, 2, tmp_path / "new")
    for _ in range(2):
        new.train()
        new.save(delta=True)
    assert reader.refresh() == 4
    assert_serves(reader, new)


def test_removed_versions_are_not_served(trainer, reader_of, tmp_path):
    reader = follow(trainer, reader_of, 3)
    remove(trainer, 3)
    assert reader.refresh() == 2
    assert_serves(reader, restored(trainer, 2, tmp_path / "new"))


def test_a_folder_restored_from_a_backup(trainer, reader_of, tmp_path):
    reader = follow(trainer, reader_of, 2)
    shutil.copytree(trainer.snapshots, tmp_path / "backup")
    for _ in range(2):
        trainer.train()
        trainer.save(delta=True)
    assert reader.refresh() == 4
    shutil.rmtree(trainer.snapshots)
    shutil.move(tmp_path / "backup", trainer.snapshots)
    new = restored(trainer, None, tmp_path / "new")
    for _ in range(2):
        new.train()
        assert new.save(delta=True).kind == "delta"
    assert reader.refresh() == 4
    assert_serves(reader, new)


def test_a_version_that_is_compacted_in_the_new_history(
    trainer, reader_of, tmp_path
):
    reader = follow(trainer, reader_of, 3)
    remove(trainer, 3)
    new = restored(trainer, 2, tmp_path / "new")
    new.train()
    new.save(delta=True)
    lodestar.snapshot.compact(trainer.snapshots)
    assert reader.refresh() == 4
    assert_serves(reader, new)
    new.train()
    assert new.save(delta=True).kind == "delta"
    assert reader.refresh() == 5
    assert_serves(reader, new)
