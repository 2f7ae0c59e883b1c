"""Checkpoints that TensorFlow splits into files of a maximum size."""

import numpy as np
import pytest
import tensorflow as tf
import trained_models as models

import lodestar
from lodestar.lookup import IdTable

POLICIES = {
    "by size": tf.train.experimental.MaxShardSizePolicy(1000),
    "by task": tf.train.experimental.ShardByTaskPolicy(),
}
FEW_BYTES = POLICIES["by size"]


def write(folder, policy, **objects):
    """Writes a checkpoint; returns its path and the number of files with values."""
    path = tf.train.Checkpoint(**objects).write(
        f"{folder}/c",
        tf.train.CheckpointOptions(experimental_sharding_callback=policy),
    )
    return path, len(tf.io.gfile.glob(f"{path}.data-*"))


def read(path, **objects):
    tf.train.Checkpoint(**objects).read(path).assert_consumed()


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("steps", [0, 4])
def test_a_model_is_restored(policy, steps, tmp_path):
    def make():
        return models.make("layers", "accumulation")

    model = make()
    models.train(model, iter(models.dataset()), steps)
    path, files = write(tmp_path, policy, model=model)
    assert (files > 1) == (policy is FEW_BYTES)
    again = make()
    read(path, model=again)
    models.assert_equal(models.state(again), models.state(model))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rows", [0, 1, 100])
def test_a_table_of_any_size_is_restored(rows, dtype, tmp_path, rng):
    def make():
        return lodestar.EmbeddingVariable(5, name="t", dtype=dtype)

    table = make()
    table.insert_or_assign(np.arange(rows), rng.normal(size=(rows, 5)))
    path, files = write(tmp_path, FEW_BYTES, table=table)
    assert (files > 1) == (rows == 100)
    again = make()
    again.insert_or_assign([7], np.ones((1, 5)))
    read(path, table=again)
    for name, value in models.table_state(table).items():
        np.testing.assert_array_equal(models.table_state(again)[name], value)


@pytest.mark.parametrize("keys", [[], ["one"], range(0), range(3, 500)])
def test_an_id_table_is_restored(keys, tmp_path):
    dtype = tf.int64 if isinstance(keys, range) else tf.string
    table = IdTable(list(keys), key_dtype=dtype)
    path, files = write(tmp_path, FEW_BYTES, table=table)
    assert (files > 1) == (len(keys) > 100)
    again = IdTable([keys[0]] if keys else [], key_dtype=dtype)
    read(path, table=again)
    for value, wanted in zip(again.export(), table.export(), strict=True):
        np.testing.assert_array_equal(value, wanted)


def test_an_empty_table_keeps_its_dim(tmp_path):
    empty = lodestar.EmbeddingVariable(8, name="t")
    path, _ = write(tmp_path, FEW_BYTES, table=empty)
    with pytest.raises(ValueError, match="saved table has dim 8"):
        read(path, table=lodestar.EmbeddingVariable(4, name="t"))


def test_a_loaded_saved_model_restores_such_a_checkpoint(tmp_path):
    """Its functions were traced before the file was known."""

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = lodestar.EmbeddingVariable(3, name="t")
            self.ids = IdTable([], key_dtype=tf.string, mutable=True)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
        def lookup(self, ids):
            return self.table.lookup(ids, training=False)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def find(self, keys):
            return self.ids.lookup(keys)

    module = Module()
    empty, _ = write(tmp_path / "empty", FEW_BYTES, module=module)
    module.table.insert_or_assign([4], np.full((1, 3), 2.0))
    module.ids.insert(["a"], [7])
    tf.saved_model.save(module, str(tmp_path / "saved"))
    module.table.insert_or_assign([5], np.full((1, 3), 3.0))
    full, _ = write(tmp_path / "full", FEW_BYTES, module=module)
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    for path, rows, found in (
        (None, [2, 0], 7),
        (full, [2, 3], 7),
        (empty, [0, 0], -1),
    ):
        if path is not None:
            read(path, module=loaded)
        np.testing.assert_array_equal(loaded.lookup([4, 5])[:, 0], rows)
        assert int(loaded.find(["a"])[0]) == found
