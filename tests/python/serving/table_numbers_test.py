"""Tests of the lookup counters of served models."""

import concurrent.futures

import pytest
import tensorflow as tf
from followed_models import Trainer
from served_models import batch, plain, trained_model

import lodestar
from lodestar.serving import LiveModel, openmetrics
from lodestar.serving.table_numbers import of_loaded


@pytest.fixture(scope="module")
def model():
    return trained_model()


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("served") / "model")
    lodestar.export.save(model, path)
    return path


def known_ids(trainer):
    """Returns how many of the features' ids have a row in the table."""
    _, found = trainer.table.find(trainer.ids)
    return int(tf.reduce_sum(tf.cast(found, tf.int32)))


def counted(numbers):
    """Returns (hits, misses) of the only table."""
    (hits,), (misses,) = numbers["hits"].values(), numbers["misses"].values()
    return hits, misses


@pytest.mark.parametrize("signature", ["serve", "serving_default"])
def test_an_export_counts_the_ids_of_its_calls(model, path, signature):
    loaded = tf.saved_model.load(path)
    features = batch(1, 40)
    before = of_loaded(loaded)
    assert not sum(before["hits"].values()) + sum(before["misses"].values())
    if signature == "serve":
        loaded.serve(features)
    else:
        loaded.signatures[signature](
            **{k: tf.constant(v) for k, v in plain(features).items()}
        )
    after = of_loaded(loaded)
    assert after["rows"] == before["rows"] and all(after["memory"].values())
    looked_up = [
        after["hits"][key] + after["misses"][key] for key in after["rows"]
    ]
    assert sorted(looked_up) == sorted(
        [
            features["clicks"].values.shape[0],
            features["words"].values.shape[0],
            40,
        ]
    )
    assert all(after["hits"].values())


def test_threads_and_copies_count_apart(path):
    features = batch(2, 16)
    one, two = tf.saved_model.load(path), tf.saved_model.load(path)
    one.serve(features)
    once = of_loaded(one)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for call in [pool.submit(one.serve, features) for _ in range(31)]:
            call.result()
    for what in ("hits", "misses"):
        want = {key: 32 * count for key, count in once[what].items()}
        assert of_loaded(one)[what] == want
        assert not any(of_loaded(two)[what].values())


def test_an_export_as_open_metrics(path):
    loaded = tf.saved_model.load(path)
    loaded.serve(batch(1, 40))
    labels = {"model": "ranker"}
    text = openmetrics(loaded, labels)
    assert text == openmetrics(of_loaded(loaded), labels)
    assert text.count('_total{model="ranker",table=') == 6


@pytest.mark.parametrize("wrong", [None, 3, "model", ["model"], object()])
def test_models_without_tables_are_refused(wrong):
    with pytest.raises(TypeError, match="`source` must be a LiveModel, what "):
        openmetrics(wrong)


def test_models_that_do_not_count_are_refused(model, tmp_path):
    with pytest.raises(TypeError, match=f"got {type(model).__name__}"):
        openmetrics(model)
    plain = str(tmp_path / "plain")
    lodestar.export.save_plain(model, plain)
    with pytest.raises(ValueError, match="was written by export.save_plain"):
        openmetrics(tf.saved_model.load(plain))


def test_models_are_read_eagerly_alone(path):
    loaded = tf.saved_model.load(path)
    with pytest.raises(RuntimeError, match="`openmetrics` returns Python obj"):
        tf.function(lambda: openmetrics(loaded))()


@pytest.mark.parametrize("consistency", ["call", "row"])
def test_a_live_model_counts_over_updates(tmp_path, consistency):
    trainer = Trainer(tmp_path)
    trainer.train()
    trainer.save()
    live = LiveModel(
        trainer.exported,
        trainer.snapshots,
        poll_seconds=None,
        consistency=consistency,
    )
    hits = misses = 0
    for delta in (True, False, True):
        live(trainer.features)
        hits += known_ids(trainer)
        misses += len(trainer.ids) - known_ids(trainer)
        assert counted(live.stats()) == (hits, misses)
        trainer.train()
        trainer.save(delta=delta)
        assert live.poll()
        # An update counts no lookups, and resets nothing.
        assert counted(live.stats()) == (hits, misses)
    copies = 2 if consistency == "call" else 1
    (memory,) = live.stats()["memory"].values()
    (own,) = of_loaded(live.loaded)["memory"].values()
    assert memory >= copies * own * 0.5 and memory > own * (copies - 1)
