"""Readers of a folder whose versions were removed, replaced or set back."""

import shutil

import numpy as np
import pytest
from followed_models import SERVERS, Trainer, assert_serves, serve

import lodestar


@pytest.fixture(params=SERVERS)
def server(request):
    return request.param


@pytest.fixture
def trainer(tmp_path, server):
    return Trainer(tmp_path, follow=server == "export")


def refresh(reader):
    """Returns the version after a poll."""
    reader.poll()
    return reader.version()


def restored(trainer, version, folder):
    """Returns a new trainer, as of another process, that restored a version."""
    folder.mkdir()
    new = Trainer(folder)
    new.snapshots = trainer.snapshots
    # Its examples differ.
    new._rng = np.random.default_rng(17)
    lodestar.snapshot.restore(new.model, trainer.snapshots, version=version)
    return new


def follow(trainer, server, newest):
    """Returns a reader of versions 1 to `newest`, of which one is full."""
    trainer.train()
    trainer.save()
    reader = serve(trainer, server)
    assert refresh(reader) == 1
    for version in range(2, newest + 1):
        trainer.train()
        assert trainer.save(delta=True).kind == "delta"
        assert refresh(reader) == version
    assert_serves(reader, trainer)
    return reader


def remove(trainer, *versions):
    for version in versions:
        shutil.rmtree(trainer.snapshots / f"{version:08d}")


def test_training_goes_on_from_an_older_version(trainer, server, tmp_path):
    reader = follow(trainer, server, 4)
    # A bad day.
    remove(trainer, 3, 4)
    new = restored(trainer, 2, tmp_path / "new")
    for version in (3, 4, 5):
        new.train()
        info = new.save(delta=True)
        assert (info.version, info.parent) == (version, version - 1)
        if version > 3:
            # The folder has other versions 3 and 4 than those that were read.
            assert refresh(reader) == version
            assert_serves(reader, new)
    new.train()
    new.save(delta=True)
    assert refresh(reader) == 6
    assert_serves(reader, new)


def test_a_new_history_may_be_longer(trainer, server, tmp_path):
    reader = follow(trainer, server, 3)
    remove(trainer, 3)
    new = restored(trainer, 2, tmp_path / "new")
    for _ in range(2):
        new.train()
        new.save(delta=True)
    assert refresh(reader) == 4
    assert_serves(reader, new)


def test_removed_versions_are_not_served(trainer, server, tmp_path):
    reader = follow(trainer, server, 3)
    remove(trainer, 3)
    assert refresh(reader) == 2
    assert_serves(reader, restored(trainer, 2, tmp_path / "new"))


def test_a_folder_restored_from_a_backup(trainer, server, tmp_path):
    reader = follow(trainer, server, 2)
    shutil.copytree(trainer.snapshots, tmp_path / "backup")
    for _ in range(2):
        trainer.train()
        trainer.save(delta=True)
    assert refresh(reader) == 4
    shutil.rmtree(trainer.snapshots)
    shutil.move(tmp_path / "backup", trainer.snapshots)
    new = restored(trainer, None, tmp_path / "new")
    for _ in range(2):
        new.train()
        assert new.save(delta=True).kind == "delta"
    assert refresh(reader) == 4
    assert_serves(reader, new)


def test_a_version_that_is_compacted_in_the_new_history(
    trainer, server, tmp_path
):
    reader = follow(trainer, server, 3)
    remove(trainer, 3)
    new = restored(trainer, 2, tmp_path / "new")
    new.train()
    new.save(delta=True)
    lodestar.snapshot.compact(trainer.snapshots)
    assert refresh(reader) == 4
    assert_serves(reader, new)
    new.train()
    assert new.save(delta=True).kind == "delta"
    assert refresh(reader) == 5
    assert_serves(reader, new)
