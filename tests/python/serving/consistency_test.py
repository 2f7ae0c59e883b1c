"""Calls see one version while the model is updated.

LODESTAR_STRESS_SECONDS sets how long threads call.
"""

import os
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from followed_models import SERVERS, Trainer, serve

from lodestar._library import gen_ops

SECONDS = float(os.environ.get("LODESTAR_STRESS_SECONDS", "0.5"))
IDS = 300


class Marked:
    """A model whose rows and weights all equal the number of the save."""

    def __init__(self, folder, **options):
        self.trainer = Trainer(folder, **options)
        self._ids = tf.range(IDS, dtype=tf.int64)
        self.features = {
            "clicks": tf.RaggedTensor.from_row_lengths(self._ids, [1] * IDS)
        }
        self.arguments = {
            "clicks_values": self._ids,
            "clicks_row_splits": tf.range(IDS + 1, dtype=tf.int64),
        }
        self.number = 0

    def save(self, delta=True):
        self.number += 1
        number = float(self.number)
        self.trainer.table.insert_or_assign(
            self._ids, tf.fill([IDS, 4], number)
        )
        # With a row of ones these compute 4; the bias adds nothing.
        for variable in self.trainer.model.layers[-1].weights:
            variable.assign(tf.fill(variable.shape, number))
        return self.trainer.save(delta=delta)


def numbers(outputs):
    """Returns the numbers that a call has seen, in rows and in weights."""
    rows = np.unique(outputs["rows"])
    # number x rows x 4 + number
    weights = outputs["score"].numpy()[:, 0] / (
        4 * outputs["rows"].numpy()[:, 0] + 1
    )
    return {*rows.tolist(), *weights.tolist()}


def call_from_threads(marked, served, call, check):
    """Calls from threads while versions appear.

    check(mine, outputs) appends the number of each call to the thread's list.
    Returns these lists.
    """
    done = threading.Event()
    failures, seen = [], [[] for _ in range(4)]

    def versions():
        return {number for mine in seen for number in mine}

    def read(mine):
        try:
            while not done.is_set():
                check(mine, call())
        except BaseException as error:  # noqa: BLE001 (reported below)
            failures.append(error)

    threads = [threading.Thread(target=read, args=[mine]) for mine in seen]
    for thread in threads:
        thread.start()
    end = time.monotonic() + SECONDS
    while not failures and (
        time.monotonic() < end
        or served.stats()["updates"] < 8
        or min(map(len, seen)) < 8
        or len(versions()) <= 2
    ):
        # Threads see versions that they skip as well.
        marked.save(delta=marked.number % 5 != 0)
    done.set()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    stats = served.stats()
    assert stats["failures"] == 0, stats["last_error"]
    assert len(versions()) > 2
    return seen


@pytest.mark.parametrize(
    "server, way",
    [
        ("export", "call"),
        ("call", "call"),
        ("call", "signature"),
        ("export", "function"),
        ("call", "dataset"),
    ],
)
def test_threads_see_one_version_a_call(tmp_path, server, way):
    marked = Marked(tmp_path, follow=server == "export", poll_seconds=0.01)
    marked.save(delta=False)
    served = serve(marked.trainer, server, 0.01)
    function = served.signatures["serving_default"]  # before any update
    traced = tf.function(served.__call__)
    dataset = tf.data.Dataset.from_tensors(marked.features).repeat()
    batches = threading.local()

    def from_dataset():
        if not hasattr(batches, "iterator"):
            batches.iterator = iter(
                dataset.map(served.__call__, num_parallel_calls=2)
            )
        return next(batches.iterator)

    def check(mine, outputs):
        found = numbers(outputs)
        assert len(found) == 1, f"two versions: {found}"
        mine.append(found.pop())

    call = {
        "call": lambda: served(marked.features),
        "signature": lambda: function(**marked.arguments),
        "function": lambda: traced(marked.features),
        "dataset": from_dataset,
    }[way]
    seen = call_from_threads(marked, served, call, check)
    if way != "dataset":  # which computes some batches in advance
        assert all(mine == sorted(mine) for mine in seen), "went back"


def test_a_single_copy_has_no_torn_rows(tmp_path):
    marked = Marked(tmp_path)
    marked.save(delta=False)
    served = serve(marked.trainer, "row", 0.01)

    def check(mine, outputs):
        rows = outputs["rows"].numpy()
        assert (rows == rows[:, :1]).all(), "a torn row"
        assert rows.min() >= max(mine, default=0.0), "an older row"
        mine.append(rows.min())

    with served:
        call_from_threads(
            marked, served, lambda: served(marked.features), check
        )
        assert 1 < served.stats()["full_updates"] < marked.number


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("server", SERVERS)
def test_a_version_that_is_held(tmp_path, server, delta):
    """A call that has begun keeps its version, whatever is loaded."""
    marked = Marked(tmp_path, follow=server == "export")
    marked.save(delta=False)
    served = serve(marked.trainer, server)
    held = served._follower if server != "export" else served.loaded.follower
    own = getattr(held, "_own", None) or [
        served.loaded.tables["clicks"].resource_handle,
        *(variable.handle for variable in served.loaded.model_variables),
    ]
    table, *weights = gen_ops.lodestar_snapshot_follower_resources(
        held.resource_handle, own
    ).resources

    def seen():
        rows = gen_ops.lodestar_embedding_export(table, dtype=tf.float32)[1]
        values = [
            tf.raw_ops.ReadVariableOp(resource=weight, dtype=tf.float32)
            for weight in weights
        ]
        return {
            float(x) for tensor in (rows, *values) for x in np.ravel(tensor)
        }

    for number in (2, 3, 4):
        marked.save(delta=delta)
        # Updates do not wait for the call.
        assert served.poll() and served.version() == number
        assert numbers(served(marked.features)) == {float(number)}
        if server == "row" and delta:
            assert seen() == {1.0, float(number)}
        else:
            assert seen() == {1.0}


def test_functions_of_the_user(tmp_path):
    marked = Marked(tmp_path)
    marked.save(delta=False)
    live = serve(marked.trainer, "call")
    function = live.signatures["serving_default"]
    assert set(function.structured_outputs) == {"rows", "score"}

    @tf.function
    def both(values, splits):
        outputs = function(clicks_values=values, clicks_row_splits=splits)
        ragged = tf.RaggedTensor.from_row_splits(values, splits)
        again = live({"clicks": ragged})
        return outputs, tf.reduce_sum(again["rows"])

    for number in (1, 2, 3):
        outputs, total = both(*marked.arguments.values())
        assert numbers(outputs) == {float(number)}
        assert total == 4 * IDS * number
        marked.save()
        live.poll()


def test_from_rows_follows_snapshots(tmp_path):
    marked = Marked(tmp_path, from_rows=True)
    live = serve(marked.trainer, "call")
    function = live.signatures["from_rows"]
    (name,) = function.structured_input_signature[1]
    for number in (1, 2, 3):
        marked.save(delta=number > 1)
        live.poll()
        score = function(**{name: tf.ones([2, 4])})["score"]
        np.testing.assert_array_equal(score, [[5.0 * number]] * 2)
