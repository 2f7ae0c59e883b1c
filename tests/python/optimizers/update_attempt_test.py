"""Updates apply atomically and once, whichever attempt is interrupted."""

import collections
import concurrent.futures
import contextlib
import re
import time
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from own_optimizers import Own

import lodestar
from lodestar._library import gen_ops
from lodestar.optimizers import update_attempt
from lodestar.optimizers.update_attempt import UpdateLogs
from lodestar.train.cluster_steps import errors

IDS = tf.range(8, dtype=tf.int64)
DEVICES = ["/CPU:0", "/device:CPU:0", "/CPU:1"]  # the first of two names


@pytest.fixture
def logs():
    return UpdateLogs(DEVICES)


def make_table(name="once", **options):
    table = lodestar.EmbeddingVariable(
        2, embeddings_initializer="zeros", devices=DEVICES, name=name, **options
    )
    table.insert_or_assign(IDS, tf.zeros([8, 2]))
    return table


def values(table):
    return table.find(IDS)[0].numpy()[:, 0].tolist()


def wrap(inner, **options):
    return lodestar.optimizers.wrap(inner, **options)


def step_of(tables, optimizer, logs, value=-1.0):
    """Returns the result of a step that adds 1 to every row as update `update`."""

    def step():
        gradients = [
            tf.IndexedSlices(
                tf.fill([8, 2], value), IDS, tf.constant([-1, 2], tf.int32)
            )
            for _ in tables
        ]
        optimizer.apply(gradients, [table for table in tables])
        return tf.constant(1)

    @tf.function(autograph=False)
    def once(update, finished):
        attempt = logs.begin(update, finished)
        return attempt.once(step, lambda: tf.constant(0))

    def call(update, finished=0):
        return int(once(*tf.constant([update, finished], tf.int64)))

    call.function = once
    return call


def begin(logs, update):
    """Starts an attempt and abandons it."""
    return logs.begin(tf.constant(update, tf.int64), tf.constant(0, tf.int64))


def stage(table, attempt, part):
    part = table._parts[part]
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
        attempt.logs[attempt.device_of(part)].resource_handle,
        attempt.attempts[attempt.device_of(part)],
        attempt.name,
        optimizer="sgd",
        slot_inits=[],
    )


def commit_on_one(attempt):
    """Abandons an attempt after its commit on one log."""
    device, log = next(iter(attempt.logs.items()))
    log.call(
        gen_ops.lodestar_commit_update, attempt.attempts[device], attempt.name
    )


def test_each_update_is_made_once(logs):
    tables = [make_table("first"), make_table("second")]
    step = step_of(tables, wrap(keras.optimizers.SGD(1.0)), logs)
    assert [step(0), step(1), step(1), step(0)] == [1, 1, 0, 0]
    for table in tables:
        assert values(table) == [2.0] * 8
        assert int(table.step) == 2


def test_what_an_attempt_has_staged_is_not_written(logs):
    table = make_table()
    step = step_of([table], wrap(keras.optimizers.SGD(1.0)), logs)
    stage(table, begin(logs, 0), part=0)
    assert step(0) == 1
    assert values(table) == [1.0] * 8


def test_what_an_attempt_has_committed_is_not_made_again(logs):
    table = make_table()
    step = step_of([table], wrap(keras.optimizers.SGD(1.0)), logs)
    attempt = begin(logs, 0)
    for part in range(3):
        stage(table, attempt, part)
    commit_on_one(attempt)
    assert step(0) == 0
    assert values(table) == [1.0] * 8


def test_cargo_is_used_on_each_device_once_its_tables_are_updated(logs):
    table, optimizer = make_table(), wrap(keras.optimizers.SGD(1.0))
    weights = {device: tf.Variable(0.0) for device in logs._logs}

    @tf.function(autograph=False)
    def step(update, value):
        attempt = logs.begin(update, tf.constant(0, tf.int64))
        assert attempt.covers(weights, [table])
        gradient = tf.IndexedSlices(
            tf.fill([8, 2], value), IDS, tf.constant([-1, 2])
        )
        with attempt.making({d: [2.0 - value, value] for d in weights}):
            optimizer.apply([gradient], [table])

        def function(device, added, *_):
            weights[device].assign_add(added)

        attempt.then(function)

    for update, value in ((0, -1.0), (0, -1.0), (1, np.nan)):
        with contextlib.ExitStack() as stack:
            if np.isnan(value):
                stack.enter_context(
                    pytest.raises(tf.errors.InvalidArgumentError)
                )
            step(tf.constant(update, tf.int64), value)
        assert values(table) == [1.0] * 8 and int(table.step) == 1
        assert [float(w) for w in weights.values()] == [3.0] * len(weights)
    attempt = begin(logs, 2)
    for part in range(3):
        stage(table, attempt, part)
    commit_on_one(attempt)
    step(tf.constant(2, tf.int64), -1.0)
    assert values(table) == [2.0] * 8
    assert [float(w) for w in weights.values()] == [3.0] * len(weights)


def test_an_attempt_covers_devices_with_logs():
    attempt = begin(UpdateLogs(DEVICES[2:]), 0)
    (device,) = attempt.logs
    assert attempt.covers([device], [])
    assert not attempt.covers([device, "/job:ps/task:7/device:CPU:0"], [])
    assert not attempt.covers([], [make_table()])


def test_an_optimizer_without_tables_makes_no_update_of_them(logs):
    weight = tf.Variable(1.0)
    table = make_table()
    of_tables, others = (wrap(keras.optimizers.SGD(1.0)) for _ in range(2))
    for optimizer in (of_tables, others):
        optimizer.build([weight, table])
    gradient = tf.IndexedSlices(-tf.ones([8, 2]), IDS, tf.constant([-1, 2]))

    def step():
        of_tables.apply([gradient, None], [table, weight])
        others.apply([None, tf.constant(-1.0)], [table, weight])
        return tf.constant(1)

    @tf.function(autograph=False)
    def once():
        return begin(logs, 0).once(step)

    assert [int(once()), int(once())] == [1, 0]
    assert values(table) == [1.0] * 8 and float(weight) == 2.0


@pytest.mark.parametrize("rows", [None, 2])
def test_a_skipped_step_returns_zeros_of_equal_structure(logs, rows):
    step_of_table = wrap(keras.optimizers.SGD(1.0))
    table = make_table()
    gradient = tf.IndexedSlices(-tf.ones([8, 2]), IDS, tf.constant([-1, 2]))

    @tf.function(
        input_signature=[
            tf.RaggedTensorSpec([rows, None, None], tf.int64),
            tf.RaggedTensorSpec([rows, None, 3], tf.string, ragged_rank=1),
        ],
        autograph=False,
    )
    def once(ids, names):
        def step():
            step_of_table.apply([gradient], [table])
            return {
                "ids": ids,
                "names": names,
                "sparse": tf.sparse.from_dense(tf.ones([2, 3])),
                "none": None,
                "loss": tf.reduce_sum(ids, [0, 1, 2]),
                "slices": tf.IndexedSlices(tf.ones([2]), IDS[:2]),
            }

        return begin(logs, 0).once(step)

    ids = tf.ragged.constant([[[1, 2], []], [[3]]], dtype=tf.int64)
    names = tf.RaggedTensor.from_row_lengths([["a", "b", "c"]] * 2, [0, 2])
    first, second = once(ids, names), once(ids, names)
    assert first["ids"].to_list() == [[[1, 2], []], [[3]]]
    assert first["loss"].numpy() == 6
    for name in ("ids", "names"):
        assert second[name].to_list() == [[]] * (rows or 0)
        assert second[name].shape.rank == 3
    assert second["loss"].numpy() == 0 and second["none"] is None
    assert tf.size(second["sparse"].values).numpy() == 0
    assert second["slices"].values.numpy().tolist() == [0.0, 0.0]


def test_a_function_that_another_trace_has_traced(logs):
    optimizer, table = wrap(keras.optimizers.SGD(1.0)), make_table()
    gradient = tf.IndexedSlices(-tf.ones([8, 2]), IDS, tf.constant([-1, 2]))

    @tf.function
    def inner():
        optimizer.apply([gradient], [table])
        return tf.constant(1)

    @tf.function(autograph=False)
    def once(update, times):
        return times * begin(logs, update).once(inner)

    assert int(once(0, 2)) == 2
    with pytest.raises(ValueError, match="inner.*traced before. Call a plain"):
        once(1, 3)
    assert values(table) == [1.0] * 8


def test_finished_updates_are_refused(logs):
    table = make_table()
    step = step_of([table], wrap(keras.optimizers.SGD(1.0)), logs)
    assert step(5, finished=5) == 1
    with pytest.raises(tf.errors.FailedPreconditionError, match="finished"):
        step(4)
    assert values(table) == [1.0] * 8


def test_an_update_that_is_refused_changes_no_table(logs):
    tables = [make_table("first"), make_table("second")]
    optimizer = wrap(keras.optimizers.SGD(1.0))
    step = step_of(tables, optimizer, logs, value=np.inf)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not finite"):
        step(0)
    for table in tables:
        assert values(table) == [0.0] * 8
    assert step_of(tables, optimizer, logs)(0) == 1
    for table in tables:
        assert values(table) == [1.0] * 8


def test_a_replayed_update_is_made_with_the_others(logs):
    tables = [
        make_table("fused"),
        make_table("replayed", optimizer=Own(1.0)),
    ]
    optimizer = wrap(keras.optimizers.SGD(1.0))
    step = step_of(tables, optimizer, logs)
    assert step(0) == 1
    after = [values(table) for table in tables]
    assert after[0] == [1.0] * 8
    assert min(after[1]) > 0.0
    assert step(0) == 0
    assert [values(table) for table in tables] == after
    # As another worker has read it.
    optimizer.iterations.assign(0)
    assert step(1) == 1
    assert [int(table.step) for table in tables] == [2, 2]


def test_a_table_where_no_log_is_is_updated_with_the_others():
    logs = UpdateLogs(DEVICES[2:])
    tables = [
        make_table("partly"),
        lodestar.EmbeddingVariable(
            2, embeddings_initializer="zeros", name="here"
        ),
    ]
    tables[1].insert_or_assign(IDS, tf.zeros([8, 2]))
    optimizer = wrap(keras.optimizers.SGD(1.0))
    step = step_of(tables, optimizer, logs)
    assert [step(0), step(0)] == [1, 0]
    assert [values(table) for table in tables] == [[1.0] * 8] * 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="not finite"):
        step_of(tables, optimizer, logs, value=np.inf)(1)
    assert [values(table) for table in tables] == [[1.0] * 8] * 2


def test_gradients_that_wait_are_refused(logs):
    inner = keras.optimizers.SGD(1.0, gradient_accumulation_steps=2)
    step = step_of([make_table()], wrap(inner), logs)
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
    step.apply([gradient], [table])
    assert values(table) == [1.0] * 8


def test_a_number_of_updates_is_ended_on_all_devices(logs):
    table = make_table()
    calls = mock.Mock()
    calls.schedule = lambda function, arguments: function(*arguments)
    keys = [
        logs.schedule(calls, lambda key: key.numpy().tolist(), (), count)
        for count in (2, 1)
    ]
    assert keys == [[0, 0], [2, 2]]  # everything before was done
    calls.done.return_value = False
    assert logs.schedule(calls, lambda key: key[1], (), 1) == 2
    attempts = [begin(logs, update) for update in (2, 3)]
    for attempt in attempts:
        for part in range(3):
            stage(table, attempt, part)
    commit_on_one(attempts[1])
    # TensorFlow's error for an iterator that it could not create again.
    calls.join.side_effect = RuntimeError
    logs.settle(calls)
    assert values(table) == [1.0] * 8
    for update in (2, 3):
        with pytest.raises(tf.errors.FailedPreconditionError, match="finished"):
            begin(logs, update)


def test_threads_have_the_same_logs():
    class Slow(UpdateLogs):
        def __init__(self, devices):
            time.sleep(0.2)
            super().__init__(DEVICES)

    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        first, second = threads.map(Slow.of, [strategy] * 2)
    assert first is second


def test_updates_are_settled_without_new_steps(logs):
    calls = mock.Mock()
    calls.schedule = lambda function, arguments: int(arguments[-1][0])
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        late = []

        def join():
            late.append(threads.submit(logs.schedule, calls, None, (), 1))
            time.sleep(0.1)
            assert not late[0].done()

        assert logs.schedule(calls, None, (), 1) == 0
        calls.join = join
        logs.settle(calls)
        assert late[0].result() == 1
    with pytest.raises(tf.errors.FailedPreconditionError, match="finished"):
        begin(logs, 0)
    begin(logs, 1)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_is_raised_when_updates_are_settled(logs, error):
    coordinator = mock.Mock()
    coordinator.strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with mock.patch.object(UpdateLogs, "__init__", side_effect=RuntimeError):
        with pytest.raises(RuntimeError), errors(coordinator):
            pytest.fail("the logs must be created first")
    update_attempt._LOGS[coordinator.strategy] = logs
    coordinator.join.side_effect = RuntimeError
    logs._next = 1
    with pytest.raises(error), errors(coordinator):
        raise error
    with pytest.raises(tf.errors.FailedPreconditionError, match="finished"):
        begin(logs, 0)
    coordinator.join.side_effect = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), errors(coordinator):
        raise error


def waits_for(nodes):
    """Returns, for each node of a graph, all nodes that run before it."""
    before = {}
    for node in nodes:  # after its inputs
        names = {re.sub(r"^\^|:.*", "", name) for name in node.input}
        before[node.name] = names.union(
            *(before.get(name, ()) for name in names)
        )
    return before


def test_no_device_waits_for_another_one_in_a_phase(logs):
    tables = [make_table("first"), make_table("second")]
    step = step_of(tables, wrap(keras.optimizers.SGD(1.0)), logs)
    number = tf.TensorSpec([], tf.int64)
    graph = step.function.get_concrete_function(number, number).graph
    definition = graph.as_graph_def()
    seen = collections.Counter()
    for nodes in (
        definition.node,
        *(f.node_def for f in definition.library.function),
    ):
        before = waits_for(nodes)
        for op in ("BeginUpdate", "EmbeddingStage", "CommitUpdate"):
            same = {n.name: n.device for n in nodes if n.op == f"Lodestar>{op}"}
            seen[op] += len(same)
            for name, device in same.items():
                for other in before[name] & same.keys():
                    assert same[other] == device
    assert seen == {"BeginUpdate": 2, "EmbeddingStage": 6, "CommitUpdate": 4}
