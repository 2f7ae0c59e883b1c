"""Tensors packed into one, against a NumPy reference."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar.ops import packing

DTYPES = [
    *("half", "bfloat16", "float", "double", "int8", "int16", "int32"),
    *("int64", "uint8", "uint16", "uint32", "uint64", "bool"),
]


def specs_of(parts):
    return [
        [tf.TensorSpec([None, *x.shape[1:]][: x.ndim], x.dtype) for x in part]
        for part in parts
    ]


def reference(parts):
    """Returns the words of each part, without padding."""
    words = []
    for part in parts:
        firsts = [x.shape[0] if x.ndim else 1 for x in part]
        data = np.array(firsts, np.int64).tobytes()
        for x in part:
            data += x.tobytes() + bytes(-x.nbytes % 8)
        words.append(np.frombuffer(data, np.int64))
    return words


def examples(rng):
    """Returns two parts with uneven, empty and scalar tensors of all dtypes."""
    parts = []
    for count in (0, 1, 5):
        part = [np.float32(count), rng.integers(0, 9, [count, 0, 3])]
        for name in DTYPES:
            values = rng.integers(0, 2, [count, 3])
            part.append(values.astype(tf.as_dtype(name).as_numpy_dtype))
        parts.append(part)
    return parts


@pytest.mark.parametrize("graph", [False, True])
def test_unpacked_tensors_are_equal(graph):
    parts = examples(np.random.default_rng(3))
    specs = specs_of(parts)

    def both(*tensors):
        size = len(parts[0])
        given = [
            tensors[first : first + size]
            for first in range(0, len(tensors), size)
        ]
        packed = packing.pack(given)
        return packed, packing.unpack(packed, specs)

    if graph:
        unknown = [
            tf.TensorSpec(None, spec.dtype) for part in specs for spec in part
        ]
        both = tf.function(both, input_signature=unknown, autograph=False)
    packed, found = both(*(tf.constant(x) for part in parts for x in part))
    words = reference(parts)
    assert packed.shape == (3, max(map(len, words)))
    for row, expected in zip(packed.numpy(), words):
        np.testing.assert_array_equal(row[: len(expected)], expected)
        assert not row[len(expected) :].any()
    for tensors, part in zip(found, parts, strict=True):
        for tensor, x in zip(tensors, part, strict=True):
            assert tensor.dtype == x.dtype and tensor.shape == x.shape
            np.testing.assert_array_equal(tensor, x)


def test_width_is_that_of_words():
    parts = [[np.zeros(n, np.int64), np.zeros([n, 3], np.half)] for n in (0, 4)]
    specs = specs_of(parts)[0]
    counts = tf.constant([[0, 0], [4, 4]], tf.int64)
    np.testing.assert_array_equal(packing.words(specs, counts), [2, 2 + 4 + 3])
    assert packing.pack(parts).shape == (2, 9)
    wider = packing.pack(parts, 12)
    assert wider.shape == (2, 12)
    np.testing.assert_array_equal(
        packing.unpack(wider, [specs] * 2)[1][0], [0] * 4
    )


def test_refuses_a_part_that_does_not_fit():
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="`width` is 3, but a part needs 4"
    ):
        packing.pack([[np.zeros(3, np.int64)]], 3)


@pytest.mark.parametrize(
    ("words", "shape", "error"),
    [
        ([-1, 0], [None], "-1 as the first dimension of tensor 0"),
        ([2, 0, 0], [1], "2 as the first dimension of tensor 0"),
        ([2, 0, 0], [], "2 as the first dimension of tensor 0"),
        ([3, 0, 0], [None], "has 3 int64 per part, which is too little"),
        ([2**62, 0, 0], [None, 2**40], "which is too little"),
        ([], [None], "which is too little"),
        ([2**62], [None, 0], None),
        ([1, 7], [None, None], "more than the first dimension is unknown"),
        ([1, 7], None, "more than the first dimension is unknown"),
    ],
)
def test_refuses_what_was_not_packed(words, shape, error):
    spec = tf.TensorSpec(shape, tf.int64)
    packed = tf.constant([words], tf.int64)
    if error is None:
        assert packing.unpack(packed, [[spec]])[0][0].shape == (2**62, 0)
        return
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        packing.unpack(packed, [[spec]])
    assert error in str(caught.value)


def test_refuses_other_numbers_of_parts():
    spec = tf.TensorSpec([None], tf.int64)
    with pytest.raises(
        (tf.errors.InvalidArgumentError, ValueError), match="must have 2 rows"
    ):
        packing.unpack(tf.zeros([1, 3], tf.int64), [[spec]] * 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not a multiple"):
        packing.pack([[tf.zeros(1)], [tf.zeros(1), tf.zeros(1)]])


@pytest.mark.parametrize(
    ("shapes", "alone"),
    [
        ([], []),
        ([[None], [None]], []),
        ([[None, 128]], [0]),
        ([[None, 127]], []),
        ([[None], [None, 2, 64], [], [2, 400]], [1]),
        ([[None, 128], [None], [None, 128]], []),
    ],
)
def test_wide_rows_of_one_table_are_not_packed(shapes, alone):
    given = [
        np.full([5 if size is None else size for size in shape], i, np.float32)
        for i, shape in enumerate(shapes)
    ]

    @tf.function(
        input_signature=[tf.TensorSpec(shape, tf.float32) for shape in shapes],
        autograph=False,
    )
    def both(*tensors):
        parcel = packing.Parcel.of(tensors)
        assert [*parcel.rows] == alone
        assert (parcel.packed is None) == (len(alone) == len(shapes))
        found = parcel.unpack()
        assert [x.shape.as_list() for x in found] == shapes
        return found

    for x, expected in zip(both(*given), given, strict=True):
        np.testing.assert_array_equal(x, expected)
