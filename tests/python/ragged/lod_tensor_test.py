"""lodestar.LoDTensor: constructors, conversions, what they refuse."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar import LoDTensor

OUTER = [0, 2, 3, 6]
INNER = [0, 2, 5, 7, 10, 12, 13]
ABSOLUTE_OUTER = [0, 5, 7, 13]
LENGTHS = [[2, 1, 3], [2, 3, 2, 3, 2, 1]]
ROWS = np.arange(13.0, dtype=np.float32)


def lod(x):
    return [level.numpy().tolist() for level in x.lod]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    "levels, order, absolute",
    [
        ([OUTER, INNER], "outer_first", False),
        ([INNER, OUTER], "inner_first", False),
        ([ABSOLUTE_OUTER, INNER], "outer_first", True),
        ([INNER, ABSOLUTE_OUTER], "inner_first", True),
    ],
)
def test_every_way_to_hold_offsets_gives_one_tensor(
    levels, order, absolute, dtype
):
    levels = [np.array(level, dtype) for level in levels]
    x = LoDTensor.from_offsets(ROWS, levels, order=order, absolute=absolute)
    assert lod(x) == [OUTER, INNER]
    assert [level.numpy().tolist() for level in x.lengths()] == LENGTHS
    assert [level.numpy().tolist() for level in x.absolute()] == [
        ABSOLUTE_OUTER,
        INNER,
    ]
    assert x.num_levels == 2


def test_lengths():
    x = LoDTensor.from_lengths(ROWS, LENGTHS)
    assert lod(x) == [OUTER, INNER]
    assert LoDTensor.from_lengths(np.zeros([0, 3]), [[]]).lod[0].numpy() == [0]


def test_ragged_and_back_is_lossless():
    ragged = tf.ragged.constant([[[1, 2], []], [], [[3]]], dtype=tf.int64)
    x = LoDTensor.from_ragged(ragged)
    assert lod(x) == [[0, 2, 2, 3], [0, 2, 2, 3]]
    assert x.to_ragged().to_list() == ragged.to_list()


def test_conversion_copies_no_values():
    values = tf.random.normal([1000, 8])
    ragged = tf.RaggedTensor.from_row_lengths(values, [400, 600])
    x = LoDTensor.from_ragged(ragged)
    address = values.numpy().__array_interface__["data"]
    for same in (x.values, x.to_ragged().flat_values):
        assert same.numpy().__array_interface__["data"] == address


def test_slices_of_each_level():
    x = LoDTensor.from_lengths(ROWS, LENGTHS)
    part = x.slice(0, 1, 3)
    assert lod(part) == [[0, 1, 4], [0, 2, 5, 7, 8]]
    assert part.values.numpy().tolist() == ROWS[5:].tolist()
    part = x.slice(1, 1, 3)
    assert lod(part) == [[0, 3, 5]]
    assert part.values.numpy().tolist() == ROWS[2:7].tolist()
    assert lod(x.slice(0, 1, 1)) == [[0], [0]]
    with pytest.raises(ValueError, match="`level` is 2, wanted 0 to 1"):
        x.slice(2, 0, 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="end <= units"):
        x.slice(0, 0, 4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="begin <= end"):
        x.slice(0, 2, 1)


@pytest.mark.parametrize(
    "levels, message",
    [
        ([[1, 13]], r"`lod\[0\]\[0\]` is 1, wanted 0"),
        (
            [[0, 5, 4, 13]],
            r"`lod\[0\]\[1\]`=5 is greater than `lod\[0\]\[2\]`=4",
        ),
        ([[0, 12]], r"`lod\[0\]` ends at 12, but there are 13 rows"),
        ([[0, 2], [0, 13]], r"but there are 1 units in `lod\[1\]`"),
        ([[]], r"`lod\[0\]` is empty"),
    ],
)
def test_bad_offsets_are_named_eager_and_in_a_graph(levels, message):
    levels = [np.array(level, np.int64) for level in levels]
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        LoDTensor.from_offsets(ROWS, levels)

    @tf.function(
        input_signature=[[tf.TensorSpec([None], tf.int64) for _ in levels]]
    )
    def graph(levels):
        return LoDTensor.from_offsets(ROWS, levels).values

    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        graph(levels)


def test_what_python_refuses():
    with pytest.raises(ValueError, match="`order` is 'sideways'"):
        LoDTensor.from_offsets(ROWS, [[0, 13]], order="sideways")
    with pytest.raises(ValueError, match="`levels` is empty"):
        LoDTensor.from_offsets(ROWS, [])
    with pytest.raises(ValueError, match=r"`lengths\[0\]` must have rank 1"):
        LoDTensor.from_lengths(ROWS, [13])
    with pytest.raises(TypeError, match=r"`levels\[0\]` has dtype float32"):
        LoDTensor.from_offsets(ROWS, [[0.0, 13.0]])
    with pytest.raises(ValueError, match="found a scalar"):
        LoDTensor.from_offsets(1.0, [[0, 1]])
    with pytest.raises(TypeError, match="wanted a RaggedTensor"):
        LoDTensor.from_ragged(ROWS)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"`lengths\[0\]\[1\]` is -1"
    ):
        LoDTensor.from_lengths(ROWS, [[14, -1]])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="is not an offset of"
    ):
        LoDTensor.from_offsets(ROWS, [[0, 6, 13], INNER], absolute=True)


def test_function_dataset_and_repr():
    x = LoDTensor.from_lengths([1.0, 2.0, 3.0], [[2, 1]])
    assert repr(x) == "<LoDTensor [[1.0, 2.0], [3.0]] levels=1>"

    @tf.function
    def twice(x):
        return LoDTensor(x.values * 2, x.lod)

    assert twice(x).to_ragged().to_list() == [[2.0, 4.0], [6.0]]
    dataset = tf.data.Dataset.range(1, 3).map(
        lambda n: LoDTensor.from_lengths(tf.ones([n]), [[n]])
    )
    assert [e.to_ragged().to_list() for e in dataset] == [[[1.0]], [[1.0, 1.0]]]
