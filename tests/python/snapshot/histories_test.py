"""Versions of one number but of different histories."""

import shutil
import warnings

import keras
import pytest
import snapshot_tables as st
import tensorflow as tf

import lodestar
from lodestar import snapshot
from lodestar.snapshot.folder import SnapshotFolder


@pytest.fixture
def silent():
    """Makes a warning about histories an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*another history")
        yield


def saved(path, t, versions):
    """Saves versions, each of which has one more row."""
    for version in range(1, versions + 1):
        st.fill(t, [version])
        assert snapshot.save(t, path, delta=True).version == version
    return t


def remove(path, *versions):
    for version in versions:
        shutil.rmtree(SnapshotFolder(path).version_path(version))


def test_a_delta_is_made_on_the_version_that_was_restored(path, silent):
    saved(path, st.table(), 4)
    remove(path, 3, 4)
    t = st.table()
    snapshot.restore(t, path)
    for id_ in (30, 40):
        st.fill(t, [id_])
        assert snapshot.save(t, path, delta=True).kind == "delta"
    new = st.table()
    snapshot.restore(new, path)
    assert sorted(st.ids_of(new)) == [1, 2, 30, 40]


def test_a_delta_is_not_made_on_another_version_of_the_number(path):
    old = saved(path, st.table(), 3)
    remove(path, 3)
    new = st.table()
    snapshot.restore(new, path)
    st.fill(new, [30])
    assert snapshot.save(new, path, delta=True).version == 3
    # The first trainer still runs, and its changes are since its own version 3.
    st.fill(old, [4])
    with pytest.warns(
        RuntimeWarning,
        match="version 3, the newest, has another history than this model. It is "
        "of step 0 and has the tables 't'. This model has the tables 't', and was "
        "last saved as or restored from version 3 of .*A full snapshot is written",
    ):
        info = snapshot.save(old, path, delta=True)
    assert (info.kind, info.version) == ("full", 4)
    restored = st.table()
    snapshot.restore(restored, path)
    assert sorted(st.ids_of(restored)) == [1, 2, 3, 4]


@pytest.mark.parametrize("delta", [False, True])
def test_another_model_is_named(path, delta):
    saved(path, st.table("user"), 1)
    with pytest.warns(
        RuntimeWarning,
        match="has the tables 'user'. This model has the tables 'item', and was "
        "never saved nor restored. A full",
    ):
        info = snapshot.save(st.table("item"), path, delta)
    assert info.kind == "full"


def test_a_model_that_was_not_restored_is_named(path):
    saved(path, st.table(), 1)
    with pytest.warns(RuntimeWarning, match="was never saved nor restored"):
        snapshot.save(st.table(), path)


def test_id_tables_have_a_history(path, silent):
    words = lodestar.lookup.IdTable(["a"], name="words")
    snapshot.save(words, path)
    snapshot.save(words, path)
    new = lodestar.lookup.IdTable(["-"], name="words")
    snapshot.restore(new, path)
    snapshot.save(new, path)
    with pytest.raises(RuntimeWarning, match="was never saved nor restored"):
        snapshot.save(lodestar.lookup.IdTable(["-"], name="words"), path)


def test_two_folders_take_turns(path, silent):
    t = st.table()
    for number in range(3):
        st.fill(t, [number])
        for folder in (path, path + "_2"):
            assert snapshot.save(t, folder, delta=True).version == number + 1


def test_a_model_may_return_to_its_own_older_version(path, silent):
    t = saved(path, st.table(), 3)
    snapshot.restore(t, path, version=1)
    assert snapshot.save(t, path, delta=True).kind == "full"


def test_a_copy_of_the_folder_is_the_same_history(path, silent):
    saved(path, st.table(), 2)
    shutil.copytree(path, path + "_2")
    snapshot.compact(path + "_2")
    t = st.table()
    snapshot.restore(t, path + "_2")
    st.fill(t, [9])
    assert snapshot.save(t, path + "_2", delta=True).kind == "delta"
    snapshot.restore(t, path + "_2", version=3)
    snapshot.save(t, path)


def test_a_table_is_added_to_a_model(path, silent):
    saved(path, st.table("a"), 1)
    tables = [st.table("a"), st.table("b")]
    snapshot.restore(tables, path, on_missing="init")
    assert snapshot.save(tables, path, delta=True).kind == "delta"


def test_early_stopping_keeps_the_best_epoch(path, silent):
    ids = keras.Input((2,), dtype="int64")
    out = keras.layers.Dense(1)(
        keras.layers.Flatten()(
            lodestar.layers.DynamicEmbedding(2, name="user")(ids)
        )
    )
    model = keras.Model(ids, out)
    model.compile(lodestar.optimizers.Adagrad(0.1), "mse")
    data = tf.data.Dataset.from_tensors(
        (tf.constant([[1, 2], [3, 4]], tf.int64), tf.constant([[1.0], [0.0]]))
    )

    class Worse(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["worse"] = float(epoch)

    lodestar.train.fit(
        model,
        data,
        epochs=3,
        verbose=0,
        callbacks=[
            Worse(),
            lodestar.callbacks.EarlyStopping(
                "worse", mode="min", patience=1, restore_best_weights=True
            ),
        ],
        snapshots=path,
    )
    assert len(snapshot.versions(path)) > 2


def test_a_copy_of_another_history_is_refused(path):
    saved(path, st.table(), 3)
    copied = f"file://{path}_copy"
    snapshot.copy(path, copied)
    remove(path, 3)
    t = st.table()
    snapshot.restore(t, path)
    snapshot.save(t, path, delta=True)
    with pytest.raises(
        snapshot.SnapshotError,
        match="already has another version 3, with mark .* instead of .*: the two "
        "folders have different histories. Remove the versions from 3 on there",
    ):
        snapshot.copy(path, copied)


def test_a_chain_of_two_histories_is_refused(path):
    saved(path, st.table(), 3)
    shutil.copytree(path, path + "_2")
    remove(path, 2, 3)
    t = st.table()
    snapshot.restore(t, path)
    snapshot.save(t, path, delta=True)
    # A delta on the other version 2.
    shutil.copytree(path + "_2/00000003", path + "/00000003")
    with pytest.raises(
        snapshot.CorruptSnapshotError,
        match="00000003/MANIFEST: is a delta on version 2 with mark .*, but this "
        "version has mark .* here: the two have different histories. The newest "
        "intact version before it is version=2",
    ):
        snapshot.restore(st.table(), path)
    with pytest.raises(snapshot.CorruptSnapshotError, match="different hist"):
        snapshot.verify(path)
    copied = f"file://{path}_copy"
    with pytest.raises(snapshot.CorruptSnapshotError, match="different hist"):
        snapshot.copy(path, copied)
    # A remote copy is checked as well.
    shutil.copytree(path, path + "_copy")
    with pytest.raises(snapshot.CorruptSnapshotError, match="different hist"):
        snapshot.copy(copied, path + "_3")
