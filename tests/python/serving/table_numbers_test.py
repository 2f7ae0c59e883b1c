"""Tests of the lookup counters of served models."""

import concurrent.futures

import pytest
import tensorflow as tf
from followed_models import Trainer
from served_models import batch, plain, trained_model

import lodestar
from lodestar.serving import LiveModel, stats


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
    before = stats(loaded)
    assert not sum(before["hits"].values()) + sum(before["misses"].values())
    if signature == "serve":
        loaded.serve(features)
    else:
        loaded.signatures[signature](
            **{k: tf.constant(v) for k, v in plain(features).items()}
        )
    after = stats(loaded)
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
    once = stats(one)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for call in [pool.submit(one.serve, features) for _ in range(31)]:
            call.result()
    for what in ("hits", "misses"):
        want = {key: 32 * count for key, count in once[what].items()}
        assert stats(one)[what] == want
        assert not any(stats(two)[what].values())


def test_what_has_no_tables_that_count_is_refused(model, path, tmp_path):
    plain = str(tmp_path / "plain")
    lodestar.export.save_plain(model, plain)
    for wrong in (None, 3, path, model, tf.saved_model.load(plain)):
        with pytest.raises(ValueError, match="without tables of lodestar.exp"):
            stats(wrong)


def test_it_runs_eagerly_alone(path):
    loaded = tf.saved_model.load(path)
    with pytest.raises(RuntimeError, match="`stats` returns Python objects"):
        tf.function(lambda: stats(loaded))()


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
    (own,) = stats(live.loaded)["memory"].values()
    assert memory >= copies * own * 0.5 and memory > own * (copies - 1)
    with pytest.raises(ValueError, match="`loaded` is LiveModel without"):
        stats(live)
