"""Updates of several tables as one step."""

import concurrent.futures
import functools
import os
import threading
import time

import pytest
import tensorflow as tf
from own_optimizers import Own

import lodestar
from lodestar._library import gen_ops
from lodestar.ops import snapshot_ops
from lodestar.optimizers import table_updates
from lodestar.optimizers.row_optimizers import RowUpdate
from lodestar.optimizers.table_updates import TableUpdate, apply_updates


def _table(name: str) -> lodestar.EmbeddingVariable:
    table = lodestar.EmbeddingVariable(
        2, embeddings_initializer="zeros", name=name
    )
    table.insert_or_assign([1], [[1.0, 1.0]])
    return table


def _update(table: lodestar.EmbeddingVariable, optimizer: str = "sgd"):
    gradient = tf.IndexedSlices(
        tf.ones([1, 2]), tf.constant([1], tf.int64), tf.constant([-1, 2])
    )
    rate = [0.5, 0.0]
    return TableUpdate(table, gradient, RowUpdate(optimizer, [], rate))


def _value(table: lodestar.EmbeddingVariable) -> list[float]:
    return table.find([1])[0].numpy()[0].tolist()


def _start(call, *arguments) -> threading.Thread:
    thread = threading.Thread(target=call, args=arguments, daemon=True)
    thread.start()
    return thread


def _begin_snapshot(tables) -> None:
    """Begins a snapshot, and aborts it."""
    snapshot_ops.begin([t.resource_handle for t in tables], [""] * len(tables))


def test_several_tables_are_one_step():
    tables = [_table("a"), _table("b")]

    @tf.function
    def step():
        apply_updates([_update(t) for t in tables], "raise")

    step()
    ops = [
        op.type for op in step.get_concrete_function().graph.get_operations()
    ]
    ours = [op for op in ops if op.startswith("Lodestar>")]
    assert ours == ["Lodestar>EmbeddingApplyAll"]
    assert [_value(t) for t in tables] == [[0.5, 0.5]] * 2
    apply_updates([_update(t) for t in tables], "raise")
    assert [_value(t) for t in tables] == [[0.0, 0.0]] * 2


def test_one_table_is_a_step_of_its_own():
    table = _table("a")

    @tf.function
    def step():
        apply_updates([_update(table)], "raise")

    step()
    ops = [
        op.type for op in step.get_concrete_function().graph.get_operations()
    ]
    assert "Lodestar>BeginStep" not in ops
    assert _value(table) == [0.5, 0.5]


def test_without_updates_there_is_no_step():
    assert apply_updates([], "raise") == []


@pytest.mark.parametrize("in_graph", [False, True])
def test_a_step_that_fails_is_over(in_graph):
    tables = [_table("a"), _table("b")]
    # Has the slots of another optimizer by the time of the step.
    broken = TableUpdate(
        tables[1],
        _update(tables[1]).gradient,
        RowUpdate("adagrad", [0.1], [0.5, 0.0, 1e-7]),
    )
    apply_updates([_update(tables[1])], "raise")

    def step():
        apply_updates([_update(tables[0]), broken], "skip")

    with pytest.raises(tf.errors.FailedPreconditionError, match="'adagrad'"):
        (tf.function(step) if in_graph else step)()
    assert _value(tables[0]) == [1.0, 1.0]
    apply_updates([_update(t) for t in tables], "raise")
    assert _value(tables[0]) == [0.5, 0.5]


@pytest.mark.parametrize("in_graph", [False, True])
def test_a_full_table_ends_a_step_before_it_writes(in_graph):
    open_table, emptied = _table("a"), _table("b")
    full = lodestar.EmbeddingVariable(
        2,
        embeddings_initializer="zeros",
        eviction=lodestar.MaxRows(1, when_full="raise"),
        name="d",
    )
    full.insert_or_assign([1], [[1.0, 1.0]])
    new_ids = tf.constant([5], tf.int64)

    def step(fills):
        fused = [_update(open_table), _update(full)]
        if fills:
            fused = [
                u._replace(
                    create_missing=True,
                    gradient=tf.IndexedSlices(
                        tf.ones([1, 2]), new_ids, tf.constant([-1, 2])
                    ),
                )
                for u in fused
            ]
        apply_updates(fused, "raise", [emptied])

    call = tf.function(step, autograph=False) if in_graph else step
    with pytest.raises(tf.errors.FailedPreconditionError, match="'d' is full"):
        call(True)
    tables = [open_table, emptied, full]
    assert [int(t.size()) for t in tables] == [1] * 3
    assert [_value(t) for t in tables] == [[1.0, 1.0]] * 3
    call(False)
    assert int(emptied.size()) == 0
    assert _value(open_table) == _value(full) == [0.5, 0.5]


def test_end_step_needs_a_step():
    other = tf.raw_ops.EmptyTensorList(
        element_shape=tf.constant([], tf.int32),
        max_num_elements=1,
        element_dtype=tf.float32,
    )
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="`step` must be an output of BeginStep",
    ):
        gen_ops.lodestar_end_step(other, [], [])
    table = _table("a")
    step = gen_ops.lodestar_begin_step([table.resource_handle])
    with pytest.raises(tf.errors.InvalidArgumentError, match="`step`"):
        gen_ops.lodestar_end_step(tf.stack([step, step]), [], [])
    with pytest.raises(tf.errors.InvalidArgumentError, match="`next_steps`"):
        gen_ops.lodestar_end_step(step, [table.resource_handle], [[7]])
    other = gen_ops.lodestar_begin_step([table.resource_handle])
    gen_ops.lodestar_end_step(other, [table.resource_handle], [7])
    assert int(table.step) == 7
    gen_ops.lodestar_end_step(other, [table.resource_handle], [-1])
    assert int(table.step) == 8
    gen_ops.lodestar_end_step(other, [table.resource_handle], [-2])
    assert int(table.step) == 8
    table.set_step(20)
    gen_ops.lodestar_end_step(other, [table.resource_handle], [3])
    assert int(table.step) == 20


def test_the_steps_of_tables_move_together():
    tables = [_table("a"), _table("b")]
    optimizer = lodestar.optimizers.wrap(Own())
    gradients = [_update(t).gradient for t in tables]
    optimizer.apply(gradients, tables)

    # Two steps apply through one optimizer. The second starts between the
    # tables of the first, with another step number.
    def apply(update, *arguments, **options):
        applied = original(update, *arguments, **options)
        if update.table is tables[0]._parts[0] and not in_between:
            in_between.append(True)
            optimizer.iterations.assign_add(1)
            optimizer.apply(gradients, tables)
        return applied

    in_between = []
    original = table_updates._apply
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table_updates, "_apply", apply)
        optimizer.apply(gradients, tables)
    assert in_between
    assert int(tables[0].step) == int(tables[1].step)


def test_steps_of_two_threads_are_whole(tmp_path):
    tables = [_table("a"), _table("b")]
    optimizer = lodestar.optimizers.SGD()
    gradients = [_update(t).gradient for t in tables]
    optimizer.apply(gradients, tables)
    apply = tf.function(lambda: optimizer.apply(gradients, tables))
    apply()
    stop = threading.Event()

    def train():
        while not stop.is_set():
            apply()

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        trainers = [pool.submit(train) for _ in range(2)]
        try:
            for i in range(20):
                path = str(tmp_path / str(i))
                lodestar.snapshot.save(tables, path)
                a, b = _table("a"), _table("b")
                lodestar.snapshot.restore([a, b], path)
                assert int(a.step) == int(b.step)
                assert _value(a) == _value(b)
        finally:
            stop.set()
        for trainer in trainers:
            trainer.result()


def test_many_callers_of_many_tables():
    tables = [_table("a"), _table("b")]
    optimizer = lodestar.optimizers.SGD(1.0)
    gradients = [_update(t).gradient for t in tables]

    @tf.function
    def step():
        optimizer.apply_gradients(
            zip(gradients, [t for t in tables], strict=True)
        )

    step()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: step(), range(200)))
    assert [_value(t) for t in tables] == [[-200.0, -200.0]] * 2


@pytest.mark.parametrize("in_graph", [False, True])
def test_steps_that_waited_for_a_snapshot_continue_together(in_graph):
    # More tables than threads for their loops, which are long enough to be
    # shared among threads.
    tables = [_table(f"t{i}") for i in range(os.cpu_count() + 2)]
    gradient = tf.IndexedSlices(
        tf.ones([10000, 2]),
        tf.range(10000, dtype=tf.int64),
        tf.constant([-1, 2]),
    )

    def update(table):
        row_update = _update(table).update
        apply_updates([TableUpdate(table, gradient, row_update)], "pass")

    steps = [tf.function(update) if in_graph else update for _ in tables]
    for table, step in zip(tables, steps, strict=True):
        table.insert_or_assign(range(10000), tf.zeros([10000, 2]))
        step(table)
    for _ in range(3):
        held = gen_ops.lodestar_begin_step([tables[0].resource_handle])
        # It waits for that step, and the others wait for it; then it is
        # released.
        threads = [_start(_begin_snapshot, tables)]
        time.sleep(0.1)
        threads += map(_start, steps, tables)
        time.sleep(0.1)
        gen_ops.lodestar_end_step(held, [], [])
        end = time.monotonic() + 60
        for thread in threads:
            thread.join(max(0, end - time.monotonic()))
        assert not any(thread.is_alive() for thread in threads)
    assert [_value(table) for table in tables] == [[-2.0, -2.0]] * len(tables)


@pytest.mark.parametrize("in_graph", [False, True])
def test_a_snapshot_holds_up_only_steps_of_its_tables(in_graph):
    one, two, other = (_table(name) for name in ("one", "two", "other"))

    def step(tables, optimizer="sgd", emptied=()):
        updates = [_update(t, optimizer) for t in tables]
        apply_updates(updates, "raise", emptied)

    def start(*arguments, **options):
        call = functools.partial(step, *arguments, **options)
        return _start(tf.function(call) if in_graph else call)

    step([other])
    held = gen_ops.lodestar_begin_step([one.resource_handle])
    # Waits for that step.
    threads = [_start(_begin_snapshot, [one, two])]
    time.sleep(0.1)
    waiting = [
        start([two]),
        start([other, two]),
        start([other], emptied=[two]),
    ]
    free = [start([other]), _start(_begin_snapshot, [other])]
    for thread in free:
        thread.join(60)
    assert not any(thread.is_alive() for thread in free)
    time.sleep(0.2)
    assert all(thread.is_alive() for thread in threads + waiting)
    assert _value(other) == [0.0, 0.0]
    gen_ops.lodestar_end_step(held, [], [])
    for thread in threads + waiting:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads + waiting)
    assert _value(other) == [-1.0, -1.0]
