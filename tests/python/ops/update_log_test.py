"""Ops of UpdateLog and EmbeddingStage: updates apply atomically and once."""

import re
import uuid

import numpy as np
import pytest
import tensorflow as tf
from handles import weak

import lodestar
from lodestar._library import gen_ops


def new_log():
    return gen_ops.lodestar_update_log(shared_name=uuid.uuid4().hex)


@pytest.fixture
def log():
    return new_log()


@pytest.fixture
def table():
    table = lodestar.EmbeddingVariable(
        2, embeddings_initializer="zeros", name="logged"
    )
    table.insert_or_assign([1, 2], [[0.0, 0.0], [0.0, 0.0]])
    return table


def begin(log, update, finished=0):
    attempt, committed = gen_ops.lodestar_begin_update(log, [update, finished])
    return attempt, int(committed)


def stage(table, log, attempt, ids=(1, 2), value=1.0, name=None, **attributes):
    ids = tf.constant(ids, tf.int64)
    options = {"optimizer": "sgd", "slot_inits": [], **attributes}
    gen_ops.lodestar_embedding_stage(
        table.resource_handle,
        ids,
        -value * tf.ones([tf.size(ids), 2]),
        tf.constant([1.0, 0.0]),
        tf.constant(-1, tf.int64),
        log,
        attempt,
        attempt[1] if name is None else name,  # of one log
        **options,
    )


def commit(log, attempt, name=None):
    """Commits the updates that the attempt staged, or another one by its name."""
    gen_ops.lodestar_commit_update(
        log, attempt, attempt[1] if name is None else name
    )


def values(table):
    return table.find([1, 2])[0].numpy()[:, 0].tolist()


def test_a_staged_update_is_written_by_the_commit(table, log):
    attempt, committed = begin(log, 0)
    assert (attempt.numpy().tolist(), committed) == ([0, 1], 0)
    stage(table, log, attempt)
    assert (values(table), int(table.step)) == ([0.0, 0.0], 0)
    commit(log, attempt)
    assert (values(table), int(table.step)) == ([1.0, 1.0], 1)
    commit(log, attempt)
    assert values(table) == [1.0, 1.0]


def test_gradients_of_equal_ids_are_summed_and_empty_ones_move_the_step(
    table, log
):
    attempt, _ = begin(log, 0)
    stage(table, log, attempt, ids=[2, 2, 1])
    stage(table, log, attempt, ids=[])
    commit(log, attempt)
    assert (values(table), int(table.step)) == ([1.0, 2.0], 2)


def test_the_same_as_apply_bit_for_bit(log):
    random = np.random.default_rng(0)
    tables = [
        lodestar.EmbeddingVariable(8, seed=(0, 1), name=name)
        for name in ("staged", "applied")
    ]
    for update in range(5):
        ids = tf.constant(random.integers(0, 50, 100))
        rows = tf.constant(random.normal(size=(100, 8)), tf.float32)
        for table in tables:
            table.lookup(ids, training=True)
        numbers = (tf.constant([0.1, 0.0, 1e-7]), tf.constant(-1, tf.int64))
        options = {"optimizer": "adagrad", "slot_inits": [0.1]}
        attempt, _ = begin(log, update)
        gen_ops.lodestar_embedding_stage(
            tables[0].resource_handle,
            ids,
            rows,
            *numbers,
            log,
            attempt,
            attempt[1],
            **options,
        )
        commit(log, attempt)
        gen_ops.lodestar_embedding_apply(
            tables[1].resource_handle, ids, rows, *numbers, **options
        )
    first, second = (table.export() for table in tables)
    for ours, theirs in zip(first[:2] + first[3:5], second[:2] + second[3:5]):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(
        first.optimizer_slots["accumulator"],
        second.optimizer_slots["accumulator"],
    )


def test_an_attempt_finishes_staged_updates_of_another(table, log):
    attempt, _ = begin(log, 0)
    stage(table, log, attempt, name=7)
    later, _ = begin(log, 0)
    stage(table, log, later, name=8, value=5.0)
    again, committed = begin(log, 0)
    assert not committed  # on this log; another one may have committed it
    commit(log, again, 7)
    assert values(table) == [1.0, 1.0]
    assert begin(log, 0)[1] == 7
    for late in (commit, lambda *key: stage(table, *key)):
        # What a ClusterCoordinator runs again.
        with pytest.raises(
            tf.errors.CancelledError,
            match="attempt 1 at update 0 is superseded: a later .* has .*on /job:",
        ):
            late(log, attempt)


def test_finished_updates_are_forgotten(table, log):
    attempt, _ = begin(log, 2)
    stage(table, log, attempt)
    begin(log, 3, finished=3)
    with pytest.raises(
        tf.errors.FailedPreconditionError,
        match="update 2 is finished, like all updates below 3",
    ):
        begin(log, 2)
    with pytest.raises(tf.errors.CancelledError, match="is superseded"):
        commit(log, attempt)
    assert values(table) == [0.0, 0.0]


def test_closed_updates_are_settled_and_begin_no_more(table, log):
    attempts = [begin(log, update)[0] for update in range(4)]
    for attempt, value in zip(attempts, [1.0, 10.0, 100.0, 1000.0]):
        stage(table, log, attempt, value=value)
    commit(log, attempts[0])
    closed = gen_ops.lodestar_close_updates(log, 3)
    assert closed.numpy().tolist() == [[0, 1]]
    for late in (commit, lambda *key: stage(table, *key)):
        with pytest.raises(tf.errors.CancelledError, match="is superseded"):
            late(log, attempts[2])
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="like all updates below 3"
    ):
        begin(log, 2)
    # Update 1 is committed on another log, 3 is not closed.
    settled = tf.constant([[0, 1], [1, 1], [3, 1]], tf.int64)
    gen_ops.lodestar_settle_updates(log, settled)
    assert values(table) == [11.0, 11.0]
    settled = tf.constant([[1, 1], [2, 1]], tf.int64)
    gen_ops.lodestar_settle_updates(log, settled)
    assert values(table) == [11.0, 11.0]
    commit(log, attempts[3])
    assert values(table) == [1011.0, 1011.0]


def test_staging_refuses_what_apply_refuses(table, log):
    attempt, _ = begin(log, 0)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="table 'logged': the gradient of id 1 is not finite",
    ):
        stage(table, log, attempt, value=np.inf)
    stage(table, log, attempt, ids=[1], value=np.inf, nonfinite="skip")
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="`gradients` must have shape"
    ):
        gen_ops.lodestar_embedding_stage(
            table.resource_handle,
            tf.constant([1], tf.int64),
            tf.ones([2, 2]),
            tf.constant([1.0, 0.0]),
            tf.constant(-1, tf.int64),
            log,
            attempt,
            attempt[1],
            optimizer="sgd",
            slot_inits=[],
        )
    commit(log, attempt)
    assert values(table) == [0.0, 0.0]
    assert table.stats()["nonfinite_gradients"] == 1
    attempt, _ = begin(log, 1)
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="table 'logged': .*sgd"
    ):
        stage(table, log, attempt, optimizer="adagrad", slot_inits=[0.1])


@pytest.mark.parametrize(
    "op, name, inputs",
    [
        ("begin_update", "update", [[0]]),
        ("begin_update", "update", [0]),
        ("commit_update", "attempt", [[0, 1, 2], 1]),
        ("commit_update", "attempt", [[[0, 1]], 1]),
        ("commit_update", "attempt_name", [[0, 1], [1]]),
        ("commit_update", "attempt_name", [[0, 1], 0]),
        ("close_updates", "below", [[0]]),
        ("settle_updates", "committed", [[0, 1]]),
        ("settle_updates", "committed", [[[0, 1, 2]]]),
        ("settle_updates", "committed[1]", [[[0, 1], [0, 0]]]),
    ],
)
def test_other_numbers_are_refused(log, op, name, inputs):
    call = getattr(gen_ops, f"lodestar_{op}")
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=re.escape(f"`{name}`")
    ):
        call(log, *(tf.constant(value, tf.int64) for value in inputs))


def test_an_invalid_log_is_refused(table, log):
    for other in (table.resource_handle, tf.reshape(log, [1])[:0]):
        with pytest.raises(tf.errors.InvalidArgumentError):
            begin(other, 0)


def test_in_a_function_with_unknown_shapes(table, log):
    @tf.function(
        input_signature=[
            tf.TensorSpec(None, tf.int64),
            tf.TensorSpec(None, tf.int64),
            tf.TensorSpec(None, tf.float32),
        ]
    )
    def update(key, ids, rows):
        attempt, _ = gen_ops.lodestar_begin_update(log, key)
        staged = gen_ops.lodestar_embedding_stage(
            table.resource_handle,
            ids,
            rows,
            tf.constant([1.0, 0.0]),
            tf.constant(-1, tf.int64),
            log,
            attempt,
            attempt[1],
            optimizer="sgd",
            slot_inits=[],
        )
        with tf.control_dependencies([staged]):
            commit(log, attempt)
        return attempt

    for number in range(3):
        key = tf.constant([number, number], tf.int64)
        made = update(key, [1, 2], -tf.ones([2, 2]))
        assert made.numpy().tolist() == [number, 1]
    assert values(table) == [3.0, 3.0]


def test_a_staged_update_keeps_its_table_but_not_its_log(log):
    table = lodestar.EmbeddingVariable(2, embeddings_initializer="zeros")
    table.insert_or_assign([1, 2], np.zeros((2, 2)))
    attempt, _ = begin(log, 0)
    stage(table, log, attempt)
    del table
    commit(log, attempt)
    attempt, _ = begin(log, 1)
    gen_ops.lodestar_release_resource(log)
    with pytest.raises(tf.errors.NotFoundError):
        commit(weak(log), attempt)
