"""What a LiveModel and an export that follows snapshots promise alike."""

import shutil
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from followed_models import (
    SERVERS,
    Export,
    Trainer,
    assert_serves,
    flip_byte,
    serve,
    table_file,
    wait_until,
)

import lodestar
from lodestar.embedding.stored_rows import DTYPES
from lodestar.snapshot import id_contents


@pytest.fixture(params=SERVERS)
def server(request):
    return request.param


@pytest.fixture
def trainer(tmp_path, server):
    return Trainer(tmp_path, follow=server == "export")


def test_own_content_then_rows_weights_and_deletions(trainer, server):
    served = serve(trainer, server)
    assert_serves(served, trainer)
    assert served.version() is None and not served.poll()
    stats = served.stats()
    assert stats["newest_version"] is None and stats["last_error"] is None
    assert stats["last_update_seconds"] is None and stats["updates"] == 0
    for version in range(1, 6):
        trainer.train()
        if version > 1:
            trainer.table.remove(trainer.ids[version : version + 5])
        trainer.save(delta=version > 1)
        assert served.poll() and served.version() == version
        assert_serves(served, trainer)
    assert not served.poll()
    stats = served.stats()
    # The first version of each copy is read in full.
    assert stats["full_updates"] == (1 if server == "row" else 2)
    assert (stats["updates"], stats["failures"]) == (5, 0)


def test_it_starts_with_the_newest_version(trainer, server):
    for delta in (False, True, True):
        trainer.train()
        trainer.save(delta=delta)
    served = serve(trainer, server)
    assert served.version() == 3
    ragged = trainer.features["clicks"]
    got = served.signatures["serving_default"](
        clicks_values=ragged.values, clicks_row_splits=ragged.row_splits
    )
    np.testing.assert_array_equal(got["rows"], trainer.outputs()["rows"])
    # The tables of the loaded model have the rows of the version.
    numbers = lodestar.serving.table_numbers.of_loaded(served.loaded)
    assert numbers["rows"] == {"clicks": int(trainer.table.size())}
    trainer.train()
    trainer.save(delta=True)
    trainer.train()
    trainer.save(delta=True)
    assert served.poll() and served.version() == 5
    assert_serves(served, trainer)


def test_stats_describe_the_served_version(trainer, server):
    trainer.train()
    info = trainer.save(metadata={"note": "first"})
    began = time.monotonic()
    served = serve(trainer, server)
    stats = served.stats()
    seconds = time.monotonic() - began
    assert stats["version"] == stats["newest_version"] == info.version == 1
    assert stats["step"] == info.step
    assert stats["snapshot_time"] == info.time
    assert stats["bytes"] == info.bytes
    assert stats["rows_written"] == int(trainer.table.size())
    assert 0 <= stats["seconds_since_update"] < seconds
    assert 0 < stats["last_update_seconds"] < seconds
    assert stats["polls"] == 1 and not stats["following"]
    assert stats["lag_versions"] == 0 and not stats["pinned"]
    assert stats.get("metadata", {"note": "first"}) == {"note": "first"}
    for _ in range(2):  # so that both copies are changed
        trainer.table.remove(trainer.table.export().ids[:3])
        trainer.save(delta=True)
        assert served.poll()
    stats = served.stats()
    assert stats["rows_removed"] == 6 and stats["bytes"] > info.bytes


def test_a_thread_polls(tmp_path, server):
    trainer = Trainer(tmp_path, follow=server == "export", poll_seconds=0.02)
    trainer.save()
    path = table_file(trainer.snapshots, 1)
    flip_byte(path)
    served = serve(trainer, server, poll_seconds=0.02)
    assert served.stats()["following"] and served.version() is None
    flip_byte(path)
    wait_until(lambda: served.version() == 1)
    assert served.stats()["last_error"] is None
    for version in (2, 3):
        trainer.train()
        trainer.save(delta=True)
        wait_until(lambda: served.version() == version)  # noqa: B023
        assert_serves(served, trainer)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def exchange(path):
    """Replaces a file by the one of version 1."""
    other = path.parent.parent / "00000001" / path.name
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize(
    "delta, file, damage, message",
    [
        (True, "table-00000", flip_byte, "{path}"),
        (False, "blobs", flip_byte, "{path}"),
        (False, "table-00000", exchange, "{path}: is another file"),
        (True, "blobs", exchange, "{path}: is another file"),
        (True, "table-00000", cut, "{path}: must have"),
        (False, "table-00000", lambda path: path.unlink(), "{path}: is missi"),
        (True, "MANIFEST", flip_byte, "{path}"),
        (True, "MANIFEST", lambda path: path.unlink(), None),
    ],
)
def test_a_damaged_version_is_left_out(
    trainer, server, delta, file, damage, message
):
    trainer.train()
    trainer.save()
    served = serve(trainer, server)
    if damage is exchange:  # with a file of equal size
        exported = trainer.table.export()
        trainer.table.insert_or_assign(exported.ids, exported.rows + 1)
    else:
        trainer.train()
    before = served(trainer.features)
    trainer.save(delta=delta)
    path = trainer.snapshots / "00000002" / file
    content = path.read_bytes()
    damage(path)
    assert not served.poll() and served.version() == 1
    after = served(trainer.features)
    for name in before:
        np.testing.assert_array_equal(after[name], before[name])
    stats = served.stats()
    if message is None:
        assert stats["last_error"] is None and stats["lag_versions"] == 0
    else:
        assert message.format(path=path) in stats["last_error"]
        assert stats["failures"] == stats["lag_versions"] == 1
    # It is served once it is repaired.
    path.write_bytes(content)
    assert served.poll() and served.version() == 2
    assert_serves(served, trainer)
    assert served.stats()["last_error"] is None


def test_the_newest_that_can_be_read_is_served(trainer, server):
    trainer.save()
    path = table_file(trainer.snapshots, 1)
    flip_byte(path)
    served = serve(trainer, server)
    assert served.version() is None
    assert str(path) in served.stats()["last_error"]
    trainer.train()
    trainer.save()
    want = trainer.outputs()["rows"]
    for _ in (3, 4):
        trainer.train()
        trainer.save(delta=True)
    flip_byte(table_file(trainer.snapshots, 3))
    assert served.poll() and served.version() == 2
    np.testing.assert_array_equal(served(trainer.features)["rows"], want)
    # Those based on a broken or missing one are skipped.
    stats = served.stats()
    assert str(table_file(trainer.snapshots, 3)) in stats["last_error"]
    assert (stats["newest_version"], stats["lag_versions"]) == (4, 2)
    shutil.rmtree(trainer.snapshots / "00000003")
    assert not served.poll() and served.version() == 2
    assert "needs version 3, which is missing" in served.stats()["last_error"]
    trainer.save()
    assert served.poll() and served.version() == 5
    assert_serves(served, trainer)


def test_compaction_needs_no_update(trainer, server):
    trainer.train()
    trainer.save()
    trainer.train()
    trainer.save(delta=True)
    served = serve(trainer, server)
    lodestar.snapshot.compact(trainer.snapshots)
    assert served.poll() and served.version() == 3
    assert served.stats()["updates"] == 1
    assert_serves(served, trainer)
    trainer.train()
    trainer.save(delta=True)
    assert served.poll() and served.version() == 4
    assert served.stats()["updates"] == 2
    assert_serves(served, trainer)


def test_a_folder_that_starts_over(trainer, server):
    for _ in range(3):
        trainer.train()
        trainer.save()
    served = serve(trainer, server)
    shutil.rmtree(trainer.exported)
    shutil.rmtree(trainer.snapshots)
    assert not served.poll() and served.version() == 3
    assert_serves(served, trainer)
    trainer.train()
    trainer.save()
    assert served.poll()
    (info,) = lodestar.snapshot.versions(trainer.snapshots)
    assert served.version() == info.version
    assert_serves(served, trainer)


def test_weights_of_another_shape(trainer, server):
    trainer.save()
    served = serve(trainer, server)
    weights = trainer.weights()
    name = next(iter(weights))
    lodestar.snapshot.save(
        trainer.table,
        trainer.snapshots,
        delta=True,
        dense={**weights, name: tf.zeros([3, 1])},
    )
    assert not served.poll() and served.version() == 1
    assert "float32 [3, 1], but float32 [4, 1]" in served.stats()["last_error"]


def test_a_table_with_a_cap(tmp_path, server):
    trainer = Trainer(
        tmp_path, eviction=lodestar.MaxRows(40), follow=server == "export"
    )
    served = serve(trainer, server)
    # A version beyond the cap is not read again.
    more = lodestar.EmbeddingVariable(4, name="clicks")
    more.insert_or_assign(range(41), tf.ones([41, 4]))
    lodestar.snapshot.save(more, trainer.snapshots, dense=trainer.weights())
    for _ in range(2):
        assert not served.poll()
        assert served.stats()["failures"] == 1
    for version in (2, 3, 4):
        trainer.train()
        trainer.save(delta=version > 2)
        assert served.poll() and served.version() == version
        assert_serves(served, trainer)
    assert served.stats()["full_updates"] <= 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_versions_and_changes_are_rounded(dtype, server, tmp_path):
    trainer = Trainer(tmp_path, follow=server == "export", dtype=dtype)
    served = serve(trainer, server)
    for version in range(1, 6):
        trainer.train()
        trainer.save(delta=version not in (1, 4))
        assert served.poll() and served.version() == version
        want, got = trainer.outputs(), served(trainer.features)
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-2)
        assert np.abs(got["rows"] - want["rows"]).max() > 0


class Words(keras.Model):
    """Scores words by vocabularies that can change and one that cannot."""

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


def served_model(model, server, folder, **options):
    """Exports and serves a model that follows `folder`/snapshots."""
    path, snapshots = folder / "model", folder / "snapshots"
    if server == "export":
        options |= {"follow": snapshots, "poll_seconds": None}
    lodestar.export.save(model, path, **options)
    if server == "export":
        return Export(path, snapshots)
    return lodestar.serving.LiveModel(path, snapshots, None, consistency=server)


def test_id_tables_are_followed(tmp_path, server, monkeypatch):
    model = Words()
    words = tf.constant(["a", "b", "x", "", "long", "longer"])
    model(words)
    snapshots = tmp_path / "snapshots"
    served = served_model(
        model,
        server,
        tmp_path,
        inputs={"words": tf.TensorSpec([None], tf.string)},
    )
    for version in range(1, 6):
        if version != 4:  # which has the content of version 3
            model.numbers.load(["b" * version], [version])
            model.places.insert(np.array([version], np.int32), [version])
        model.table.insert_or_assign([version], [[version, version]])
        lodestar.snapshot.save(model, snapshots, delta=version > 1)
        assert served.poll() and served.version() == version
        got, want = served({"words": words}), model(words)
        for name, value in want.items():
            np.testing.assert_array_equal(got[name], value)
    # A version without id tables leaves the exported ones.
    lodestar.snapshot.save([model.table], snapshots)
    assert served.poll()
    got = served({"words": words})["numbers"]
    np.testing.assert_array_equal(got, [0, -1, -1, -1, -1, -1])
    # A vocabulary that is part of the model cannot change.
    other = Words()
    other.fixed.set_vocabulary(["x", "z"])
    other(words)
    lodestar.snapshot.save(other, snapshots)
    assert not served.poll() and served.version() == 6
    assert (
        "the IdLookup 'fixed' has another vocabulary than the model"
        in served.stats()["last_error"]
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
    assert not served.poll()
    error = served.stats()["last_error"]
    assert "the id table 'places': key " in error and "has two values" in error


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


def test_several_tables_and_inner_functions(server, tmp_path):
    dtype = {"export": "bfloat16", "call": "float16", "row": "float32"}[server]
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
    served = served_model(model, server, tmp_path)
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
        assert served.poll() and served.version() == version
        got, want = served(features), model(features)
        for name, value in want.items():
            np.testing.assert_array_equal(
                tf.cast(got[name], tf.float32), tf.cast(value, tf.float32)
            )
        assert len(served({"ids": features["ids"][:0]})["inner"]) == 0


def test_weights_match_without_the_numbers_of_keras(tmp_path, server):
    """A model that is built again, as in another process, has other paths."""

    def model():
        ids = keras.Input((), dtype="int64", name="ids")
        rows = lodestar.layers.DynamicEmbedding(2, name="rows")(ids)
        return keras.Model(ids, keras.layers.Dense(1)(rows))

    served = served_model(model(), server, tmp_path)
    other = model()
    lodestar.snapshot.save(other, tmp_path / "snapshots")
    assert served.poll() and served.version() == 1
    ids = tf.range(3, dtype=tf.int64)
    got = served({"ids": ids})["output_0"]
    np.testing.assert_allclose(got, other(ids), rtol=1e-6, atol=1e-6)


def test_a_model_with_a_schema(tmp_path, server):
    column = lodestar.data.Column

    def model(*columns):
        schema = lodestar.data.Schema(columns)
        inputs = schema.inputs()
        table = lodestar.EmbeddingVariable(2, name="t", default_row="initial")
        rows = lodestar.layers.DynamicEmbedding(table=table, combiner="sum")
        return table, keras.Model(inputs, {"rows": rows(inputs["city"])})

    city = column.sparse("city", encoding="hash")
    snapshots = tmp_path / "snapshots"
    _, exported = model(city, column.label("click"))
    served = served_model(exported, server, tmp_path)
    table, trained = model(city, column.dense("more", used=False))
    ids = lodestar.hash_ids(["Rome"], column="city")
    table.insert_or_assign(ids, [[1.0, 2.0]])
    lodestar.snapshot.save(trained, snapshots)
    assert served.poll() and served.version() == 1
    strings = {"city": tf.ragged.constant([["Rome"], []])}
    np.testing.assert_array_equal(served(strings)["rows"], [[1, 2], [0, 0]])
    _, other = model(column.sparse("city", encoding="int"))
    lodestar.snapshot.save(other, snapshots)
    assert not served.poll()
    error = served.stats()["last_error"]
    assert "another schema: the column 'city' is kind=" in error
    assert "encoding='hash' in the model" in error
