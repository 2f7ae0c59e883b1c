"""Threads call one served model concurrently.

LODESTAR_STRESS_SECONDS sets the duration.
"""

import gc
import os
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from served_models import batch, plain, trained_model

import lodestar
from lodestar._library import gen_ops

SECONDS = float(os.environ.get("LODESTAR_STRESS_SECONDS", "2")) / 2
THREADS = 8


def sizes(loaded):
    """Returns the number of rows of each embedding table of a loaded model."""
    return [
        int(gen_ops.lodestar_embedding_size(table.resource_handle))
        for table in loaded.tables.values()
    ]


def call_from_threads(serve, cases, more=()):
    """Calls `serve` on the cases from THREADS threads, concurrently with `more`.

    Each thread compares every result with the first.
    """
    end = time.monotonic() + SECONDS
    failures = []
    calls = [0] * (THREADS + len(more))

    def check(seed):
        features, want = cases[(seed + calls[seed]) % len(cases)]
        got = serve(**features)
        for name in want:
            np.testing.assert_array_equal(got[name].numpy(), want[name])

    def body(seed, work):
        try:
            while not failures and (time.monotonic() < end or not calls[seed]):
                work(seed)
                calls[seed] += 1
        except BaseException as error:  # noqa: BLE001 (reported below)
            failures.append(error)

    threads = [
        threading.Thread(target=body, args=arguments)
        for arguments in enumerate([check] * THREADS + list(more))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "model"
    lodestar.export.save(trained_model(), path)
    return str(path)


def cases_of(loaded):
    """Returns features of different sizes, and their scores from one thread."""
    serve = loaded.signatures["serving_default"]
    cases = []
    for seed in range(12):
        features = {
            k: tf.constant(v) for k, v in plain(batch(seed, seed * 7)).items()
        }
        scores = {k: v.numpy() for k, v in serve(**features).items()}
        cases.append((features, scores))
    return cases


def test_scores_are_exact_and_nothing_is_added(path):
    loaded = tf.saved_model.load(path)
    before = sizes(loaded)
    assert len(before) == 3 and min(before) > 0
    cases = cases_of(loaded)
    # Some ids have no row.
    assert len({scores["score"].tobytes() for _, scores in cases}) == 12
    call_from_threads(loaded.signatures["serving_default"], cases)
    assert sizes(loaded) == before


def test_a_second_copy_is_loaded_and_freed(path):
    loaded = tf.saved_model.load(path)
    before = sizes(loaded)
    cases = cases_of(loaded)

    def load_and_unload(_):
        copy = tf.saved_model.load(path)
        assert sizes(copy) == before
        features, want = cases[5]
        got = copy.signatures["serving_default"](**features)
        np.testing.assert_array_equal(got["score"], want["score"])
        del copy, got
        gc.collect()

    call_from_threads(
        loaded.signatures["serving_default"], cases, more=[load_and_unload]
    )
    assert sizes(loaded) == before
