"""Tests that averages and step rule of gradient accumulation are Keras's."""

import threading

import dense_reference as reference
import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.snapshot import saving

SGD = keras.optimizers.SGD
Adam = keras.optimizers.Adam
wrap = lodestar.optimizers.wrap
STEPS = {"gradient_accumulation_steps": 3}
SCHEDULE = keras.optimizers.schedules.ExponentialDecay(0.2, 1, 0.8)

CASES = {
    "schedule": lambda: SGD(SCHEDULE, **STEPS),
    "loss_scale": lambda: SGD(0.1, loss_scale_factor=64.0, **STEPS),
}
ALL_ROWS = {
    "adam": lambda: Adam(0.05, **STEPS),
    "nadam_weight_decay": lambda: keras.optimizers.Nadam(
        0.05, weight_decay=0.1, **STEPS
    ),
}


def table(name="t"):
    t = lodestar.EmbeddingVariable(2, name=name)
    t.lookup([1, 2, 3], training=True)
    return t


def slices(ids, value=1.0):
    return tf.IndexedSlices(
        tf.fill([len(ids), 2], value), tf.constant(ids, tf.int64)
    )


@pytest.mark.parametrize(
    "name, graph",
    [(name, True) for name in [*CASES, *ALL_ROWS]] + [("adam", False)],
)
def test_equals_keras_on_a_dense_matrix(name, graph):
    make = {**CASES, **ALL_ROWS}[name]
    # Seven batches, accumulated by three: two updates, and one pending
    # gradient.
    data = reference.batches(count=7, all_rows=name in ALL_ROWS)
    dynamic, dense = reference.models()
    optimizer, expected = wrap(make()), make()
    reference.train(dynamic, optimizer, data, graph)
    reference.train(dense, expected, data, graph)
    reference.assert_same(dynamic, dense)
    assert int(optimizer.iterations) == int(expected.iterations) == 2
    assert int(dynamic.embed.table.step) == 2


def test_under_loss_scaling_equals_keras():
    data = reference.batches(count=7)
    dynamic, dense = reference.models()
    scaled = lodestar.optimizers.LossScaleOptimizer(wrap(SGD(0.1, **STEPS)))
    expected = keras.optimizers.LossScaleOptimizer(SGD(0.1, **STEPS))
    reference.train(dynamic, scaled, data)
    reference.train(dense, expected, data)
    reference.assert_same(dynamic, dense)
    assert int(scaled.iterations) == int(expected.iterations) == 2


def test_rows_wait_for_the_update():
    t = table()
    optimizer = wrap(SGD(1.0, **STEPS))
    before = t.lookup([1, 2, 3]).numpy()
    optimizer.apply([slices([1, 1])], [t])
    optimizer.apply([slices([2], 3.0)], [t])
    np.testing.assert_array_equal(t.lookup([1, 2, 3]), before)
    assert int(t.step) == int(optimizer.iterations) == 0
    optimizer.apply([slices([1])], [t])
    np.testing.assert_allclose(
        t.lookup([1, 2, 3]), before - [[1.0], [1.0], [0.0]], 1e-6
    )
    assert int(t.step) == int(optimizer.iterations) == 1
    # The first three batches do not affect the next update.
    before = t.lookup([1, 2, 3]).numpy()
    for _ in range(3):
        optimizer.apply([slices([3])], [t])
    np.testing.assert_allclose(
        t.lookup([1, 2, 3]), before - [[0.0], [0.0], [1.0]], 1e-6
    )


def test_gradient_of_a_removed_row_is_dropped():
    t = table()
    optimizer = wrap(SGD(1.0, **STEPS))
    for i in range(3):
        optimizer.apply([slices([1, 2])], [t])
        if i == 0:
            t.remove([2])
    assert int(t.size()) == 2
    assert t.stats()["gradients_dropped"] == 1


def waiting(optimizer):
    """Returns {id: pending sum} of each table."""
    sums = [member.sums.export() for member in optimizer._gradient_sums.members]
    return [
        dict(zip(s.ids.numpy().tolist(), s.rows.numpy().tolist(), strict=True))
        for s in sums
    ]


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("refused", [1, 2])
def test_a_refused_gradient_leaves_those_that_wait(refused, graph):
    tables = [table("one"), table("two")]
    dense = keras.Variable([1.0, 2.0])
    variables = [tables[0], dense, tables[1]]
    optimizer = wrap(SGD(1.0, **STEPS))
    optimizer.build(variables)
    rows = [t.lookup([1, 2, 3]).numpy() for t in tables]

    @(tf.function if graph else lambda step: step)
    def step(value):
        gradients = [slices([1]), tf.ones([2]), slices([2], value)]
        optimizer.apply(gradients, variables)

    def refuse(value, message):
        before = waiting(optimizer), [v.numpy() for v in optimizer.variables]
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            step(tf.constant(value))
        after = waiting(optimizer), [v.numpy() for v in optimizer.variables]
        np.testing.assert_equal(after, before)

    step(tf.constant(1.5e38))
    for _ in range(refused - 1):
        step(tf.constant(0.0))
    refuse(np.inf, "'two_gradient_sum': the gradient of id 2 is not finite")
    # Each gradient and the step's sum are finite; the pending sum is not.
    refuse(
        3e38,
        "'two_gradient_sum': the accumulated gradients of id 2 exceed half of "
        "the largest number",
    )
    for _ in range(3 - refused):
        step(tf.constant(-1e38))
    assert waiting(optimizer) == [{}, {}]
    assert int(optimizer.iterations) == 1
    np.testing.assert_allclose(dense, [0.0, 1.0], 1e-6)
    np.testing.assert_allclose(
        tables[0].lookup([1, 2, 3]), rows[0] - [[1.0], [0.0], [0.0]], 1e-6
    )
    moved = tables[1].lookup([2]).numpy() - rows[1][1:2]
    assert np.isfinite(moved).all()


@pytest.mark.parametrize("graph", [False, True])
def test_pending_gradients_stay_if_the_update_is_refused(graph):
    tables = [table("one"), table("two")]
    hooks = [t for t in tables]
    optimizer = wrap(SGD(1.0, **STEPS))
    optimizer.build(hooks)

    @(tf.function if graph else lambda step: step)
    def step():
        optimizer.apply([slices([1])] * 2, hooks)

    step()
    step()
    wrap("adagrad").apply([slices([1])], [tables[1]])
    before = [t.lookup([1]).numpy() for t in tables]
    with pytest.raises(tf.errors.FailedPreconditionError, match="table 'two'"):
        step()
    assert waiting(optimizer) == [{1: [3.0, 3.0]}] * 2
    for t, rows in zip(tables, before, strict=True):
        np.testing.assert_array_equal(t.lookup([1]), rows)


def test_a_snapshot_does_not_hold_up_the_update(tmp_path, monkeypatch):
    t = table()
    optimizer = wrap(SGD(1.0, **STEPS))
    optimizer.apply([slices([1])], [t])
    before = t.lookup([1]).numpy()
    (member,) = optimizer._gradient_sums.members
    write, written = saving.snapshot_ops.write, threading.Event()

    def held(*arguments):
        assert written.wait(300)
        return write(*arguments)

    monkeypatch.setattr(saving.snapshot_ops, "write", held)
    path = str(tmp_path / "snapshots")
    tables = {"rows": t, "sums": member.sums}
    pending = lodestar.snapshot.save(tables, path, blocking=False)

    def go_on():
        for _ in range(5):  # two of them update rows
            optimizer.apply([slices([1, 2])], [t])

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    thread.join(120)
    went_on = not thread.is_alive()
    written.set()
    pending.wait()
    assert went_on and int(optimizer.iterations) == 2
    assert waiting(optimizer) == [{}]
    # The state when the checkpoint was taken.
    rows, sums = table("rows"), lodestar.EmbeddingVariable(2, name="sums")
    lodestar.snapshot.restore([rows, sums], path)
    np.testing.assert_array_equal(rows.lookup([1]), before)
    np.testing.assert_array_equal(sums.export().rows, [[1.0, 1.0]])
    # The next step is right as well.
    optimizer.apply([slices([3])], [t])
    lodestar.snapshot.save(tables, path, delta=True)
    lodestar.snapshot.restore([rows, sums], path)
    np.testing.assert_array_equal(rows.export().rows, t.export().rows)
    np.testing.assert_array_equal(sums.export().ids, [3])
