"""BeginUpdate, EmbeddingStage and CommitUpdate: updates made whole and once."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar._library import gen_ops

_runs = itertools.count(1000)


@pytest.fixture
def run():
    return tf.constant(next(_runs), tf.int64)


@pytest.fixture
def table():
    table = lodestar.EmbeddingVariable(2, initializer="zeros", name="logged")
    table.insert_or_assign([1, 2], [[0.0, 0.0], [0.0, 0.0]])
    return table


def begin(run, update, finished=0):
    attempt, committed = gen_ops.lodestar_begin_update(run, update, finished)
    return attempt, bool(committed)


def stage(table, run, update, attempt, ids=(1, 2), value=1.0, **attributes):
    ids = tf.constant(ids, tf.int64)
    options = {"optimizer": "sgd", "slot_inits": [], **attributes}
    gen_ops.lodestar_embedding_stage(
        table.resource_handle,
        ids,
        -value * tf.ones([tf.size(ids), 2]),
        tf.constant([1.0, 0.0]),
        tf.constant(-1, tf.int64),
        run,
        update,
        attempt,
        **options,
    )


def commit(run, update, attempt, of_earlier_attempt=False):
    gen_ops.lodestar_commit_update(
        run, update, attempt, of_earlier_attempt=of_earlier_attempt
    )


def values(table):
    return table.find([1, 2])[0].numpy()[:, 0].tolist()


def test_a_staged_update_is_written_by_the_commit(table, run):
    attempt, committed = begin(run, 0)
    assert (int(attempt), committed) == (1, False)
    stage(table, run, 0, attempt)
    assert (values(table), int(table.step)) == ([0.0, 0.0], 0)
    commit(run, 0, attempt)
    assert (values(table), int(table.step)) == ([1.0, 1.0], 1)
    commit(run, 0, attempt)
    assert values(table) == [1.0, 1.0]


def test_gradients_of_equal_ids_are_summed_and_empty_ones_move_the_step(
    table, run
):
    attempt, _ = begin(run, 0)
    stage(table, run, 0, attempt, ids=[2, 2, 1])
    stage(table, run, 0, attempt, ids=[])
    commit(run, 0, attempt)
    assert (values(table), int(table.step)) == ([1.0, 2.0], 2)


def test_the_same_as_apply_bit_for_bit(run):
    random = np.random.default_rng(0)
    tables = [
        lodestar.EmbeddingVariable(8, init_salt=1, name=name)
        for name in ("staged", "applied")
    ]
    for update in range(5):
        ids = tf.constant(random.integers(0, 50, 100))
        rows = tf.constant(random.normal(size=(100, 8)), tf.float32)
        for table in tables:
            table.lookup(ids, training=True)
        numbers = (tf.constant([0.1, 0.0, 1e-7]), tf.constant(-1, tf.int64))
        options = {"optimizer": "adagrad", "slot_inits": [0.1]}
        attempt, _ = begin(run, update)
        gen_ops.lodestar_embedding_stage(
            tables[0].resource_handle,
            ids,
            rows,
            *numbers,
            run,
            update,
            attempt,
            **options,
        )
        commit(run, update, attempt)
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


def test_an_attempt_after_a_commit_writes_nothing_again(table, run):
    attempt, _ = begin(run, 0)
    stage(table, run, 0, attempt)
    commit(run, 0, attempt)
    again, committed = begin(run, 0)
    assert committed
    commit(run, 0, again, of_earlier_attempt=True)
    assert values(table) == [1.0, 1.0]
    with pytest.raises(tf.errors.FailedPreconditionError, match="is committed"):
        stage(table, run, 0, again)


def test_an_attempt_finishes_what_another_has_staged(table, run):
    attempt, _ = begin(run, 0)
    stage(table, run, 0, attempt)
    again, committed = begin(run, 0)
    assert not committed  # here; another process may say that it is
    commit(run, 0, again, of_earlier_attempt=True)
    assert values(table) == [1.0, 1.0]
    for late in (commit, lambda *key: stage(table, *key)):
        with pytest.raises(
            tf.errors.FailedPreconditionError,
            match="attempt 1 at update 0 .* is over",
        ):
            late(run, 0, attempt)


def test_an_attempt_may_begin_anew(table, run):
    attempt, _ = begin(run, 0)
    stage(table, run, 0, attempt, value=5.0)
    again, _ = begin(run, 0)
    stage(table, run, 0, again)
    commit(run, 0, again)
    assert values(table) == [1.0, 1.0]


def test_finished_updates_and_past_runs_are_forgotten(table, run):
    begin(run, 3, finished=3)
    with pytest.raises(
        tf.errors.FailedPreconditionError,
        match="update 2 .* is finished, as are all below 3",
    ):
        begin(run, 2)
    attempt, _ = begin(run, 4)
    stage(table, run, 4, attempt)
    begin(run + 500, 0)
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="or another run"
    ):
        commit(run, 4, attempt)
    with pytest.raises(
        tf.errors.FailedPreconditionError, match=f"run {int(run)} is over"
    ):
        begin(run, 5)
    assert values(table) == [0.0, 0.0]


def test_what_apply_refuses_is_refused_when_it_is_staged(table, run):
    attempt, _ = begin(run, 0)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="table 'logged': the gradient of id 1 is not finite",
    ):
        stage(table, run, 0, attempt, value=np.inf)
    stage(table, run, 0, attempt, ids=[1], value=np.inf, nonfinite="skip")
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="`gradients` has shape"
    ):
        gen_ops.lodestar_embedding_stage(
            table.resource_handle,
            tf.constant([1], tf.int64),
            tf.ones([2, 2]),
            tf.constant([1.0, 0.0]),
            tf.constant(-1, tf.int64),
            run,
            0,
            attempt,
            optimizer="sgd",
            slot_inits=[],
        )
    commit(run, 0, attempt)
    assert values(table) == [0.0, 0.0]
    assert table.stats()["nonfinite_gradients"] == 1
    attempt, _ = begin(run, 1)
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="table 'logged': .*sgd"
    ):
        stage(table, run, 1, attempt, optimizer="adagrad", slot_inits=[0.1])


@pytest.mark.parametrize("place", range(3))
def test_numbers_that_are_no_scalars_are_refused(run, place):
    names = [("run", "update", "finished"), ("run", "update", "attempt")]
    for op, inputs in zip(
        (gen_ops.lodestar_begin_update, gen_ops.lodestar_commit_update), names
    ):
        numbers = [run, tf.constant(0, tf.int64), tf.constant(0, tf.int64)]
        numbers[place] = tf.constant([0], tf.int64)
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=f"`{inputs[place]}`"
        ):
            op(*numbers)


def test_in_a_function_of_unknown_shapes(table, run):
    @tf.function(
        input_signature=[
            tf.TensorSpec(None, tf.int64),
            tf.TensorSpec(None, tf.int64),
            tf.TensorSpec(None, tf.float32),
        ]
    )
    def update(number, ids, rows):
        attempt, _ = gen_ops.lodestar_begin_update(run, number, number)
        staged = gen_ops.lodestar_embedding_stage(
            table.resource_handle,
            ids,
            rows,
            tf.constant([1.0, 0.0]),
            tf.constant(-1, tf.int64),
            run,
            number,
            attempt,
            optimizer="sgd",
            slot_inits=[],
        )
        with tf.control_dependencies([staged]):
            commit(run, number, attempt)
        return attempt

    for number in range(3):
        assert int(update(number, [1, 2], -tf.ones([2, 2]))) == 1
    assert values(table) == [3.0, 3.0]


def test_a_staged_update_keeps_its_table(run):
    table = lodestar.EmbeddingVariable(2, initializer="zeros")
    table.insert_or_assign([1, 2], np.zeros((2, 2)))
    attempt, _ = begin(run, 0)
    stage(table, run, 0, attempt)
    del table
    commit(run, 0, attempt)
