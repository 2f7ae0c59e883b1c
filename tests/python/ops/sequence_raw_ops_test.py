"""Raw ops of sequences, with arguments that no wrapper passes.

Whatever the tensors hold, an op returns or raises a TensorFlow error; it never
ends the process.
"""

import numpy as np
import pytest
import tensorflow as tf
from random_arguments import MAX, MIN, call, op_def, random_tensor

ROWS = np.ones([3, 4], np.float32)
# A valid call of each op. Random calls start from these.
SPLITS = [0, 1, 3]
CALLS = {
    "SequenceConcat": {"values": [ROWS] * 2, "lods": [SPLITS] * 2},
    "SequenceConcatGradient": {
        "gradient": np.ones([6, 4], np.float32),
        "row_splits": [SPLITS] * 2,
    },
    "SequenceContext": {
        "values": ROWS,
        "row_splits": SPLITS,
        "pad_value": np.float32(7),
    },
    "SequenceContextGradient": {
        "gradient": np.ones([3, 2, 4], np.float32),
        "row_splits": SPLITS,
    },
    "SequenceErase": {
        "values": [1, 2, 3],
        "row_splits": SPLITS,
        "tokens": [2, 4],
    },
    "SequenceExpand": {
        "values": ROWS,
        "row_splits": SPLITS,
        "ref_splits": [0, 2, 3],
    },
    "SequenceExpandGradient": {
        "gradient": np.ones([4, 4], np.float32),
        "row_splits": SPLITS,
        "ref_splits": [0, 2, 3],
    },
    "SequenceExpandAs": {"values": ROWS, "row_splits": [0, 2, 2, 5]},
    "SequencePad": {
        "values": ROWS,
        "row_splits": SPLITS,
        "pad_value": np.float32(7),
        "maxlen": -1,
    },
    "SequencePool": {
        "values": ROWS,
        "row_splits": SPLITS,
        "pad_value": np.float32(7),
    },
    "SequencePoolGradient": {
        "gradient": np.ones([2, 4], np.float32),
        "row_splits": SPLITS,
        "index": [[0] * 4, [2] * 4],
        "num_rows": 3,
    },
    "SequenceReshape": {"values": ROWS, "row_splits": SPLITS},
    "SequenceReverse": {"values": ROWS, "row_splits": SPLITS},
    "SequenceScatterPlaces": {
        "index": [0, 2, 1],
        "index_lod": [SPLITS],
        "updates_lod": [SPLITS],
        "updates_shape": [3],
        "x_shape": [2, 3],
    },
    "SequenceSlice": {
        "values": ROWS,
        "row_splits": SPLITS,
        "offset": [0, 1],
        "length": [1, 1],
    },
    "SequenceSliceGradient": {
        "gradient": np.ones([2, 4], np.float32),
        "row_splits": SPLITS,
        "offset": [0, 1],
        "length": [1, 1],
    },
    "SequenceSoftmax": {"values": ROWS, "row_splits": SPLITS},
    "SequenceSoftmaxGradient": {
        "probabilities": ROWS,
        "gradient": ROWS,
        "row_splits": SPLITS,
    },
    "SequenceTopk": {
        "values": np.ones([9], np.float32),
        "x_splits": [0, 2, 9],
        "row_splits": [0, 1, 2],
        "col_splits": [0, 2, 9],
    },
    "SequenceUnpad": {
        "padded": np.ones([2, 3, 4], np.float32),
        "lengths": [1, 3],
    },
}
ATTRIBUTES = {
    "SequenceContext": [
        {"start": start, "size": size}
        for start in (-1, 0, 2**60, -(2**60))
        for size in (1, 2, MAX)
    ],
    "SequenceContextGradient": [
        {"start": start, "size": 2} for start in (-1, 0, 2**60, -(2**60))
    ],
    "SequencePool": [
        {"combiner": combiner}
        for combiner in ("sum", "mean", "sqrtn", "max", "first", "last")
    ],
    "SequenceReshape": [{"new_dim": dim} for dim in (1, 2, 3, MAX)],
    "SequenceTopk": [
        {"channels": channels, "k": k}
        for channels in (1, 2, MAX)
        for k in (1, 2, MAX)
    ],
}
ATTRIBUTES["SequencePoolGradient"] = ATTRIBUTES["SequencePool"]
# Either small or larger than any memory: if a large machine could have enough,
# TensorFlow retries for ten seconds.
OFFSETS = [MIN, -1, *(0, 1, 2, 3) * 2, 4, 5, 40, 2**62, MAX - 1, MAX]


def usual_tensor(argument, value, dtype):
    value = np.asarray(value)
    if argument.type_attr and dtype == tf.string:
        value = value.astype(str)
    wanted = dtype if argument.type_attr else tf.int64
    return tf.constant(value.astype(wanted.as_numpy_dtype), wanted)


def usual_arguments(name, dtype):
    """Returns valid arguments of the op, with rows of `dtype`."""
    arguments = dict(ATTRIBUTES.get(name, [{}])[0])
    for argument in op_def(name).input_arg:
        value = CALLS[name][argument.name]
        arguments[argument.name] = (
            [usual_tensor(argument, x, dtype) for x in value]
            if argument.number_attr
            else usual_tensor(argument, value, dtype)
        )
    return arguments


def dtypes(name):
    """Returns a few dtypes that rows of the op may have."""
    for attr in op_def(name).attr:
        if attr.name == "T":
            allowed = attr.allowed_values.list.type
            return [
                dtype
                for dtype in (tf.bfloat16, tf.float32, tf.int64, tf.string)
                if not allowed or dtype.as_datatype_enum in allowed
            ]
    return [tf.int64]


def random_offsets(rng):
    """Returns offsets that are valid splits, almost valid, or invalid."""
    count = rng.integers(0, 6)
    kind = rng.integers(5)
    if kind == 0:
        return tf.constant(rng.choice(OFFSETS, size=count), tf.int64)
    if kind == 1:
        return tf.constant(rng.choice(OFFSETS, size=[(), (2, 2)][count % 2]))
    if kind == 2:
        return tf.constant(np.sort(rng.choice(OFFSETS, size=count)), tf.int64)
    splits = np.cumsum(rng.integers(0, 3, size=count))
    splits -= splits[:1].sum()
    if kind == 3 and count:
        splits[rng.integers(count)] = rng.choice(OFFSETS)
    return tf.constant(splits, tf.int64)


def random_tensors(rng, argument, dtype):
    """Returns an input that is seldom meant."""
    if argument.type_attr:
        return random_tensor(rng, dtype)
    if argument.name in ("maxlen", "num_rows") and rng.integers(4):
        return tf.constant(rng.choice(OFFSETS), tf.int64)
    return random_offsets(rng)


@pytest.mark.parametrize(
    "name, dtype",
    [(name, dtype) for name in sorted(CALLS) for dtype in dtypes(name)],
    ids=lambda x: x if isinstance(x, str) else x.name,
)
def test_random_arguments_are_taken_or_refused(name, dtype, rng):
    call(name, **usual_arguments(name, dtype))
    taken = refused = 0
    inputs = list(op_def(name).input_arg)
    for _ in range(400):
        arguments = usual_arguments(name, dtype)
        attributes = ATTRIBUTES.get(name, [{}])
        if not rng.integers(3):
            arguments.update(attributes[rng.integers(len(attributes))])
        for _ in range(rng.integers(3)):
            changed = inputs[rng.integers(len(inputs))]
            value = random_tensors(rng, changed, dtype)
            if changed.number_attr:
                place = rng.integers(len(arguments[changed.name]))
                arguments[changed.name][place] = value
            else:
                arguments[changed.name] = value
        try:
            call(name, **arguments)
        except tf.errors.OpError:
            refused += 1
        else:
            taken += 1
    assert taken
    assert refused


@pytest.mark.parametrize(
    "name, changed",
    [
        (
            "SequencePad",
            {
                "values": np.ones([3]),
                "row_splits": [0, 3],
                "maxlen": MAX,
            },
        ),
        ("SequenceExpandAs", {"values": np.ones([1]), "row_splits": [0, MAX]}),
        (
            "SequenceExpandGradient",
            {
                "gradient": np.ones([0]),
                "row_splits": [0, MAX],
                "ref_splits": [0, 0],
            },
        ),
        (
            "SequenceSliceGradient",
            {
                "gradient": np.ones([0]),
                "row_splits": [0, MAX],
                "offset": [0],
                "length": [0],
            },
        ),
        (
            "SequenceContext",
            {"values": np.ones([1]), "row_splits": [0, 1], "size": MAX},
        ),
        (
            "SequencePoolGradient",
            {"gradient": np.ones([1]), "row_splits": [0, MAX], "num_rows": MAX},
        ),
    ],
)
def test_more_bytes_than_int64_are_refused(name, changed):
    arguments = usual_arguments(name, tf.bfloat16)
    inputs = {argument.name: argument for argument in op_def(name).input_arg}
    for key, value in changed.items():
        arguments[key] = (
            usual_tensor(inputs[key], value, tf.bfloat16)
            if key in inputs
            else value
        )
    with pytest.raises(
        tf.errors.ResourceExhaustedError, match="too large to a"
    ):
        call(name, **arguments)


def test_splits_are_read_before_the_gradient_is_made():
    arguments = usual_arguments("SequencePoolGradient", tf.float32)
    arguments["num_rows"] = tf.constant(2**60)
    with pytest.raises(tf.errors.InvalidArgumentError, match="ends at 3, but"):
        call("SequencePoolGradient", **arguments)
