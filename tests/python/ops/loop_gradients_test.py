"""Tests of lookups in loops and in tf.recompute_grad: they work, or errors say why."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

IDS = tf.constant([[1, 2], [3, 9]], tf.int64)


def while_loop(look):
    return tf.while_loop(
        lambda i, _: i < 2,
        lambda i, total: (i + 1, total + tf.reduce_sum(look(IDS[i]))),
        (0, 0.0),
    )[1]


def map_fn(look):
    rows = tf.map_fn(look, IDS, fn_output_signature=tf.float32)
    return tf.reduce_sum(rows)


def scan(look):
    sums = tf.scan(lambda total, x: total + tf.reduce_sum(look(x)), IDS, 0.0)
    return sums[-1]


def fold(look):
    return tf.foldl(lambda total, x: total + tf.reduce_sum(look(x)), IDS, 0.0)


def vectorized_map(look):
    return tf.reduce_sum(tf.vectorized_map(look, IDS))


@tf.function
def for_statement(look):
    total = 0.0
    for x in IDS:
        total += tf.reduce_sum(look(x))
    return total


def in_branch(look):
    return tf.cond(
        tf.size(IDS) > 0, lambda: tf.reduce_sum(look(IDS)), lambda: 0.0
    )


def nested_in_branch(look):
    def body(i, total):
        return i + 1, total + in_branch(lambda _: look(IDS[i]))

    return tf.while_loop(lambda i, _: i < 2, body, (0, 0.0))[1]


LOOPS = [while_loop, map_fn, scan, fold, vectorized_map, for_statement]
NAMES = {"map_fn": "map_while", "scan": "scan_while", "fold": "foldl_while"}


@pytest.fixture(params=[None, ["CPU:0", "CPU:0"]], ids=["here", "parts"])
def table(request):
    table = lodestar.EmbeddingVariable(4, name="t", devices=request.param)
    table.insert_or_assign([1, 2, 3], np.ones((3, 4)))
    return table


def trained(table, loss, graph):
    optimizer = lodestar.optimizers.SGD(1.0)
    optimizer.build([table])

    def step():
        with tf.GradientTape() as tape:
            value = loss()
        optimizer.apply([tape.gradient(value, table)], [table])

    (tf.function(step) if graph else step)()
    return table.find([1, 2, 3])[0].numpy()


def training(table):
    return lambda ids: table.lookup(ids, training=True)


@pytest.mark.parametrize(
    "loop, graph",
    [*((x, True) for x in [*LOOPS, in_branch, nested_in_branch])]
    + [(while_loop, False), (map_fn, False)],
)
def test_lookups_without_a_gradient(loop, graph, table):
    def run():
        return loop(table.lookup)

    assert float((tf.function(run) if graph else run)()) == 12.0
    loop(training(table))
    assert int(table.size()) == 4


@pytest.mark.parametrize("loop", [*LOOPS, nested_in_branch])
def test_a_gradient_of_a_loop_names_it(loop, table):
    with pytest.raises(RuntimeError) as error:
        trained(table, lambda: loop(training(table)), graph=True)
    text = str(error.value)
    assert "is looked up in the loop '" in text
    assert f"{NAMES.get(loop.__name__, 'while')}' of a graph, such as" in text
    assert "Look up the ids of all iterations at once, before the loop" in text
    assert (table.find([1, 2, 3])[0].numpy() == 1).all()


def test_the_table_is_named():
    table = lodestar.EmbeddingVariable(4, name="t")
    with pytest.raises(RuntimeError, match="<EmbeddingVariable 't' .* looked"):
        trained(table, lambda: scan(training(table)), graph=True)


@pytest.mark.parametrize("loop", [while_loop, map_fn, scan, fold])
def test_eager_loops_train(loop, table):
    rows = trained(table, lambda: loop(training(table)), graph=False)
    np.testing.assert_array_equal(rows, np.zeros((3, 4)))


@pytest.mark.parametrize("graph", [False, True])
def test_rows_that_are_looked_up_before_a_loop_train(graph, table):
    def loss():
        rows = table.lookup(IDS, training=True)
        return tf.reduce_sum(tf.map_fn(tf.reduce_sum, rows))

    np.testing.assert_array_equal(trained(table, loss, graph), np.zeros((3, 4)))
    branch = trained(table, lambda: in_branch(training(table)), graph)
    np.testing.assert_array_equal(branch, -np.ones((3, 4)))


class Cell(keras.layers.Layer):
    """A cell that looks its ids up in each step of a recurrent layer."""

    state_size = 4
    output_size = 4

    def __init__(self, table):
        super().__init__()
        self.table = table

    def call(self, ids, states, training=None):
        rows = self.table.lookup(tf.cast(ids[:, 0], tf.int64), training)
        return rows + states[0], [rows + states[0]]


def test_a_recurrent_layer_that_looks_up():
    table = lodestar.EmbeddingVariable(4, name="t")
    x = keras.Input((5, 1), dtype="int64")
    model = keras.Model(x, keras.layers.RNN(Cell(table))(x))
    model.compile(lodestar.optimizers.SGD(0.1), "mse")
    with pytest.raises(
        RuntimeError, match="in the loop 'func.*_while' of a graph"
    ):
        model.fit(np.ones((2, 5, 1), "int64"), np.ones((2, 4)), verbose=0)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("combiner", [None, "sum"])
def test_recompute_grad(combiner, graph, table):
    weight = keras.Variable(1.0)
    optimizer = lodestar.optimizers.SGD(1.0)
    optimizer.build([table, weight])

    def rows(x):
        found = table.lookup(IDS, training=True, combiner=combiner)
        return tf.reduce_sum(found) * x * weight

    def step():
        with tf.GradientTape() as tape:
            loss = tf.recompute_grad(rows)(tf.constant(1.0))
        optimizer.apply(
            tape.gradient(loss, [table.value, weight.value]), [table, weight]
        )

    with pytest.raises(
        RuntimeError, match="as tf.recompute_grad does: look ids up outside"
    ):
        (tf.function(step) if graph else step)()
    assert weight.numpy() == 1.0
    assert (table.find([1, 2, 3])[0].numpy() == 1).all()
