"""Asynchronous tf.train.Checkpoints hold the state of the save call.

TensorFlow copies the state when `save` is called, and another thread writes the
copies. A `Gate` blocks that thread while the program continues.
"""

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
import trained_models as models

import lodestar
from lodestar.lookup import IdTable

K = 4
ASYNC = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)


class Gate(tf.Module):
    """Blocks the writing of a checkpoint until it is opened."""

    def __init__(self):
        super().__init__()
        self.opened = threading.Event()

    def _copy_trackable_to_cpu(self, object_map):
        del object_map

    def _serialize_to_tensors(self):
        assert self.opened.wait(120)
        return {"opened": tf.constant(True)}

    def _restore_from_tensors(self, restored_tensors):
        pass


class Saver:
    """Saves objects asynchronously, and restores them."""

    def __init__(self, folder, **objects):
        self.folder = folder
        # Children are written in this order.
        self.checkpoint = tf.train.Checkpoint(a_gate=Gate(), **objects)

    def save(self, then):
        """Returns the path; `then` is called before anything is written."""
        opened = self.checkpoint.a_gate.opened
        opened.clear()
        try:
            path = self.checkpoint.save(f"{self.folder}/c", options=ASYNC)
            then()
        finally:
            opened.set()
        self.checkpoint.sync()
        return path


def restore(path, **objects):
    gate = Gate()
    gate.opened.set()
    checkpoint = tf.train.Checkpoint(a_gate=gate, **objects)
    checkpoint.restore(path).assert_consumed()


@pytest.mark.parametrize(
    "model, optimizer",
    [
        ("layers", "accumulation"),
        ("layers", "replayed"),
        ("collection", "adam"),
        ("collection", "loss_scale"),
    ],
)
def test_a_model_resumes_where_it_was_saved(model, optimizer, tmp_path):
    trained, iterator = models.make(model, optimizer), iter(models.dataset())
    models.train(trained, iterator, K)
    saver = Saver(tmp_path, model=trained, iterator=iterator)
    wanted = models.state(trained)
    path = saver.save(lambda: models.train(trained, iterator, K))
    expected = models.state(trained)
    assert expected["iterations"] != wanted["iterations"]

    again, iterator = models.make(model, optimizer), iter(models.dataset())
    restore(path, model=again, iterator=iterator)
    models.assert_equal(models.state(again), wanted)
    models.train(again, iterator, K)
    models.assert_equal(models.state(again), expected)


class Tables(tf.Module):
    """A table, an id table and a variable that change together."""

    def __init__(self, devices=None):
        super().__init__()
        self.rows = lodestar.EmbeddingVariable(4, name="t", devices=devices)
        self.ids = IdTable(["zero"], mutable=True)
        self.count = tf.Variable(0, dtype=tf.int64)

    def change(self):
        count = int(self.count.assign_add(1))
        self.rows.insert_or_assign([count, -count], np.full((2, 4), count))
        self.rows.remove([-count + 1])
        self.ids.insert([f"key{count}"], [count])

    def state(self):
        state = {f"rows/{k}": v for k, v in self.rows._export_all().items()}
        state["keys"], state["ids"] = self.ids.export()
        state["count"] = self.count.read_value()
        return {
            name: np.asarray(value).tolist() for name, value in state.items()
        }


DEVICES = {"here": None, "two parts": ["/CPU:0", "/CPU:0"]}


@pytest.mark.parametrize("devices", DEVICES.values(), ids=DEVICES)
def test_each_save_of_a_checkpoint_is_of_its_own_call(devices, tmp_path):
    tables = Tables(devices)
    saver = Saver(tmp_path, tables=tables)
    saved = []
    for _ in range(4):
        tables.change()
        state = tables.state()
        saved.append((saver.save(tables.change), state))
    for path, state in saved:
        again = Tables()
        restore(path, tables=again)
        assert again.state() == state

    # The same object restores into the originals, not into the copies.
    path, state = saved[1]
    saver.checkpoint.restore(path).assert_consumed()
    assert tables.state() == state


def test_both_kinds_of_checkpoints_have_the_same_keys(tmp_path):
    tables = Tables()
    tables.change()
    path = Saver(tmp_path, tables=tables).save(lambda: None)
    gate = Gate()
    gate.opened.set()
    checkpoint = tf.train.Checkpoint(a_gate=gate, tables=tables)
    other = checkpoint.save(str(tmp_path / "sync"))

    def shapes(path):
        reader = tf.train.load_checkpoint(path)
        return reader.get_variable_to_shape_map()

    assert shapes(path) == shapes(other)
    again = Tables()
    restore(other, tables=again)
    assert again.state() == tables.state()


def test_a_manager_saves_in_the_same_way(tmp_path):
    tables = Tables()
    saver = Saver(tmp_path, tables=tables)
    manager = tf.train.CheckpointManager(
        saver.checkpoint, str(tmp_path), max_to_keep=2
    )
    saved = []
    for _ in range(3):
        tables.change()
        saver.checkpoint.a_gate.opened.clear()
        saved.append((manager.save(options=ASYNC), tables.state()))
        tables.change()
        saver.checkpoint.a_gate.opened.set()
        manager.sync()
    assert manager.checkpoints == [path for path, _ in saved[1:]]
    for path, state in saved[1:]:
        again = Tables()
        restore(path, tables=again)
        assert again.state() == state


def test_a_table_made_after_the_first_save_is_refused(tmp_path):
    """TensorFlow would save its state at the time of writing."""
    tables = Tables()
    saver = Saver(tmp_path, tables=tables)
    saver.save(lambda: None)
    tables.later = lodestar.EmbeddingVariable(4, name="later")
    path = saver.save(lambda: None)
    assert not tf.io.gfile.glob(f"{path}*")
    with pytest.raises(RuntimeError, match="'later' .* new tf.train.Check"):
        saver.save(lambda: None)
    assert saver.checkpoint.write(str(tmp_path / "sync"))


def test_a_capture_goes_once_it_is_written():
    tables = Tables()
    tables.change()
    captured = {}
    for resource in (tables.rows, tables.ids):
        resource._copy_trackable_to_cpu(object_map=captured)
        content = captured[resource]._serialize_to_tensors()
        assert content.keys() == resource._serialize_to_tensors().keys()
        with pytest.raises(RuntimeError, match="was not captured"):
            captured[resource]._serialize_to_tensors()


def test_replicas_of_one_process(tmp_path):
    strategy = tf.distribute.MirroredStrategy(["/CPU:0"])

    def make():
        with strategy.scope():
            model = keras.Sequential(
                [
                    keras.Input((3,), dtype="int64"),
                    lodestar.layers.DynamicEmbedding(4, combiner="sum"),
                    keras.layers.Dense(1, kernel_initializer="ones"),
                ]
            )
            model.compile(lodestar.optimizers.Adam(), "mse")
            model.optimizer.build(model.trainable_variables)
        return model

    def train(model):
        x, y = np.arange(12).reshape(4, 3), np.ones((4, 1), "float32")
        model.fit(x, y, epochs=3, verbose=0, shuffle=False)

    model = make()
    train(model)
    wanted = models.state(model)
    with strategy.scope():
        path = Saver(tmp_path, model=model).save(lambda: train(model))
    again = make()
    restore(path, model=again)
    models.assert_equal(models.state(again), wanted)
