"""Updates that are made whole and once, whichever attempt is cut off."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from own_optimizers import Own

import lodestar
from lodestar._library import gen_ops
from lodestar.optimizers import update_attempt

IDS = tf.range(8, dtype=tf.int64)
DEVICES = ["/CPU:0", "/CPU:1"]  # of one task
_runs = itertools.count(5000)


@pytest.fixture
def run():
    return next(_runs)


def make_table(name="once", **options):
    table = lodestar.EmbeddingVariable(
        2, initializer="zeros", devices=DEVICES, name=name, **options
    )
    table.insert_or_assign(IDS, tf.zeros([8, 2]))
    return table


def values(table):
    return table.find(IDS)[0].numpy()[:, 0].tolist()


def wrap(inner, **options):
    return lodestar.optimizers.DynamicEmbeddingOptimizer(inner, **options)


def step_of(tables, optimizer, run, value=-1.0):
    """A step that adds 1 to every row, as update `update`; 1 where it ran."""

    def step():
        gradients = [
            tf.IndexedSlices(
                tf.fill([8, 2], value), IDS, tf.constant([-1, 2], tf.int32)
            )
            for _ in tables
        ]
        optimizer.apply(gradients, [table.hook for table in tables])
        return tf.constant(1)

    @tf.function(autograph=False)
    def once(update, finished):
        return update_attempt.make_once(
            step,
            lambda: tf.constant(0),
            run=tf.constant(run, tf.int64),
            update=update,
            finished=finished,
            devices=[d for table in tables for d in table.devices or ()],
        )

    def call(update, finished=0):
        return int(
            once(tf.constant(update, tf.int64), tf.constant(finished, tf.int64))
        )

    return call


def begin(run, update):
    return gen_ops.lodestar_begin_update(run, update, 0)[0]


def stage(table, run, update, attempt, part):
    part = table.parts[part]
    ids = tf.boolean_mask(
        IDS, part.call(gen_ops.lodestar_embedding_frequency, IDS) >= 0
    )
    found = part.call(
        gen_ops.lodestar_embedding_find,
        tf.zeros([0, 2]),
        ids,
        tf.zeros([0]),
    )[1]
    own = tf.boolean_mask(ids, found)
    part.call(
        gen_ops.lodestar_embedding_stage,
        own,
        -tf.ones([tf.size(own), 2]),
        tf.constant([1.0, 0.0]),
        tf.constant(-1, tf.int64),
        run,
        update,
        attempt,
        optimizer="sgd",
        slot_inits=[],
    )


def test_each_update_is_made_once(run):
    tables = [make_table("first"), make_table("second")]
    step = step_of(tables, wrap(keras.optimizers.SGD(1.0)), run)
    assert [step(0), step(1), step(1), step(0)] == [1, 1, 0, 0]
    for table in tables:
        assert values(table) == [2.0] * 8
        assert int(table.step) == 2


def test_what_an_attempt_has_staged_is_not_written(run):
    table = make_table()
    step = step_of([table], wrap(keras.optimizers.SGD(1.0)), run)
    stage(table, run, 0, begin(run, 0), part=0)
    assert step(0) == 1
    assert values(table) == [1.0] * 8


def test_what_an_attempt_has_committed_is_not_made_again(run):
    table = make_table()
    step = step_of([table], wrap(keras.optimizers.SGD(1.0)), run)
    attempt = begin(run, 0)
    for part in range(2):
        stage(table, run, 0, attempt, part)
    gen_ops.lodestar_commit_update(run, 0, attempt)
    assert step(0) == 0
    assert values(table) == [1.0] * 8


def test_finished_updates_are_refused(run):
    table = make_table()
    step = step_of([table], wrap(keras.optimizers.SGD(1.0)), run)
    assert step(5, finished=5) == 1
    with pytest.raises(tf.errors.FailedPreconditionError, match="finished"):
        step(4)
    assert values(table) == [1.0] * 8


def test_an_update_that_is_refused_changes_no_table(run):
    tables = [make_table("first"), make_table("second")]
    optimizer = wrap(keras.optimizers.SGD(1.0))
    step = step_of(tables, optimizer, run, value=np.inf)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not finite"):
        step(0)
    for table in tables:
        assert values(table) == [0.0] * 8
    assert step_of(tables, optimizer, run)(0) == 1
    for table in tables:
        assert values(table) == [1.0] * 8


def test_a_replayed_update_is_made_with_the_others(run):
    tables = [
        make_table("fused"),
        make_table("replayed", optimizer=Own(1.0)),
    ]
    step = step_of(tables, wrap(keras.optimizers.SGD(1.0)), run)
    assert step(0) == 1
    after = [values(table) for table in tables]
    assert after[0] == [1.0] * 8
    assert min(after[1]) > 0.0
    assert step(0) == 0
    assert [values(table) for table in tables] == after


def test_a_table_of_this_process_is_updated_with_the_others(run):
    tables = [
        make_table("there"),
        lodestar.EmbeddingVariable(2, initializer="zeros", name="here"),
    ]
    tables[1].insert_or_assign(IDS, tf.zeros([8, 2]))
    optimizer = wrap(keras.optimizers.SGD(1.0))
    step = step_of(tables, optimizer, run)
    assert [step(0), step(0)] == [1, 0]
    assert [values(table) for table in tables] == [[1.0] * 8] * 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="not finite"):
        step_of(tables, optimizer, run, value=np.inf)(1)
    assert [values(table) for table in tables] == [[1.0] * 8] * 2


def test_gradients_that_wait_are_refused(run):
    inner = keras.optimizers.SGD(1.0, gradient_accumulation_steps=2)
    step = step_of([make_table()], wrap(inner), run)
    with pytest.raises(
        NotImplementedError, match="gradient_accumulation_steps .* larger"
    ):
        step(0)


def test_without_an_attempt_nothing_is_staged():
    assert update_attempt.current() is None
    table = make_table()
    step = wrap(keras.optimizers.SGD(1.0))
    gradient = tf.IndexedSlices(
        -tf.ones([8, 2]), IDS, tf.constant([-1, 2], tf.int32)
    )
    step.apply([gradient], [table.hook])
    assert values(table) == [1.0] * 8
