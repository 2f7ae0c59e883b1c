"""An export that follows snapshots switches to the first version like to any other."""

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar._library import gen_ops

# Each load sees a first version once.
LOADS = 2
TABLES = 4


class Slow(keras.Model):
    """Reads tables and weights one after another, with a while in between.

    All that it returns equals the number of the last `write`.
    """

    def __init__(self):
        super().__init__()
        self.tables = [
            lodestar.EmbeddingVariable(2, name=f"t{i}") for i in range(TABLES)
        ]
        self.collected = [
            lodestar.EmbeddingVariable(2, name=f"c{i}") for i in range(TABLES)
        ]
        self.collection = lodestar.layers.EmbeddingCollection(
            {
                table.name: lodestar.Feature(table, combiner="sum")
                for table in self.collected
            }
        )
        self.words = lodestar.lookup.IdTable(["w"], mutable=True, name="words")

    def build(self, shape):
        self.scales = [
            self.add_weight(name=f"scale_{i}", shape=(), initializer="zeros")
            for i in range(TABLES)
        ]

    def call(self, ids):
        found = {}
        for i, (table, scale) in enumerate(
            zip(self.tables, self.scales, strict=True)
        ):
            found[f"rows_{i}"] = table.lookup(ids)
            x = tf.reduce_mean(found[f"rows_{i}"]) + tf.ones([300, 300])
            for _ in range(4):
                x = tf.tanh(tf.matmul(x, x))
            # The next lookup waits for it.
            ids += tf.cast(tf.reduce_max(x) > 2, tf.int64)
            found[f"scale_{i}"] = scale + tf.cast(ids[0], tf.float32)
        found |= self.collection(
            {table.name: ids[:, None] for table in self.collected}
        )
        word = tf.where(ids[:1] == 0, "w", "")
        return found | {"word": tf.cast(self.words.lookup(word), tf.float32)}

    def write(self, number):
        row = [[float(number)] * 2]
        for table in (*self.tables, *self.collected):
            table.insert_or_assign([0], row)
        for scale in self.scales:
            scale.assign(float(number))
        self.words.load(["w"], [number])


def numbers(outputs):
    """Returns the numbers of the versions that a call has seen."""
    return set(np.concatenate([np.ravel(x) for x in outputs.values()]).tolist())


@pytest.fixture
def model():
    model = Slow()
    model(tf.zeros([1], tf.int64))
    model.write(1)
    return model


def export(model, folder):
    lodestar.export.save(
        model,
        folder / "model",
        inputs={"ids": tf.TensorSpec([None], tf.int64)},
        follow=folder / "snapshots",
        poll_seconds=None,
    )
    return str(folder / "model")


def test_calls_during_the_first_version_see_one_version(model, tmp_path):
    path = export(model, tmp_path)
    features = {"ids": tf.zeros([1], tf.int64)}
    loads = [tf.saved_model.load(path) for _ in range(LOADS)]
    model.write(2)
    lodestar.snapshot.save(model, tmp_path / "snapshots")
    mixed, seen = [], set()
    for loaded in loads:
        done = threading.Event()
        begun = threading.Semaphore(0)

        def call(loaded=loaded, done=done, begun=begun):
            while not done.is_set():
                found = numbers(loaded.serve(features))
                seen.update(found)
                if len(found) != 1:
                    mixed.append(found)
                begun.release()

        threads = [threading.Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert begun.acquire(timeout=300)
        assert int(loaded.signatures["refresh"]()["version"]) == 1
        for _ in range(2 * len(threads)):
            assert begun.acquire(timeout=300)
        done.set()
        for thread in threads:
            thread.join()
        assert numbers(loaded.serve(features)) == {2.0}
    assert mixed == []
    assert seen == {1.0, 2.0}


def test_a_call_keeps_the_own_content(model, tmp_path):
    loaded = tf.saved_model.load(export(model, tmp_path))
    own = [
        *(loaded.tables[name].resource_handle for name in loaded.tables),
        *(variable.handle for variable in loaded.model_variables),
        loaded.id_tables["words"].resource_handle,
    ]
    follower = loaded.follower.resource_handle
    handles = gen_ops.lodestar_snapshot_follower_resources(
        follower, own
    ).resources
    model.write(2)
    lodestar.snapshot.save(model, tmp_path / "snapshots")
    assert int(loaded.signatures["refresh"]()["version"]) == 1

    def content(handles):
        tables = len(loaded.tables)
        rows = [
            gen_ops.lodestar_embedding_export(handle, dtype=tf.float32)
            for handle in handles[:tables]
        ]
        found = {float(x) for table in rows for x in table[1].numpy().flat}
        for handle in handles[tables:-1]:
            value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
            found.add(float(value))
        _, ids = gen_ops.lodestar_id_table_export(handles[-1], Tkeys=tf.string)
        return found | set(map(float, ids.numpy()))

    assert content(handles) == {1.0}
    now = gen_ops.lodestar_snapshot_follower_resources(follower, own)
    assert content(now.resources) == {2.0}
