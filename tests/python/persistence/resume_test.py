"""Tests that 2k steps equal k steps, a save, new objects and k more steps.

They compare bit by bit: ids, rows, optimizer slots, frequencies, last-seen
steps, ids awaiting admission, shared rows, steps, dense weights and the
optimizer.
"""

import functools
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
import trained_models as models

K = 7  # not a multiple of the accumulation steps


def by_checkpoint(model, iterator, folder):
    objects = {"model": model, "iterator": iterator}
    return tf.train.Checkpoint(**objects).save(f"{folder}/c")


def from_checkpoint(path, make):
    model, iterator = make(), iter(models.dataset())
    checkpoint = tf.train.Checkpoint(model=model, iterator=iterator)
    checkpoint.restore(path).assert_consumed()
    return model, iterator


def by_manager(model, iterator, folder):
    checkpoint = tf.train.Checkpoint(model=model, iterator=iterator)
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=1)
    manager.save()
    return folder


def from_manager(path, make):
    model, iterator = make(), iter(models.dataset())
    checkpoint = tf.train.Checkpoint(model=model, iterator=iterator)
    manager = tf.train.CheckpointManager(checkpoint, path, max_to_keep=1)
    assert manager.restore_or_initialize() is not None
    return model, iterator


def rest_of_data():
    return iter(models.dataset().skip(K))


def by_keras_file(model, iterator, folder):
    model.save(f"{folder}/m.keras")
    return f"{folder}/m.keras"


def from_keras_file(path, make):
    return keras.saving.load_model(path), rest_of_data()


def by_weights_file(model, iterator, folder):
    model.save_weights(f"{folder}/m.weights.h5")
    return f"{folder}/m.weights.h5"


def by_sharded_weights(model, iterator, folder):
    path = f"{folder}/m.weights.json"
    model.save_weights(path, max_shard_size=1e-5)  # 10 kB
    assert len(os.listdir(folder)) > 2
    return path


def from_weights(path, make):
    model = make()
    model.load_weights(path)
    return model, rest_of_data()


def by_saved_model(model, iterator, folder):
    module = tf.Module()
    module.model = model
    tf.saved_model.save(module, folder)
    return folder


def from_saved_model(path, make):
    """Loads the SavedModel's variables, a checkpoint of the same objects."""
    module = tf.Module()
    module.model = make()
    checkpoint = tf.train.Checkpoint(model=module.model)
    status = checkpoint.read(f"{path}/variables/variables")
    status.assert_existing_objects_matched()
    return module.model, rest_of_data()


WAYS = {
    "checkpoint": (by_checkpoint, from_checkpoint),
    "manager": (by_manager, from_manager),
    "keras": (by_keras_file, from_keras_file),
    "weights": (by_weights_file, from_weights),
    "sharded_weights": (by_sharded_weights, from_weights),
    "saved_model": (by_saved_model, from_saved_model),
}


def straight(make, steps):
    model, iterator = make(), iter(models.dataset())
    models.train(model, iterator, steps)
    return model, iterator


@functools.cache
def after_k_steps(model, optimizer):
    """Returns a model and its iterator, which tests save but do not change."""
    return straight(lambda: models.make(model, optimizer), K)


@functools.cache
def expected_state(model, optimizer, steps):
    trained, _ = straight(lambda: models.make(model, optimizer), steps)
    return models.state(trained)


def check(model, optimizer, way, folder):
    save, load = WAYS[way]

    def make():
        return models.make(model, optimizer)

    first, iterator = after_k_steps(model, optimizer)
    path = save(first, iterator, str(folder))
    saved = models.state(first)
    second, iterator = load(path, make)
    models.assert_equal(models.state(second), saved)
    models.train(second, iterator, K)
    expected = expected_state(model, optimizer, 2 * K)
    models.assert_equal(models.state(second), expected)
    return expected


@pytest.mark.parametrize(
    "optimizer, way",
    [(name, "checkpoint") for name in models.OPTIMIZERS]
    # A Keras file also has the configuration.
    + [
        (name, "keras")
        for name in ("schedule", "loss_scale", "accumulation", "replayed")
    ],
)
def test_each_optimizer(optimizer, way, tmp_path):
    state = check("layers", optimizer, way, tmp_path)
    # The state has something to compare.
    for name in ("pending_ids", "shared_rows", "frequencies"):
        assert np.any(state[f"counted/{name}"])
    assert np.any(state["capped/sketch"])
    assert state["capped/ids"].size == 9


@pytest.mark.parametrize(
    "model, way",
    [("collection", way) for way in WAYS]
    + [("layers", way) for way in WAYS if way not in ("checkpoint", "keras")],
)
def test_each_way(model, way, tmp_path):
    check(model, "adam", way, tmp_path)


@pytest.mark.parametrize(
    "optimizer, way",
    [
        ("nadam", "weights"),
        ("loss_scale", "saved_model"),
        ("accumulation", "weights"),
        ("accumulation", "saved_model"),
        ("replayed", "weights"),
    ],
)
def test_optimizers_with_more_than_slots(optimizer, way, tmp_path):
    check("collection", optimizer, way, tmp_path)


def test_any_number_of_shards(tmp_path):
    def make(num_shards):
        return models.make("layers", "adam", num_shards)

    model, iterator = straight(lambda: make(1), K)
    for num_shards, way in ((16, "checkpoint"), (3, "weights")):
        save, load = WAYS[way]
        path = save(model, iterator, str(tmp_path))
        model, _ = load(path, lambda: make(num_shards))  # noqa: B023
        for table in models.tables(model)[:2]:
            assert table.stats()["shards"] == num_shards
        models.train(model, iterator, K)
    expected = expected_state("layers", "adam", 3 * K)
    models.assert_equal(models.state(model), expected)


def test_a_custom_step_continues(tmp_path):
    """Steps that `set_step` controls keep their value, and stay controlled."""

    def make():
        model = models.make("layers", "adam")
        models.tables(model)[1].set_step(1000)
        return model

    assert models.tables(make())[1].name == "counted"
    model, iterator = straight(make, 3)
    path = by_checkpoint(model, iterator, tmp_path)
    model, iterator = from_checkpoint(
        path, lambda: models.make("layers", "adam")
    )
    assert int(models.tables(model)[1].step) == 1000
    models.train(model, iterator, 3)
    assert int(models.tables(model)[1].step) == 1000
    expected, _ = straight(make, 6)
    models.assert_equal(models.state(model), models.state(expected))


def test_saved_model_with_a_training_step(tmp_path):
    """Training continues in a program without the model's code."""

    class Trainer(tf.Module):
        def __init__(self):
            super().__init__()
            self.model = models.make("layers", "adam")
            self.optimizer = self.model.optimizer

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 3], tf.int64),
                tf.TensorSpec([None, 2], tf.string),
                tf.TensorSpec([None, 1]),
            ]
        )
        def step(self, ids, names, label):
            with tf.GradientTape() as tape:
                score = self.model({"ids": ids, "names": names}, training=True)
                loss = tf.reduce_mean((score - label) ** 2)
            variables = self.model.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            return loss

    def run(step, iterator, count):
        losses = []
        for _ in range(count):
            x, label = next(iterator)
            losses.append(step(x["ids"], x["names"], label).numpy())
        return losses

    trainer, iterator = Trainer(), iter(models.dataset())
    run(trainer.step, iterator, K)
    tf.saved_model.save(trainer, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    found = run(loaded.step, rest_of_data(), K)
    assert found == run(trainer.step, iterator, K)


def test_model_export_carries_all_of_a_table(tmp_path):
    model, iterator = straight(lambda: models.make("collection", "adam"), K)
    model.export(str(tmp_path), verbose=False)
    features, _ = next(iterator)
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_allclose(
        loaded.serve(features),
        model.predict(features, verbose=0),
        rtol=1e-6,
        atol=1e-6,
    )
    reader = tf.train.load_checkpoint(f"{tmp_path}/variables/variables")
    mark = "/.ATTRIBUTES/rows"
    saved = [
        key.removesuffix(mark)
        for key in reader.get_variable_to_shape_map()
        if key.endswith(mark)
    ]
    for table in models.tables(model):
        wanted = models.table_state(table)
        (place,) = [
            s
            for s in saved
            if reader.get_tensor(f"{s}{mark}").shape[1] == table.output_dim
        ]
        for name, value in wanted.items():
            found = reader.get_tensor(f"{place}/.ATTRIBUTES/{name}")
            if value.size:
                np.testing.assert_array_equal(found, value, name)
            else:
                assert np.shape(found) == ()


def test_restored_before_the_optimizer_is_built(tmp_path):
    model, iterator = after_k_steps("layers", "accumulation")
    path = by_checkpoint(model, iterator, tmp_path)
    keras.utils.set_random_seed(1)
    other, iterator = models.layers(), iter(models.dataset())
    other.compile(models.OPTIMIZERS["accumulation"](), "mse")
    checkpoint = tf.train.Checkpoint(model=other, iterator=iterator)
    status = checkpoint.restore(path)
    models.train(other, iterator, K)
    status.assert_consumed()
    expected = expected_state("layers", "accumulation", 2 * K)
    models.assert_equal(models.state(other), expected)


_CHILD = """
import sys
sys.path.insert(0, {here!r})
import numpy as np, trained_models as models, resume_test as ways
way, path, out = sys.argv[1:]
model, iterator = ways.WAYS[way][1](
    path, lambda: models.make("layers", "accumulation"))
models.train(model, iterator, ways.K)
np.savez(out, **{{k.replace("/", "|"): v for k, v in
                 models.state(model).items()}})
"""


@pytest.mark.parametrize("way", ["checkpoint", "keras"])
def test_fresh_process(way, tmp_path, fresh_process):
    model, iterator = after_k_steps("layers", "accumulation")
    path = WAYS[way][0](model, iterator, str(tmp_path))
    here = os.path.dirname(os.path.abspath(__file__))
    fresh_process.run(_CHILD.format(here=here), way, path, tmp_path / "out.npz")
    expected = expected_state("layers", "accumulation", 2 * K)
    with np.load(tmp_path / "out.npz") as out:
        found = {name.replace("|", "/"): out[name] for name in out.files}
    models.assert_equal(found, expected)
