"""Tests of the ops that partition ids and rows over the parts of a table."""

import numpy as np
import pytest
import tensorflow as tf
from random_arguments import call, random_tensor

from lodestar.ops import embedding_partition_ops as ops
from lodestar.ops import id_hash

FLOATS = [tf.float32, tf.float16, tf.bfloat16]
DTYPES = [*FLOATS, tf.int32, tf.int64, tf.bool]
EDGES = [-(2**63), -1, 0, 1, 2**63 - 1]


def ids_of(rng, count):
    ids = rng.integers(-(2**63), 2**63 - 1, size=count, dtype=np.int64)
    ids[: len(EDGES)] = EDGES[:count]
    return tf.constant(ids)


def traced(function, graph, *signature):
    """Returns `function`, traced for tensors of unknown dimensions if `graph`."""
    if not graph:
        return function
    specs = [tf.TensorSpec(None, dtype) for dtype in signature]
    return tf.function(function, input_signature=specs)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("count", [0, 1, 5, 1000])
@pytest.mark.parametrize("num_parts", [1, 2, 7])
def test_ids_go_to_the_part_that_owns_them(graph, count, num_parts, rng):
    ids = ids_of(rng, count)
    function = traced(lambda x: ops.partition(x, num_parts), graph, tf.int64)
    parts, places = function(ids)
    owners = id_hash.part_of_id(ids, num_parts)
    assert len(parts) == num_parts
    for p, part in enumerate(parts):
        want = tf.boolean_mask(ids, owners == p)
        assert part.numpy().tolist() == want.numpy().tolist()
    together = tf.gather(tf.concat(parts, 0), places)
    assert together.numpy().tolist() == ids.numpy().tolist()
    assert sorted(places.numpy()) == list(range(count))


@pytest.mark.parametrize(
    "graph, row",
    [
        *((False, row) for row in ((), (0,), (1,), (2, 300))),
        *((True, row) for row in ((), (3,), (32,))),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda x: x.name)
def test_rows_are_partitioned_with_their_ids_and_merged(graph, row, dtype, rng):
    for count in (0, 100):
        ids = ids_of(rng, count)
        values = rng.integers(-3, 4, size=(count, *row))
        rows = tf.cast(tf.constant(values), dtype)

        def there(ids, rows):
            return ops.partition_rows(ids, rows, 3)

        def back(ids, rows):
            _, places = ops.partition(ids, 3)
            pairs = ops.partition_rows(ids, rows, 3)
            return ops.assemble([values for _, values in pairs], places)

        parts, _ = ops.partition(ids, 3)
        owners = id_hash.part_of_id(ids, 3)
        pairs = traced(there, graph, tf.int64, dtype)(ids, rows)
        for p, (part_ids, part_rows) in enumerate(pairs):
            assert part_ids.numpy().tolist() == parts[p].numpy().tolist()
            want = tf.boolean_mask(rows, owners == p)
            assert part_rows.dtype == dtype
            assert part_rows.shape == (len(parts[p]), *row)
            np.testing.assert_array_equal(part_rows, want)
        np.testing.assert_array_equal(
            traced(back, graph, tf.int64, dtype)(ids, rows), rows
        )


def test_static_shapes_are_kept():
    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None, 4]),
            tf.TensorSpec([9], tf.int64),
        ]
    )
    def function(ids, rows, places):
        pairs = ops.partition_rows(ids, rows, 2)
        assert [x.shape.rank for x, _ in pairs] == [1, 1]
        assert [y.shape.as_list() for _, y in pairs] == [[None, 4]] * 2
        assembled = ops.assemble([rows, rows], places)
        assert assembled.shape == (9, 4)
        with pytest.raises(ValueError, match="4 and 3"):
            ops.assemble([rows, rows[:, :3]], places)
        with pytest.raises(ValueError, match="rank 1"):
            ops.assemble([rows], ids[None])
        with pytest.raises(ValueError, match="rank 1"):
            ops.partition(ids[None], 2)
        return assembled

    function.get_concrete_function()


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda x: x.name)
def test_gradients_go_back_to_the_rows(graph, dtype):
    places = tf.constant([2, 0, 2, 3], tf.int64)

    def gradients(*rows):
        with tf.GradientTape() as tape:
            tape.watch(rows)
            y = ops.assemble(rows, places)
            loss = tf.reduce_sum(y * tf.cast([[1], [2], [3], [4]], dtype))
        return tape.gradient(loss, rows)

    rows = [tf.zeros([n, 2], dtype) for n in (2, 0, 3)]
    got = traced(gradients, graph, *[dtype] * 3)(*rows)
    assert [x.numpy().tolist() for x in got] == [
        [[2, 2], [0, 0]],
        [],
        [[4, 4], [4, 4], [0, 0]],
    ]


@pytest.mark.parametrize("graph", [False, True])
def test_gradients_reach_the_partitioned_rows(graph, rng):
    ids = ids_of(rng, 50)
    factors = tf.constant(rng.normal(size=[50, 3]), tf.float32)

    def gradient(rows):
        with tf.GradientTape() as tape:
            tape.watch(rows)
            pairs = ops.partition_rows(ids, rows, 4)[1:]
            others = ops.partition_rows(ids, factors, 4)[1:]
            loss = tf.add_n(
                [
                    tf.reduce_sum(x * y)
                    for (_, x), (_, y) in zip(pairs, others, strict=True)
                ]
            )
        return tape.gradient(loss, rows)

    got = traced(gradient, graph, tf.float32)(tf.zeros([50, 3]))
    # No id of part 0 was requested.
    used = id_hash.part_of_id(ids, 4)[:, None] > 0
    np.testing.assert_array_equal(
        got, tf.where(used, factors, tf.zeros_like(factors))
    )


def test_gradient_of_some_rows():
    rows = tf.ones([3, 2])
    with tf.GradientTape() as tape:
        tape.watch(rows)
        y = ops.assemble([rows], tf.constant([2, 1, 0], tf.int64))
        loss = tf.reduce_sum(tf.gather(y, [0, 0]))  # its gradient is sparse
    assert tape.gradient(loss, rows).numpy().tolist() == [
        [0, 0],
        [0, 0],
        [2, 2],
    ]


def int64(values):
    return tf.constant(values, tf.int64)


@pytest.mark.parametrize(
    "function, message",
    [
        (
            lambda: ops.partition(int64([[1]]), 2),
            "`ids` must have rank 1, found shape [1,1]",
        ),
        (
            lambda: ops.partition_rows(int64(1), tf.zeros([1]), 2),
            "`ids` must have rank 1, found shape []",
        ),
        (
            lambda: ops.partition_rows(int64([1, 2]), tf.zeros([3, 4]), 2),
            "`rows` has shape [3,4], but there are 2 ids",
        ),
        (
            lambda: ops.partition_rows(int64([1]), tf.zeros([]), 2),
            "`rows` has shape [], but there are 1 ids",
        ),
        (
            lambda: ops.assemble([tf.zeros([2, 3])], int64([[0]])),
            "`places` must have rank 1, found shape [1,1]",
        ),
        (
            lambda: ops.assemble(
                [tf.zeros([2, 3]), tf.zeros([1, 3])], int64([0, 3])
            ),
            "`places[1]` must be in [0, 3), got 3",
        ),
        (
            lambda: ops.assemble([tf.zeros([2, 3])], int64([-1])),
            "`places[0]` must be in [0, 2), got -1",
        ),
        (
            lambda: ops.assemble([tf.zeros([0, 3])], int64([0])),
            "`places[0]` must be in [0, 0), got 0",
        ),
        (
            lambda: ops.assemble(
                [tf.zeros([2, 3]), tf.zeros([2, 4])], int64([0])
            ),
            "`rows[1]` has shape [2,4], but `rows[0]` has shape [2,3]",
        ),
        (
            lambda: ops.assemble([tf.zeros([2]), tf.zeros([])], int64([0])),
            "`rows[1]` must not be a scalar",
        ),
        (
            lambda: ops.assemble([tf.zeros([2**62, 0])] * 3, int64([0])),
            "`rows` must have at most 2^63 - 1 rows",
        ),
        (
            lambda: ops.assemble(
                [tf.zeros([1, 0]), tf.zeros([0, 2**62])], int64([0])
            ),
            f"`rows[1]` has shape [0,{2**62}], but `rows[0]` has shape [1,0]",
        ),
    ],
)
def test_what_is_wrong_is_said(function, message):
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        function()
    assert message in raised.value.message


@pytest.mark.parametrize("num_parts", [0, -1])
def test_there_is_a_part_at_least(num_parts):
    with pytest.raises(
        (tf.errors.InvalidArgumentError, ValueError), match="minimum|at least"
    ):
        ops.partition(int64([1]), num_parts)


def test_random_rows_are_assembled_or_refused(rng):
    taken = 0
    for _ in range(500):
        dtype = DTYPES[rng.integers(len(DTYPES))]
        rows = [random_tensor(rng, dtype) for _ in range(rng.integers(1, 3))]
        try:
            call(
                "EmbeddingAssemble",
                rows=rows,
                places=random_tensor(rng, tf.int64),
            )
        except tf.errors.OpError:
            continue
        taken += 1
    assert taken
