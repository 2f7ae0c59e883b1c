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
    "LodValidate": {"num_rows": 3, "levels": [[0, 2], SPLITS]},
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
    "SequenceSoftmax": {"values": ROWS, "row_splits": SPLITS},
    "SequenceSoftmaxGradient": {
        "probabilities": ROWS,
        "gradient": ROWS,
        "row_splits": SPLITS,
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
}
ATTRIBUTES["SequencePoolGradient"] = ATTRIBUTES["SequencePool"]
# Either small or larger than any memory: if a large machine could have enough,
# TensorFlow retries for ten seconds.
OFFSETS = [MIN, -1, *(0, 1, 2, 3) * 2, 4, 5, 40, 2**62, MAX - 1, MAX]


def usual_tensor(argument, value, dtype):
    if tf.is_tensor(value):
        return value
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
    with pytest.raises(
        tf.errors.ResourceExhaustedError, match="too large to a"
    ):
        call(name, **changed_arguments(name, tf.bfloat16, changed))


def changed_arguments(name, dtype, changed):
    """Returns valid arguments of the op except for those that are given."""
    arguments = usual_arguments(name, dtype)
    inputs = {argument.name: argument for argument in op_def(name).input_arg}
    for key, value in changed.items():
        if key in inputs:
            argument = inputs[key]
            value = (
                [usual_tensor(argument, x, dtype) for x in value]
                if argument.number_attr
                else usual_tensor(argument, value, dtype)
            )
        arguments[key] = value
    return arguments


BIG = 2**62
# No rows, each with more elements than int64 counts.
WIDE = tf.reshape(tf.zeros([0]), [0, 2**40, 2**40])
NO_COLUMNS = tf.zeros([BIG, 0])
REFUSED = {
    "LodValidate": [
        (dict(num_rows=[3]), "`num_rows` must have rank 0"),
        (dict(num_rows=-1), "there are -1 rows"),
        (dict(levels=[[0, 2], 3]), "`levels` must have rank 1"),
        (dict(levels=[]), "at least minimum 1"),
    ],
    "SequenceConcat": [
        (
            dict(values=[ROWS, 1.0]),
            r"`values\[1\]` must have rows .* shape \[\]",
        ),
        (
            dict(values=[1.0, ROWS]),
            r"`values\[0\]` must have rows .* shape \[\]",
        ),
        (
            dict(values=[ROWS, ROWS[:, :2]]),
            r"`values\[1\]` must have rows as in",
        ),
        (dict(lods=[SPLITS] * 3), "there are 3 levels, which is not"),
        (dict(lods=[SPLITS]), "there are 1 levels, which is not"),
        (dict(lods=[[], SPLITS]), r"`xs\[0\]`: `lod\[0\]` is empty"),
        (dict(lods=[SPLITS, 3]), "`lods` must have rank 1"),
        (dict(lods=[SPLITS, [0, 3]]), "has 1 sequences at level 0"),
        (
            dict(values=[NO_COLUMNS] * 2, lods=[[0, BIG]] * 2),
            "the sum overflows int64",
        ),
    ],
    "SequenceConcatGradient": [
        (dict(gradient=1.0), "`gradient` must have rank 1 or more"),
        (dict(gradient=ROWS), "has 3 rows, but the batches have 6"),
        (dict(row_splits=[SPLITS, []]), r"`xs\[1\]`: `lod\[0\]` is empty"),
        (dict(row_splits=[SPLITS, [0]]), "has 0 sequences at level 0"),
        (dict(row_splits=[[0, 2, 1], SPLITS]), "is greater than"),
        (dict(row_splits=[0, SPLITS]), "`row_splits` must have rank 1"),
    ],
    "SequenceContext": [
        (dict(values=1.0), "`values` must have rank 1 or more"),
        (dict(pad_value=[0.0]), "`pad_value` must have rank 0"),
        (dict(size=0), "must be at least minimum 1"),
        (dict(start=BIG), f"`start` must be in .* got {BIG}"),
        (dict(start=MIN), f"`start` must be in .* got {MIN}"),
        (dict(size=BIG), "overflow"),
    ],
    "SequenceContextGradient": [
        (
            dict(gradient=[1.0] * 3),
            "`gradient` must have windows of 2 rows, got shape .3.",
        ),
        (dict(size=3), "must have windows of 3 rows, got shape .3,2,4."),
    ],
    "SequenceExpand": [
        (dict(values=1.0), "`values` must have rank 1 or more"),
        (dict(ref_splits=[]), "`ref_splits` is empty"),
        (dict(ref_splits=[[0, 1]]), "`ref_splits` must have rank 1"),
        (dict(ref_splits=[1, 2, 3]), r"`ref_splits\[0\]` must be 0, got 1"),
        (dict(ref_splits=[0, -1, 3]), "is greater than"),
        (dict(ref_splits=[0, 1]), "`x` has 2 units to repeat, but `y` has 1"),
        (dict(ref_splits=[0, 0, BIG]), "sequence 1 of 2 rows, repeated"),
        (
            dict(values=ROWS[:0], row_splits=[0, 0], ref_splits=[0, MAX]),
            "whose splits overflow int64",
        ),
        (dict(values=WIDE, row_splits=[0, 0], ref_splits=[0, 1]), "overflow"),
    ],
    "SequenceExpandGradient": [
        (dict(gradient=1.0), "`gradient` must have rank 1"),
        (
            dict(gradient=ROWS),
            "`gradient` has 3 rows, but the splits produce 4",
        ),
        (dict(ref_splits=[0, BIG, MAX]), "sequence 1 of 2 rows"),
        (dict(ref_splits=[0]), "`gradient` has 4 rows, but .* produce 3"),
    ],
    "SequenceExpandAs": [
        (dict(values=1.0), "`values` must have rank 1 or more"),
        (dict(row_splits=[0, 1]), "`x` has 3 rows to repeat, but `y` has 1"),
    ],
    "SequencePad": [
        (dict(values=1.0), "`values` must have rank 1 or more"),
        (dict(maxlen=-2), "`maxlen` must be at least 0, or -1"),
        (dict(maxlen=1), "`maxlen` is 1, but sequence 1 has 2 rows"),
        (dict(maxlen=[3]), "`maxlen` must have rank 0"),
        (dict(pad_value=[0.0]), r"must have shape \[\] or \[4\], got \[1\]"),
        (dict(maxlen=BIG), "overflow"),
        (dict(values=WIDE, row_splits=[0, 0]), "overflow"),
    ],
    "SequencePool": [
        (dict(values=1.0), "`values` must have rank 1 or more"),
        (dict(pad_value=[0.0]), "`pad_value` must have rank 0"),
        (dict(combiner="median"), "median"),
        (dict(values=WIDE, row_splits=[0, 0]), "overflow"),
    ],
    "SequencePoolGradient": [
        (dict(gradient=1.0), "`gradient` must have rank 1"),
        (dict(gradient=ROWS), "`gradient` has 3 rows"),
        (dict(num_rows=-1), "`num_rows` must be at least 0, got -1"),
        (dict(num_rows=[3]), "`num_rows` must have rank 0"),
        (dict(row_splits=[0, 1, BIG], num_rows=BIG), "overflow"),
        (dict(combiner="max", index=[]), "`index` must have shape"),
        (
            dict(combiner="max", index=[[0] * 4, [0, 2, 2, 2]]),
            r"`index` has 0 for sequence 1 of rows \[1, 3\)",
        ),
        (
            dict(combiner="max", index=[[-1, 0, 0, 0], [2] * 4]),
            "`index` has -1 for sequence 0",
        ),
    ],
    "SequenceSoftmax": [
        (dict(values=1.0), "`values` must have rank 1 or more"),
    ],
    "SequenceSoftmaxGradient": [
        (dict(probabilities=1.0), "`probabilities` must have rank"),
        (dict(gradient=1.0), "`gradient` must have shape"),
        (dict(gradient=ROWS[:, :2]), r"got \[3,2\]"),
    ],
    "SequenceUnpad": [
        (dict(padded=[1.0]), "`padded` must have rank 2 or more"),
        (dict(lengths=2), "`lengths` must have rank 1"),
        (dict(lengths=[1]), "`lengths` has 1 elements, but `padded` has 2"),
        (dict(lengths=[1, -1]), r"`lengths\[1\]` must be in \[0, 3\], got -1"),
        (dict(lengths=[1, BIG]), r"`lengths\[1\]` must be in \[0, 3\], got 4"),
    ],
}
SPLITS_REFUSED = [
    (3, "`row_splits` must have rank 1"),
    ([SPLITS], "`row_splits` must have rank 1"),
    ([], "`row_splits` is empty"),
    ([1, 2, 3], r"`row_splits\[0\]` must be 0, got 1"),
    ([0, BIG, 3], rf"`row_splits\[1\]`={BIG} is greater than"),
    ([0, -9, 3], r"`row_splits\[0\]`=0 is greater than `row_splits\[1\]`=-9"),
]
for _name, _usual in CALLS.items():
    if "row_splits" in _usual and _name != "SequenceConcatGradient":
        REFUSED[_name] += [
            (dict(row_splits=splits), message)
            for splits, message in SPLITS_REFUSED
        ]
        if "Expand" not in _name:
            REFUSED[_name].append(
                (dict(row_splits=[0, 1, 4]), "there are 3 rows")
            )


@pytest.mark.parametrize(
    "name, changed, message",
    [(name, *case) for name, cases in REFUSED.items() for case in cases],
)
def test_errors_name_the_argument(name, changed, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        call(name, **changed_arguments(name, tf.float32, changed))


@pytest.mark.parametrize(
    "name, changed",
    [
        ("SequenceExpand", dict(values=WIDE, row_splits=[0], ref_splits=[0])),
        (
            "SequenceExpandGradient",
            dict(gradient=ROWS[:0], row_splits=[0, BIG], ref_splits=[0, 0]),
        ),
        ("SequenceExpandAs", dict(row_splits=[0, 1, BIG, MAX])),
        ("SequencePad", dict(values=[1.0], row_splits=[0, 1], maxlen=BIG)),
        (
            "SequenceUnpad",
            dict(padded=tf.zeros([1, BIG, 0]), lengths=[BIG]),
        ),
    ],
)
def test_huge_sizes_are_taken_or_refused(name, changed):
    try:
        call(name, **changed_arguments(name, tf.float32, changed))
    except (tf.errors.ResourceExhaustedError, tf.errors.InvalidArgumentError):
        pass


def test_splits_are_read_before_the_gradient_is_made():
    changed = dict(num_rows=2**60)
    with pytest.raises(tf.errors.InvalidArgumentError, match="ends at 3, but"):
        call(
            "SequencePoolGradient",
            **changed_arguments("SequencePoolGradient", tf.float32, changed),
        )
