"""EmbeddingApplyAll updates several tables atomically."""

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar._library import gen_ops

IDS = [[1, 2, 2, 7], [2**62, -1], []]
DIMS = [3, 8, 2]
DTYPES = [tf.float32, tf.bfloat16, tf.float32]
OPTIMIZERS = ["adagrad", "sgd", "adam"]
SLOT_INITS = [[0.1], [], [0.0, 0.0]]
NUMBERS = [[0.1, 0.0, 1e-7], [0.5, 0.01], [0.1, 0.0, 0.1, 0.001, 1e-7, 0.1]]


def make_tables():
    """Returns tables that contain all ids except 7; the last one is empty."""
    made = []
    for t, (dim, dtype) in enumerate(zip(DIMS, DTYPES)):
        table = lodestar.EmbeddingVariable(
            dim, dtype=dtype, seed=(0, t), name=f"t{t}"
        )
        known = [i for i in IDS[t] if i != 7]
        table.lookup(tf.constant(known, tf.int64), training=True)
        made.append(table)
    return made


def gradients():
    rng = np.random.default_rng(3)
    return [
        tf.constant(rng.normal(size=[len(ids), dim]), tf.float32)
        for ids, dim in zip(IDS, DIMS)
    ]


def arguments(tables):
    return {
        "handles": [t.resource_handle for t in tables],
        "ids": [tf.constant(ids, tf.int64) for ids in IDS],
        "gradients": gradients(),
        "hyperparameters": [tf.constant(n, tf.float32) for n in NUMBERS],
        "next_steps": [tf.constant(s, tf.int64) for s in (-1, 7, -2)],
        "optimizers": OPTIMIZERS,
        "slot_inits": sum(SLOT_INITS, []),
        "create_missing": [False, False, False],
    }


def content(tables):
    """Returns the complete content of tables by number."""
    found = []
    for table in tables:
        rows = table.export()
        found.append(
            [
                rows.ids.numpy().tolist(),
                rows.rows.numpy().tolist(),
                {
                    k: v.numpy().tolist()
                    for k, v in rows.optimizer_slots.items()
                },
                int(table.step),
            ]
        )
    return found


@pytest.mark.parametrize("create_missing", [False, True])
@pytest.mark.parametrize("in_graph", [False, True])
def test_equals_separate_updates(create_missing, in_graph):
    tables, others = make_tables(), make_tables()
    options = arguments(tables)
    options["create_missing"] = [create_missing] * 3

    def update(ids, gradients):
        gen_ops.lodestar_embedding_apply_all(
            **{**options, "ids": ids, "gradients": gradients}
        )

    if in_graph:
        update = tf.function(
            update,
            input_signature=[
                [tf.TensorSpec([None], tf.int64)] * 3,
                [tf.TensorSpec(None, tf.float32)] * 3,
            ],
        )
    update(options["ids"], options["gradients"])
    for t, other in enumerate(others):
        gen_ops.lodestar_embedding_apply(
            other.resource_handle,
            *(options[k][t] for k in ("ids", "gradients", "hyperparameters")),
            options["next_steps"][t],
            optimizer=OPTIMIZERS[t],
            slot_inits=SLOT_INITS[t],
            create_missing=create_missing,
        )
    assert content(tables) == content(others)
    assert tables[1].step == 7
    assert 7 in tables[0].export().ids.numpy() or not create_missing


def test_skips_gradients_that_are_not_finite():
    tables = make_tables()
    options = arguments(tables)
    before = content(tables)
    bad = options["gradients"][1].numpy()
    bad[0, 3] = np.inf
    options["gradients"][1] = tf.constant(bad)
    gen_ops.lodestar_embedding_apply_all(**options, nonfinite="skip")
    after = content(tables)
    assert after[0][1] != before[0][1]
    # Ids are exported in ascending order: -1, then 2**62.
    assert after[1][1][0] != before[1][1][0]
    assert after[1][1][1] == before[1][1][1]
    assert tables[1].stats()["nonfinite_gradients"] == 1


def refusals():
    nan = tf.fill([2, 8], np.nan)
    yield "t1': the gradient of id", {"gradients": (1, nan)}
    yield (
        "t1': `gradients` must have shape [2,8], got [2,9]",
        {"gradients": (1, tf.zeros([2, 9]))},
    )
    yield (
        "t2': optimizer 'adam' takes 6 hyperparameters",
        {"hyperparameters": (2, tf.constant([0.1]))},
    )
    yield (
        "`optimizers` has 2 items and `create_missing` 3",
        {"optimizers": ["sgd", "sgd"]},
    )
    yield (
        "`slot_inits` has 4 elements, but `optimizers` have 3",
        {"slot_inits": [0.0] * 4},
    )
    yield (
        "`slot_inits` has 2 elements, but `optimizers` have 3",
        {"slot_inits": [0.0] * 2},
    )
    yield (
        "t1': `ids` must have rank 1, found shape []",
        {"ids": (1, tf.constant(3, tf.int64))},
    )


@pytest.mark.parametrize("message, changed", list(refusals()))
def test_refused_updates_change_no_table(message, changed):
    tables = make_tables()
    options = arguments(tables)
    before = content(tables)
    for name, value in changed.items():
        if isinstance(value, tuple):
            options[name][value[0]] = value[1]
        else:
            options[name] = value
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        gen_ops.lodestar_embedding_apply_all(**options)
    assert message in raised.value.message
    assert content(tables) == before


def test_another_optimizer_of_one_changes_no_table():
    tables = make_tables()
    options = arguments(tables)
    gen_ops.lodestar_embedding_apply_all(**options)
    before = content(tables)
    options["optimizers"] = ["adagrad", "sgd", "adagrad"]
    options["hyperparameters"][2] = options["hyperparameters"][0]
    options["slot_inits"] = [0.1, 0.1]
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="table 't2'.*'adam'"
    ):
        gen_ops.lodestar_embedding_apply_all(**options)
    assert content(tables) == before


def test_handles_of_other_things_are_refused():
    tables = make_tables()
    options = arguments(tables)
    variable = tf.Variable([1.0])
    none = tf.reshape(tables[1].resource_handle, [1])[:0]
    before = content(tables)
    for handle in (variable.handle, none):
        options["handles"][1] = handle
        with pytest.raises(tf.errors.OpError):
            gen_ops.lodestar_embedding_apply_all(**options)
    assert content(tables) == before


def test_a_table_may_not_be_named_twice():
    tables = make_tables()
    options = arguments(tables)
    options["handles"][2] = options["handles"][0]
    before = content(tables)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`handles\[0\]` and `handles\[2\]` are the same table",
    ):
        gen_ops.lodestar_embedding_apply_all(**options)
    assert content(tables) == before


@pytest.mark.parametrize("full", [0, 1])
def test_a_full_table_leaves_the_others_as_they_were(full):
    tables = [
        lodestar.EmbeddingVariable(
            2,
            eviction=(
                lodestar.MaxRows(2, when_full="raise") if t == full else None
            ),
            name=f"t{t}",
        )
        for t in range(2)
    ]

    def apply(counts):
        ids = [tf.range(count, dtype=tf.int64) for count in counts]
        gen_ops.lodestar_embedding_apply_all(
            [t.resource_handle for t in tables],
            ids,
            [tf.ones([count, 2]) for count in counts],
            [tf.constant([0.5, 0.0])] * 2,
            [tf.constant(-1, tf.int64)] * 2,
            optimizers=["sgd", "sgd"],
            slot_inits=[],
            create_missing=[True, True],
        )

    before = content(tables)
    with pytest.raises(
        tf.errors.FailedPreconditionError, match=f"table 't{full}'.* is full"
    ):
        apply((3, 3))
    assert content(tables) == before
    apply((2, 2))
    assert [int(t.size()) for t in tables] == [2, 2]
