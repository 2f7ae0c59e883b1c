"""Tests of id tables from snapshots, and of errors when they do not match."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.serving.served_id_tables import ServedIdTables
from lodestar.snapshot import blobs
from lodestar.snapshot.errors import CorruptSnapshotError, SnapshotError

WORDS = {
    "keys": np.frombuffer(b"abc", np.uint8),
    "lengths": np.array([1, 2]),
    "ids": np.array([5, 6]),
}


class Version:
    """Represents the folder and the manifest of a version."""

    version = 3

    def version_path(self, version):
        return f"snapshots/{version:08d}"


@pytest.fixture
def read(monkeypatch, request):
    """Reads `arrays` as the saved content of a served table of words.

    A test's parameter tells whether the first word is a mask token.
    """
    mask_token = getattr(request, "param", False)
    table = lodestar.lookup.IdTable(["x", "yy"])
    loaded = tf.Module()
    loaded.id_tables = {"words": table}
    entry = {"key": "words", "key_dtype": "string", "mask_token": mask_token}
    served = ServedIdTables(loaded, {"id_tables": [entry]})

    def read(arrays, name="words"):
        named = {f"{name}/{part}": array for part, array in arrays.items()}
        monkeypatch.setattr(blobs, "read", lambda *_: named)
        return served.read(Version(), Version())

    read.table = table
    return read


def test_keys_and_ids_replace_the_old_ones(read):
    (update,) = read(WORDS)
    assert read.table.lookup(["x", "a"]).numpy().tolist() == [0, -1]
    update.assign()
    found = read.table.lookup(["x", "a", "bc"]).numpy().tolist()
    assert found == [-1, 5, 6]
    # The same content does not count as an update.
    assert read(WORDS) == []
    (update,) = read({**WORDS, "ids": np.array([6, 5])})
    update.assign()
    assert read.table.lookup(["a", "bc"]).numpy().tolist() == [6, 5]


def test_no_tables_and_tables_that_are_not_served(read):
    assert read({}) == [] and read(WORDS, "others") == []
    empty = {
        "keys": np.zeros(0, np.uint8),
        "lengths": np.zeros(0, np.int64),
        "ids": np.zeros(0, np.int64),
    }
    (update,) = read(empty)
    update.assign()
    assert int(read.table.size()) == 0


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"ids": np.array([5])}, "has 2 keys, but 1 ids"),
        ({"ids": np.array([5.0, 6.0])}, "has ids of float64 instead of int64"),
        ({"ids": np.array([[5, 6]])}, r"has an array of shape \(1, 2\)"),
        (
            {"lengths": np.array([1, 3])},
            "of 3 bytes, but lengths that add up to 4",
        ),
        ({"lengths": np.array([4, -1])}, "but lengths that add up to 3"),
        ({"keys": np.frombuffer(b"aab", np.uint8)}, None),
        (
            {"keys": np.frombuffer(b"aa", np.uint8), "lengths": [1, 1]},
            "has a duplicate key",
        ),
    ],
)
def test_arrays_that_do_not_fit_together(read, changes, message):
    arrays = {k: np.array(v) for k, v in {**WORDS, **changes}.items()}
    if message is None:
        assert len(read(arrays)) == 1
        return
    with pytest.raises(CorruptSnapshotError, match=message) as caught:
        read(arrays)
    assert str(caught.value).startswith(
        "snapshots/00000003: the id table 'words' has"
    )


def test_keys_of_another_type(read):
    with pytest.raises(
        SnapshotError,
        match="is an IdTable of int32 keys in the snapshot, but an IdTable of "
        "string keys here",
    ):
        read({"keys": np.array([1, 2], np.int32), "ids": np.array([5, 6])})
    with pytest.raises(
        SnapshotError, match="is .'ids', 'keys', 'lengths', 'mor"
    ):
        read({**WORDS, "more": np.array([1])})


@pytest.mark.parametrize("read", [False, True], indirect=True)
def test_the_vocabulary_of_an_id_lookup_is_compared(read, request):
    has_mask_token = request.node.callspec.params["read"]
    for text, lengths, equal in (
        (b"xyy", [1, 2], not has_mask_token),
        (b"yy", [2], has_mask_token),
        (b"yyx", [2, 1], False),
        (b"x", [1], False),
        (b"xyyz", [1, 2, 1], False),
    ):
        arrays = {
            "vocabulary": np.frombuffer(text, np.uint8),
            "lengths": np.array(lengths),
        }
        if equal:
            assert read(arrays) == []
            continue
        with pytest.raises(SnapshotError, match="has another vocabulary"):
            read(arrays)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_oov_indices": 0},
        {"mask_token": "m"},
        {"mask_token": "m", "output_mode": "count"},
        {"oov_ids": "last"},
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
    live = lodestar.serving.LiveModel(
        tmp_path / "model", tmp_path / "snapshots", None
    )
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
