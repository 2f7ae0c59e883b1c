"""lodestar.ragged.LoDTensor: constructors, conversions and errors."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar.ragged import LoDTensor

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
def test_every_form_of_offsets_gives_the_same_tensor(
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


@pytest.mark.parametrize(
    "levels, message",
    [
        ([[1, 13]], r"`lod\[0\]\[0\]` must be 0, got 1"),
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
    with pytest.raises(ValueError, match="`order` must be .* got 'sideways'"):
        LoDTensor.from_offsets(ROWS, [[0, 13]], order="sideways")
    with pytest.raises(
        ValueError, match="`levels` must have at least one level"
    ):
        LoDTensor.from_offsets(ROWS, [])
    with pytest.raises(ValueError, match=r"`lengths\[0\]` must have rank 1"):
        LoDTensor.from_lengths(ROWS, [13])
    with pytest.raises(TypeError, match=r"`levels\[0\]` has dtype float32"):
        LoDTensor.from_offsets(ROWS, [[0.0, 13.0]])
    with pytest.raises(ValueError, match="got a scalar"):
        LoDTensor.from_offsets(1.0, [[0, 1]])
    with pytest.raises(TypeError, match="must be a RaggedTensor, got"):
        LoDTensor.from_ragged(ROWS)
    with pytest.raises(TypeError, match="`values` must be a Tensor, got"):
        LoDTensor.from_lengths(tf.ragged.constant([[1.0]]), [[1]])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`lengths\[0\]\[1\]` must be at least 0, got -1",
    ):
        LoDTensor.from_lengths(ROWS, [[14, -1]])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`lod\[0\]\[1\]`=6 must be an offset of `lod\[1\]`",
    ):
        LoDTensor.from_offsets(ROWS, [[0, 6, 13], INNER], absolute=True)


@pytest.mark.parametrize(
    "levels, message",
    [
        ([[0, 13], [0, 13, 5, 13]], r"`lod\[1\]\[1\]`=13 is greater than"),
        ([[0, 5, 2, 13], INNER], r"`lod\[0\]\[2\]`=2 must be an offset of"),
        ([[0, 12], INNER], r"`lod\[0\]\[1\]`=12 must be an offset of"),
        ([[2, 13], INNER], r"`lod\[0\]\[0\]` must be 0, got 1"),
        ([[0, 2**62], INNER], r"`lod\[0\]\[1\]`=4611686018427387904 must be"),
        ([OUTER, []], None),
        ([[], [0, 13]], r"`lod\[0\]` is empty"),
        ([[0, 12], [0, 12]], r"`lod\[1\]` ends at 12, but there are 13 rows"),
    ],
)
def test_bad_absolute_offsets_are_named(levels, message):
    levels = [np.array(level, np.int64) for level in levels]
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        LoDTensor.from_offsets(ROWS, levels, absolute=True)


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_ragged_splits_of_either_dtype(dtype):
    ragged = tf.ragged.constant(
        [[[1.0], []], [], [[2.0, 3.0]]], row_splits_dtype=dtype
    )
    x = LoDTensor.from_ragged(ragged)
    assert [level.dtype for level in x.lod] == [tf.int64] * 2
    assert x.to_list() == ragged.to_list()


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_ragged_splits_are_checked(dtype):
    splits = tf.constant([0, 9], dtype)
    ragged = tf.RaggedTensor.from_row_splits(ROWS, splits, validate=False)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="ends at 9, but there are 13 rows"
    ):
        LoDTensor.from_ragged(ragged)


def test_constructor_keeps_offsets():
    assert lod(LoDTensor([1.0, 2.0], [[0, 1, 2]])) == [[0, 1, 2]]
    assert lod(LoDTensor([1.0], [np.array([0, 1], np.int32)])) == [[0, 1]]
    assert LoDTensor([1.0], ()).num_levels == 0
    with pytest.raises(TypeError, match=r"`lod\[0\]` has dtype float32"):
        LoDTensor([1.0], [[0.0, 1.0]])
    # Neither truncated to integers nor wrapped around.
    for dtype in ("float32", "float64", "uint64"):
        with pytest.raises(TypeError, match=rf"`lod\[0\]` has dtype {dtype}"):
            LoDTensor([1.0], [np.array([0, 1], dtype)])
    assert (
        LoDTensor([1.0], [np.array([0, 1], np.int8)]).lod[0].dtype == tf.int64
    )
    lengths = LoDTensor.from_lengths([1.0][:0], [np.array([])])
    assert lengths.lod[0].numpy().tolist() == [0]
    with pytest.raises(ValueError, match=r"`lod\[0\]` must have rank 1"):
        LoDTensor([1.0], [0])
    with pytest.raises(ValueError, match="got a scalar"):
        LoDTensor(1.0, [[0, 1]])


@pytest.mark.parametrize("num_levels", [1, 2, 3, 4])
def test_absolute_offsets_of_random_levels(num_levels, rng):
    for _ in range(30):
        units, lengths = rng.integers(4), []
        for _ in range(num_levels):
            lengths.append(rng.integers(3, size=units))
            units = lengths[-1].sum()
        x = LoDTensor.from_lengths(np.zeros([units]), lengths)
        rows = np.arange(units + 1)
        for k in range(num_levels - 1, -1, -1):
            rows = rows[x.lod[k].numpy()]
            assert x.absolute()[k].numpy().tolist() == rows.tolist()


def test_absolute_offsets_of_one_unit():
    x = LoDTensor.from_lengths(ROWS[:3], [[1], [3]])
    assert [level.numpy().tolist() for level in x.absolute()] == [[0, 3]] * 2
    x = LoDTensor.from_lengths(ROWS[:0], [[1], [0]])
    assert [level.numpy().tolist() for level in x.absolute()] == [[0, 0]] * 2


def test_empty_units_that_no_absolute_unit_holds():
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`lod\[0\]\[0\]` must be 0, got 2",
    ):
        LoDTensor.from_offsets(ROWS[:0], [[0], [0, 0, 0]], absolute=True)


def test_no_rows_and_no_units():
    for lengths in ([[]], [[], []], [[0]], [[0, 0], []], [[2], [0, 0]]):
        x = LoDTensor.from_lengths(np.zeros([0, 3], np.float32), lengths)
        assert [level.numpy().tolist() for level in x.lengths()] == lengths
        assert x.absolute()[-1].numpy()[-1] == 0
        back = LoDTensor.from_ragged(x.to_ragged())
        assert lod(back) == lod(x)
        assert back.values.shape == (0, 3)


def test_gradient_flows_through_the_conversions():
    values = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(values)
        x = LoDTensor.from_lengths(values, [[1, 2]]).to_ragged()
        y = tf.reduce_sum(LoDTensor.from_ragged(x).slice(0, 1, 2).values ** 2)
    assert tape.gradient(y, values).numpy().tolist() == [0.0, 4.0, 6.0]


def test_repr_shows_the_nesting():
    x = LoDTensor.from_lengths(ROWS[:6], [[2, 0, 1], [3, 1, 2]])
    assert repr(x) == (
        "<LoDTensor [[[0., 1., 2.], [3.]], [], [[4., 5.]]] levels=2>"
    )
    strings = LoDTensor.from_lengths(["a ,", "b]"], [[2, 0]])
    assert repr(strings) == "<LoDTensor [[b'a ,', b'b]'], []] levels=1>"
    assert repr(LoDTensor([0.1, 2.0], ())) == "<LoDTensor [0.1, 2.] levels=0>"
    rows = LoDTensor.from_lengths([[1, 2], [3, 4]], [[1, 1]])
    assert repr(rows) == "<LoDTensor [[[1, 2]], [[3, 4]]] levels=1>"


def test_repr_is_cut():
    x = LoDTensor.from_lengths(tf.range(9), [[8, 1]])
    assert repr(x) == "<LoDTensor [[0, 1, 2, ..., 5, 6, 7], [8]] levels=1>"
    x = LoDTensor.from_lengths(tf.range(9000), [[1] * 9000])
    assert repr(x) == (
        "<LoDTensor [[0], [1], [2], ..., [8997], [8998], [8999]] levels=1>"
    )
    wide = LoDTensor.from_lengths(tf.zeros([2, 30, 30]), [[2]])
    assert len(repr(wide)) < 1000


@pytest.mark.parametrize("offsets", [[], [5], [0, 99], [-9, 1, -7], [2, 0]])
def test_repr_accepts_offsets_that_do_not_nest(offsets):
    assert "levels=1" in repr(
        LoDTensor([1.0, 2.0], [offsets or np.zeros(0, int)])
    )
    assert "levels=2" in repr(LoDTensor([1.0], [[0, 2**62], [0, 1]]))


def test_repr_in_a_graph():
    @tf.function
    def graph(x):
        return tf.constant(repr(x))

    x = LoDTensor.from_lengths([1.0], [[1]])
    assert b"levels=1" in graph(x).numpy()


def test_lengths_that_all_count_rows():
    x = LoDTensor.from_lengths(
        np.arange(15), [[9, 1, 5], [3, 2, 4, 1, 2, 3]], absolute=True
    )
    assert [level.numpy().tolist() for level in x.lengths()] == [
        [3, 1, 2],
        [3, 2, 4, 1, 2, 3],
    ]
    assert x.absolute()[0].numpy().tolist() == [0, 9, 10, 15]
    # With one level both are the same; empty units belong to the unit after
    # them.
    x = LoDTensor.from_lengths([1, 2], [np.array([0, 2, 0])], absolute=True)
    assert lod(x) == [[0, 0, 2, 2]]
    x = LoDTensor.from_lengths([1, 2], [[1, 1], [0, 1, 0, 1, 0]], absolute=True)
    assert x.lengths()[0].numpy().tolist() == [2, 3]


@pytest.mark.parametrize(
    "lengths, message",
    [
        (
            [[8, 7], [3, 2, 4, 1, 2, 3]],
            r"`lod\[0\]\[1\]`=8 must be an offset of",
        ),
        (
            [[9, 1, 4], [3, 2, 4, 1, 2, 3]],
            r"`lod\[0\]\[3\]`=14 must be an offset of",
        ),
        ([[9, 1, 4], [3, 2, 4, 1, 2, 2]], "ends at 14, but there are 15 rows"),
        (
            [[9, -1, 7], [9, 6]],
            r"`lengths\[0\]\[1\]` must be at least 0, got -1",
        ),
        ([[], [9, 6]], r"`lod\[0\]\[0\]`=0 must be an offset"),
        ([[2**63 - 1, 1], [9, 6]], r"`lod\[0\]\[1\]`=9223372036854775807 must"),
    ],
)
def test_lengths_of_rows_that_do_not_nest(lengths, message):
    lengths = [np.array(level, np.int64) for level in lengths]

    def build(*lengths):
        return LoDTensor.from_lengths(np.arange(15), lengths, absolute=True)

    for run in (build, tf.function(build)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            run(*lengths)


def test_one_level_repeated_under_another():
    rows = np.arange(6.0)
    one = LoDTensor.from_offsets(rows, [[0, 2, 3, 6]])
    # Innermost level first; upper levels count rows.
    two = LoDTensor.from_offsets(
        rows, [[0, 2, 3, 6], [0, 6]], order="inner_first", absolute=True
    )
    assert lod(one) == [[0, 2, 3, 6]]
    assert lod(two) == [[0, 3], [0, 2, 3, 6]]
    assert two.level(1).to_list() == one.to_list()
    assert two.to_list() == [one.to_list()]
    with pytest.raises(tf.errors.InvalidArgumentError, match="ends at 6, but"):
        LoDTensor.from_offsets(rows, [[0, 2, 3, 6], [0, 6]])


def test_sequences_of_images(rng):
    images = rng.normal(size=(6, 32, 32)).astype(np.float32)
    x = LoDTensor.from_lengths(images, [[3, 1, 2]])
    assert [unit.shape.as_list() for unit in x] == [
        [3, 32, 32],
        [1, 32, 32],
        [2, 32, 32],
    ]
    assert x.to_ragged().shape.as_list() == [3, None, 32, 32]
    np.testing.assert_array_equal(x[2], images[4:])
