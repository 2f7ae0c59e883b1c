"""Raw ops of the embedding variable, with arguments that no wrapper passes.

Whatever the tensors hold, an op returns or raises a TensorFlow error. It never
ends the process, and if it raises, no table has changed.
"""

import re
import uuid

import numpy as np
import pytest
import tensorflow as tf
from handles import weak
from random_arguments import (
    DIM,
    MAX,
    MIN,
    call,
    content,
    default_dtype,
    op_def,
    random_number,
    random_tensor,
    table,
    tensor,
)

import lodestar
from lodestar._library import gen_ops
from lodestar.embedding.lookup_arguments import ROW_DTYPES

# A valid call of each op: its inputs, and attributes without default. Random
# calls start from these.
LOOKUP = {"ids": [1, 2, 2], "missing_row": np.zeros(DIM)}
CALLS = {
    "EmbeddingFind": LOOKUP,
    "EmbeddingFindForGradient": {
        **LOOKUP,
        "gradient": np.ones([2, DIM]),
        "missing": "initial",
    },
    "EmbeddingFindOrInsert": LOOKUP,
    "EmbeddingFindOrInsertUnique": {
        "ids": [1, 9, 2],
        "occurrences": [1, 5, 1],
        "missing_row": np.zeros(DIM),
    },
    "EmbeddingGradient": {
        "gradient": np.ones([3, DIM]),
        "positions": [0, 1, 1],
        "unique_ids": [1, 2],
    },
    "EmbeddingApply": {
        "ids": [1, 2, 2],
        "gradients": np.ones([3, DIM]),
        "hyperparameters": [0.1, 0.0, 1e-7],
        "next_step": -1,
        "optimizer": "adagrad",
        "slot_inits": [0.1],
    },
    "EmbeddingStage": {
        "ids": [1, 2, 2],
        "gradients": np.ones([3, DIM]),
        "hyperparameters": [0.1, 0.0, 1e-7],
        "next_step": -1,
        "attempt": [0, 1],
        "attempt_name": 1,
        "optimizer": "adagrad",
        "slot_inits": [0.1],
    },
    "EmbeddingGatherForUpdate": {
        "ids": [1, 2, 9],
        "shared": [False] * 3,
        "gradients": np.ones([3, DIM]),
        "optimizer": "replay:mine",
        "slot_names": ["m", "v"],
        "slot_inits": [0.5, 0.0],
    },
    "EmbeddingAssignIfUnchanged": {
        "ids": [1, 2, 9],
        "shared": [False] * 3,
        "versions": [6, 6, 6],
        "rows": np.ones([3, DIM]),
        "slots": np.ones([2, 3, DIM]),
        "next_step": 7,
        "optimizer": "replay:mine",
        "slot_names": ["m", "v"],
    },
    "EmbeddingInsertOrAssign": {
        "ids": [1, 2, 2],
        "rows": np.ones([3, DIM]),
    },
    "EmbeddingImport": {
        "ids": [1, 2, 3],
        "rows": np.ones([3, DIM]),
        "slots": np.ones([1, 3, DIM]),
        "frequencies": [1, 2, 3],
        "last_seen": [1, 2, 3],
        "optimizer": "adagrad",
        "slot_names": ["accumulator"],
        "slot_inits": [0.1],
        "counters": [1, 2, 3, 0],
        "shared_rows": np.zeros([0, 0]),
        "shared_slots": np.zeros([0, 0, 0]),
    },
    "EmbeddingVariable": {"dim": DIM},
    "EmbeddingCheckApply": {
        "ids": [1, 2, 2],
        "gradients": np.ones([3, DIM]),
        "optimizer": "adagrad",
    },
    "EmbeddingRestartSlots": {"optimizer": "adagrad", "slot_inits": [0.1]},
    "EmbeddingCollectionCounters": {"num_features": 2},
    "EmbeddingPartition": {"ids": [1, 2, 9], "num_parts": 3},
    "EmbeddingPartitionRows": {
        "ids": [1, 2, 9],
        "rows": np.ones([3, DIM]),
        "num_parts": 3,
    },
    "EmbeddingUnique": {"ids": [1, 2, 2]},
    "EmbeddingRemove": {"ids": [1, 9]},
    "EmbeddingFrequency": {"ids": [1, 9]},
    "EmbeddingSetStep": {"step": 5},
    "EmbeddingDecayFrequencies": {"rate": 0.5},
}


def new_log():
    """Returns the handle of a log on which update 0 has begun."""
    log = gen_ops.lodestar_update_log(shared_name=uuid.uuid4().hex)
    gen_ops.lodestar_begin_update(log, [0, 0])
    return log


def op_names():
    found = re.findall(r"lodestar_(embedding_\w+)", "\n".join(dir(gen_ops)))
    names = {
        "".join(word.title() for word in stem.split("_"))
        for stem in found
        if "eager_fallback" not in stem
    }
    # Ops on lists of tables have their own test.
    return sorted(
        name
        for name in names
        if not any(argument.number_attr for argument in op_def(name).input_arg)
    )


def usual_arguments(name, t):
    """Returns valid arguments of the op, as far as they are known."""
    known = CALLS.get(name, {})
    arguments = {}
    for argument in op_def(name).input_arg:
        dtype = default_dtype(name, argument)
        if argument.name == "handle":
            arguments["handle"] = t.resource_handle
        elif argument.name == "log":
            arguments["log"] = new_log()
        elif argument.name == "hook":
            arguments["hook"] = tf.zeros([0, DIM])
        else:
            value = known.get(argument.name, np.zeros([0]))
            arguments[argument.name] = tensor(value, dtype)
    for attr in op_def(name).attr:
        if attr.name in known:
            arguments[attr.name] = known[attr.name]
    return arguments


def random_attr(rng, attr):
    """Returns another value of an attribute, or None to keep the value."""
    if attr.type == "type":
        allowed = attr.allowed_values.list.type
        return tf.as_dtype(allowed[rng.integers(len(allowed))])
    if attr.HasField("allowed_values") and rng.integers(3) == 0:
        allowed = attr.allowed_values.list.s
        return allowed[rng.integers(len(allowed))].decode()
    if attr.type == "bool" and rng.integers(3) == 0:
        return bool(rng.integers(2))
    if attr.type == "int" and rng.integers(3) == 0:
        return random_number(rng)
    return None


@pytest.mark.parametrize("name", sorted(CALLS))
def test_usual_arguments_are_accepted(name):
    # Otherwise the random calls would fail for this reason.
    t = table()
    call(name, **usual_arguments(name, t))


@pytest.mark.parametrize("name", op_names())
def test_random_arguments_are_taken_or_refused(name, rng):
    t = table()
    before = content(t)
    taken = refused = 0
    for _ in range(200):
        arguments = usual_arguments(name, t)
        tensors = [
            a for a in op_def(name).input_arg if a.name not in ("handle", "log")
        ]
        for _ in range(rng.integers(1, 3) if tensors else 0):
            changed = tensors[rng.integers(len(tensors))]
            dtype = default_dtype(name, changed)
            if changed.type_attr and rng.integers(3) == 0:
                dtype = ROW_DTYPES[rng.integers(len(ROW_DTYPES))]
            arguments[changed.name] = random_tensor(rng, dtype)
        fixed = {a.type_attr for a in op_def(name).input_arg}  # inferred
        # TensorFlow allocates all outputs before it runs an op.
        fixed |= {a.number_attr for a in op_def(name).output_arg}
        # If all of them changed, few calls would be valid.
        for attr in op_def(name).attr:
            value = random_attr(rng, attr) if rng.integers(2) else None
            if value is not None and attr.name not in fixed:
                arguments[attr.name] = value
        try:
            call(name, **arguments)
        # TypeError: inputs of one type attribute differ.
        except (tf.errors.OpError, TypeError):
            refused += 1
            assert content(t) == before, arguments
        else:
            taken += 1
            before = content(t)
    if name in CALLS:
        assert taken
    # The table still works.
    t.lookup([MIN, -1, 0, MAX], training=True)
    assert t.find([MIN, -1, 0, MAX])[1].numpy().all()


def with_handle():
    return [
        name
        for name in op_names()
        if any(a.name == "handle" for a in op_def(name).input_arg)
    ]


@pytest.mark.parametrize("name", with_handle())
def test_handles_of_other_things_are_refused(name):
    t = table()
    arguments = usual_arguments(name, t)
    others = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    variable = tf.Variable([1.0])
    none = tf.reshape(t.resource_handle, [1])[:0]
    for handle in (others.resource_handle, variable.handle, none):
        with pytest.raises(tf.errors.OpError):
            call(name, **{**arguments, "handle": handle})


@pytest.mark.parametrize("name", with_handle())
def test_a_destroyed_table_is_not_found(name):
    t = table()
    arguments = usual_arguments(name, t)
    arguments["handle"] = weak(t.resource_handle)
    gen_ops.lodestar_release_resource(t.resource_handle)
    with pytest.raises(tf.errors.OpError, match="does not exist|wrong type"):
        call(name, **arguments)


LOOKUPS = [
    "EmbeddingFind",
    "EmbeddingFindForGradient",
    "EmbeddingFindOrInsert",
]
GRADIENTS = ["EmbeddingGradient"]
UNIQUE = "EmbeddingFindOrInsertUnique"


def cases(names, message, **changed):
    return [(name, changed, message) for name in names]


@pytest.mark.parametrize(
    "name, changed, message",
    [
        *cases(
            LOOKUPS,
            "`hook` must have shape [0,4], got [0,5]",
            hook=tf.zeros([0, 5]),
        ),
        *cases(
            LOOKUPS, "`hook` must have shape [0,4], got []", hook=tf.zeros([])
        ),
        *cases(
            LOOKUPS,
            "`hook` must have shape [0,4], got [1,4]",
            hook=tf.zeros([1, 4]),
        ),
        *cases(
            LOOKUPS,
            "`missing_row` has 3 elements, but the variable's dim is 4",
            missing="vector",
            missing_row=tf.zeros([3]),
        ),
        *cases(
            LOOKUPS,
            "`missing_row` must have rank 1, found shape [1,4]",
            missing="vector",
            missing_row=tf.zeros([1, 4]),
        ),
        *cases(
            [UNIQUE],
            "`ids` contains 1 twice, at 0 and 2",
            ids=[1, 2, 1],
        ),
        *cases(
            [UNIQUE],
            "`ids` must have rank 1, found shape [1,3]",
            ids=[[1, 2, 9]],
        ),
        *cases(
            [UNIQUE],
            "`occurrences` has 2 elements, but there are 3 ids",
            occurrences=[1, 1],
        ),
        *cases(
            [UNIQUE],
            "`occurrences` must have rank 1, found shape []",
            occurrences=1,
        ),
        *cases(
            [UNIQUE],
            "`occurrences[2]` must be in [1, 2^32 - 1], got 0",
            occurrences=[1, 2, 0],
        ),
        *cases(
            [UNIQUE],
            f"`occurrences[0]` must be in [1, 2^32 - 1], got {2**32}",
            occurrences=[2**32, 2, 1],
        ),
        *cases(
            [UNIQUE],
            "`missing_row` is float16, but the variable's rows are float32",
            missing_row=tf.zeros([4], tf.float16),
        ),
        *cases(
            [UNIQUE],
            "`missing_row` has 3 elements, but the variable's dim is 4",
            missing="vector",
            missing_row=tf.zeros([3]),
        ),
        *cases(
            GRADIENTS,
            "`positions[1]` must be in [-1, 2), got 2",
            positions=[0, 2, 1],
        ),
        *cases(
            GRADIENTS,
            f"`positions[2]` must be in [-1, 2), got {MIN}",
            positions=[0, 1, MIN],
        ),
        *cases(
            GRADIENTS,
            "`positions[0]` must be in [-1, 0), got 0",
            unique_ids=np.zeros([0], np.int64),
        ),
        *cases(
            GRADIENTS,
            "`gradient` must have rank 2, found shape [3]",
            gradient=tf.zeros([3]),
        ),
        *cases(
            GRADIENTS,
            f"`gradient` must have a last axis of at most 65536, got {2**62}",
            gradient=tf.zeros([0, 2**62]),
        ),
        (
            "EmbeddingGradient",
            {"gradient": tf.zeros([2, DIM])},
            "`gradient` has 2 rows, but `positions` has 3 elements",
        ),
        (
            "EmbeddingApply",
            {"gradients": tf.zeros([3, 5])},
            "`gradients` must have shape [3,4], got [3,5]",
        ),
        (
            "EmbeddingApply",
            {"gradients": tf.zeros([2, 4])},
            "`gradients` must have shape [3,4], got [2,4]",
        ),
        (
            "EmbeddingApply",
            {"ids": 1},
            "`ids` must have rank 1, found shape []",
        ),
        (
            "EmbeddingApply",
            {"next_step": [1]},
            "`next_step` must have rank 0, found shape [1]",
        ),
        (
            "EmbeddingApply",
            {"hyperparameters": [0.1]},
            "optimizer 'adagrad' takes 3 hyperparameters (learning_rate, weight_decay, "
            "epsilon), got 1",
        ),
        (
            "EmbeddingApply",
            {"slot_inits": [0.1, 0.2]},
            "`slot_inits` has 2 elements, but 'adagrad' has 1 optimizer slots",
        ),
        (
            "EmbeddingApply",
            {"gradients": tf.fill([3, DIM], np.nan)},
            "the gradient of id 1 is not finite; no row was changed",
        ),
        *cases(
            ["EmbeddingGatherForUpdate", "EmbeddingAssignIfUnchanged"],
            "`shared` has 2 items, but there are 3 ids",
            shared=[False] * 2,
        ),
        *cases(
            ["EmbeddingGatherForUpdate", "EmbeddingAssignIfUnchanged"],
            "`ids[2]` must be a shared row in [0, 0), got 9",
            shared=[False, False, True],
        ),
        *cases(
            ["EmbeddingGatherForUpdate", "EmbeddingAssignIfUnchanged"],
            "`optimizer` must be 'replay:' and a name, got 'adam'",
            optimizer="adam",
        ),
        (
            "EmbeddingGatherForUpdate",
            {"gradients": tf.zeros([3, 5])},
            "`gradients` must have shape [3,4], got [3,5]",
        ),
        (
            "EmbeddingGatherForUpdate",
            {"slot_inits": [0.5]},
            "'replay:mine' has 2 slot names, but 1 slot_inits",
        ),
        (
            "EmbeddingGatherForUpdate",
            {"gradients": tf.fill([3, DIM], np.nan)},
            "the gradient of id 1 is not finite; no row was changed",
        ),
        (
            "EmbeddingAssignIfUnchanged",
            {"versions": [6]},
            "`versions` has 1 items, but there are 3 ids",
        ),
        (
            "EmbeddingAssignIfUnchanged",
            {"rows": tf.zeros([2, DIM])},
            "`rows` must have shape [3,4], got [2,4]",
        ),
        (
            "EmbeddingAssignIfUnchanged",
            {"slots": tf.zeros([1, 3, DIM])},
            "`slots` must have shape [2,3,4], got [1,3,4]",
        ),
        (
            "EmbeddingCheckApply",
            {"optimizer": "lamb"},
            "unknown optimizer 'lamb'",
        ),
        (
            "EmbeddingCheckApply",
            {"gradients": tf.fill([3, DIM], 3e38)},
            "the gradient of id 2 is not finite; no row was changed",
        ),
        (
            "EmbeddingCheckApply",
            {"gradients": tf.fill([3, DIM], 1e38), "additions": MAX},
            "the accumulated gradients of id 2 exceed half",
        ),
        (
            "EmbeddingInsertOrAssign",
            {"rows": tf.zeros([3, 5])},
            "`rows` must have shape [3,4], got [3,5]",
        ),
        (
            "EmbeddingInsertOrAssign",
            {"ids": [[1, 2, 2]]},
            "`ids` must have rank 1, found shape [1,3]",
        ),
        (
            "EmbeddingSetStep",
            {"step": [1]},
            "`step` must have rank 0, found shape [1]",
        ),
        (
            "EmbeddingImport",
            {"ids": [1, 2, 1]},
            "`ids` contains 1 twice, at 0 and 2",
        ),
        (
            "EmbeddingImport",
            {"rows": tf.zeros([3, 5])},
            "`rows` must have shape [3,4], got [3,5]",
        ),
        (
            "EmbeddingImport",
            {"slots": tf.zeros([2, 3, DIM])},
            "`slots` must have 12 elements, got 24",
        ),
        (
            "EmbeddingImport",
            {"frequencies": [1, 2]},
            "`frequencies` must have 3 elements, got 2",
        ),
        (
            "EmbeddingImport",
            {"frequencies": [1, 2, 2**32]},
            f"`frequencies[2]` must be in [0, 2^32 - 1], got {2**32}",
        ),
        (
            "EmbeddingImport",
            {"optimizer": "lamb"},
            "unknown optimizer 'lamb'",
        ),
        (
            "EmbeddingImport",
            {"shared_rows": tf.zeros([0])},
            "`shared_rows` must have rank 2, found shape [0]",
        ),
        (
            "EmbeddingVariable",
            {"dim": 65537},
            "`dim` must be in [1, 65536], got 65537",
        ),
        (
            "EmbeddingVariable",
            {"dim": DIM, "num_shards": 4097},
            "`num_shards` must be in [1, 4096], got 4097",
        ),
    ],
)
def test_what_is_wrong_is_said(name, changed, message):
    t = table()
    arguments = {**usual_arguments(name, t), **changed}
    before = content(t)
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        call(name, **arguments)
    assert message in raised.value.message
    assert content(t) == before


def test_rows_of_16_bits_are_not_sums():
    t = lodestar.EmbeddingVariable(DIM, dtype=tf.float16)
    arguments = usual_arguments("EmbeddingCheckApply", t)
    call("EmbeddingCheckApply", **arguments)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="rows of float16 do not support"
    ):
        call("EmbeddingCheckApply", **arguments, additions=1)


@pytest.mark.parametrize("name", ["EmbeddingApply", "EmbeddingGatherForUpdate"])
def test_gradients_that_are_skipped_count_if_the_others_are_applied(name):
    t = table()
    arguments = {**usual_arguments(name, t), "nonfinite": "skip"}
    arguments["gradients"] = tf.constant(np.full([3, DIM], np.nan), tf.float32)
    call(name, **arguments)
    before = t.stats()["nonfinite_gradients"]
    assert before == len(set(np.array(arguments["ids"])))
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="has the optimizer slots"
    ):
        other = {
            "EmbeddingApply": {
                "optimizer": "sgd",
                "slot_inits": [],
                "hyperparameters": [0.1, 0.0],
            },
            "EmbeddingGatherForUpdate": {"optimizer": "replay:other"},
        }
        call(name, **{**arguments, **other[name]})
    assert t.stats()["nonfinite_gradients"] == before


@pytest.mark.parametrize("name", LOOKUPS)
def test_other_dtypes_are_refused(name):
    t = table()
    arguments = usual_arguments(name, t)
    for changed in (
        {"ids": tf.constant([1.5])},
        {"ids": tf.constant([1], tf.int32)},
        {"hook": tf.zeros([0, DIM], tf.float16)},
        {"hook": tf.zeros([0, DIM], tf.int32)},
        {"handle": tf.constant(1)},
    ):
        with pytest.raises((tf.errors.InvalidArgumentError, TypeError)):
            call(name, **{**arguments, **changed})
