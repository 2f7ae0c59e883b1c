"""Parts of LoDTensors: slices, concat, split, and changes of levels."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar.ragged import LoDTensor

OUTER = [0, 2, 3, 6]
INNER = [0, 2, 5, 7, 10, 12, 13]
LENGTHS = [[2, 1, 3], [2, 3, 2, 3, 2, 1]]
ROWS = np.arange(13.0, dtype=np.float32)
MIN, MAX = -(2**63), 2**63 - 1


def lists(levels):
    return [level.numpy().tolist() for level in levels]


def test_slices_of_each_level():
    x = LoDTensor.from_lengths(ROWS, LENGTHS)
    part = x.slice(0, 1, 3)
    assert lists(part.lod) == [[0, 1, 4], [0, 2, 5, 7, 8]]
    assert part.values.numpy().tolist() == ROWS[5:].tolist()
    part = x.slice(1, 1, 3)
    assert lists(part.lod) == [[0, 3, 5]]
    assert part.values.numpy().tolist() == ROWS[2:7].tolist()
    assert lists(x.slice(0, 1, 1).lod) == [[0], [0]]
    assert x.slice(0, 3, 3).values.shape == (0,)
    assert x.slice(0, 0, 3).to_list() == x.to_list()


def test_the_discussions_lengths_and_their_slices():
    # 3 | 3 1 2 | 3 2 4 1 2 3: one unit of three, of 3, 1 and 2 sequences.
    x = LoDTensor.from_lengths(
        np.arange(15), [[3], [3, 1, 2], [3, 2, 4, 1, 2, 3]]
    )
    assert lists(x.lod) == [[0, 3], [0, 3, 4, 6], [0, 3, 5, 9, 10, 12, 15]]
    assert lists(x.absolute()) == [
        [0, 15],
        [0, 9, 10, 15],
        [0, 3, 5, 9, 10, 12, 15],
    ]
    assert lists(x.slice(0, 0, 1).lengths()) == [
        [3],
        [3, 1, 2],
        [3, 2, 4, 1, 2, 3],
    ]
    assert x.slice(1, 0, 1).to_list() == [[[0, 1, 2], [3, 4], [5, 6, 7, 8]]]
    assert x.slice(1, 1, 2).to_list() == [[[9]]]
    assert x.slice(1, 1, 3).to_list() == [[[9]], [[10, 11], [12, 13, 14]]]
    assert x.slice(2, 4, 6).to_list() == [[10, 11], [12, 13, 14]]


def test_sub_lod_is_lengths_and_a_row_range():
    x = LoDTensor.from_lengths(np.arange(9), [[2, 1], [3, 2, 4]])
    lengths, rows = x.sub_lod(0, 1, 2)
    assert lists(lengths) == [[1], [4]]
    assert rows.numpy().tolist() == [5, 9]
    lengths, rows = x.sub_lod(0, 1, 1)
    assert lists(lengths) == [[], []]
    assert rows.numpy().tolist() == [5, 5]


def test_slices_that_are_refused():
    x = LoDTensor.from_lengths(ROWS, LENGTHS)
    with pytest.raises(
        ValueError, match="`level` must be in \\[0, 1\\], got 2"
    ):
        x.slice(2, 0, 1)
    with pytest.raises(
        ValueError, match="`level` must be in \\[0, 1\\], got -1"
    ):
        x.sub_lod(-1, 0, 1)
    for begin, end in ((0, 4), (2, 1), (-1, 1), (0, MAX), (MIN, 1)):
        message = rf"must ascend in \[0, 3\], got {begin} and {end}"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            x.slice(0, begin, end)
    with pytest.raises(TypeError, match="`begin` has dtype float32, but must"):
        x.slice(0, 0.5, 1)
    with pytest.raises(ValueError, match="`end` must have rank 0, got"):
        x.slice(0, 0, [1])


def test_slices_in_a_function_with_unknown_shapes():
    @tf.function(
        input_signature=[
            tf.TensorSpec(None),
            tf.TensorSpec(None, tf.int64),
            tf.TensorSpec([], tf.int32),
        ]
    )
    def part(values, lengths, end):
        return LoDTensor.from_lengths(values, [lengths]).slice(0, 1, end)

    x = part(tf.ones([3, 2]), tf.constant([1, 2], tf.int64), 2)
    assert lists(x.lod) == [[0, 2]]
    assert x.values.shape == (2, 2)
    for end in (0, 3):
        message = rf"must ascend in \[0, 2\], got 1 and {end}"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            part(tf.ones([3]), tf.constant([1, 2], tf.int64), end)


@pytest.mark.parametrize(
    "levels",
    [
        [[0, 2, 1]],
        [[0, 9]],
        [[MIN, MAX]],
        [[-1, 2]],
        [[2, -1]],
        [[0, 2], [0, 3]],
        [[0, 1], []],
        [[-1, 1], [0, 1, 2, 3]],
        [[1, 0], [0, 1, 2, 3]],
        [[]],
    ],
)
def test_slices_of_levels_that_do_not_nest(levels):
    levels = [np.array(level, np.int64) for level in levels]

    def part(*levels):
        units = tf.size(levels[0]) - 1
        return LoDTensor(ROWS[:3], levels).slice(0, 0, units).values

    for run in (part, tf.function(part)):
        with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
            run(*levels)
    # Offsets outside of the slice are not read.
    x = LoDTensor(ROWS[:3], [[0, 3, -9]])
    assert x.slice(0, 0, 1).to_list() == [[0, 1, 2]]


def test_concat_appends_units_at_every_level():
    pieces = [[[[1, 2], []], []], [], [[], [[3]], [[4, 5], [6]]]]
    xs = [LoDTensor.from_nested_lists(p, tf.int32, 2) for p in pieces]
    x = LoDTensor.concat(xs)
    assert x.to_list() == sum(pieces, [])
    assert lists(x.lod) == [[0, 2, 2, 2, 3, 5], [0, 2, 2, 3, 5, 6]]
    assert LoDTensor.concat(xs[:1]).to_list() == pieces[0]
    plain = LoDTensor.concat([LoDTensor([[1.0]], ()), LoDTensor([[2.0]], ())])
    assert plain.values.numpy().tolist() == [[1.0], [2.0]]


def test_concat_of_unknown_sizes():
    spec = LoDTensor.Spec([None, 2], tf.float32)

    @tf.function(input_signature=[spec, spec])
    def joined(x, y):
        return LoDTensor.concat([x, y])

    x = LoDTensor.from_lengths(tf.ones([3, 2]), [[1, 2]])
    y = LoDTensor.from_lengths(tf.zeros([0, 2]), [[0]])
    assert lists(joined(x, y).lod) == [[0, 1, 3, 3]]
    assert lists(joined(y, x).lod) == [[0, 0, 1, 3]]


def test_concat_refuses_different_levels():
    x = LoDTensor.from_lengths([1.0], [[1]])
    with pytest.raises(TypeError, match=r"`tensors\[1\]` must be a LoDTensor"):
        LoDTensor.concat([x, x.to_ragged()])
    x = LoDTensor.from_lengths([1.0], [[1]])
    for y, error, message in (
        (x.append_lod([0, 1]), ValueError, "has 2 levels, but"),
        (LoDTensor.from_lengths([1], [[1]]), TypeError, "has dtype int32, but"),
        (
            LoDTensor.from_lengths([[1.0]], [[1]]),
            ValueError,
            r"has rows of shape \(1,\), but",
        ),
    ):
        with pytest.raises(error, match=r"`tensors\[1\]` " + message):
            LoDTensor.concat([x, y])
    with pytest.raises(ValueError, match="`tensors` must have at least one"):
        LoDTensor.concat([])


@pytest.mark.parametrize(
    "units, places, sizes",
    [
        (5, 2, [2, 3]),
        (7, 3, [2, 2, 3]),
        (2, 3, [1, 1]),
        (3, 1, [3]),
        (3, 3, [1, 1, 1]),
        (0, 2, [0, 0]),
    ],
)
def test_split_gives_the_remainder_to_the_last_part(units, places, sizes, rng):
    lengths = rng.integers(3, size=units)
    x = LoDTensor.from_lengths(np.arange(lengths.sum()), [lengths])
    parts = x.split(places)
    assert [part.lod[0].shape[0] - 1 for part in parts] == sizes
    assert LoDTensor.concat(parts).to_list() == x.to_list()
    rows = LoDTensor(np.arange(units), ()).split(places)
    assert [part.values.shape[0] for part in rows] == sizes

    # A graph that does not know the units has a part for every position.
    @tf.function(input_signature=[LoDTensor.Spec([None], tf.int64)])
    def graph(x):
        return [part.to_ragged() for part in x.split(places)]

    for got, want in zip(graph(x), parts, strict=False):
        assert got.to_list() == want.to_list()
    assert [part.nrows() for part in graph(x)[len(parts) :]] == [0] * (
        places - len(parts)
    )
    with pytest.raises(ValueError, match="`num_places` must be .* got 0"):
        x.split(0)


def test_reset_lod():
    x = LoDTensor.from_lengths(ROWS, LENGTHS)
    other = LoDTensor.from_lengths(np.zeros(13), [[6, 7]])
    for lod in ([[0, 6, 13]], other, other.to_ragged()):
        assert lists(x.reset_lod(lod).lod) == [[0, 6, 13]]
    assert lists(x.reset_lod([OUTER, INNER]).lod) == [OUTER, INNER]
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="ends at 6, but there are 13 rows"
    ):
        x.reset_lod([[0, 6]])
    with pytest.raises(ValueError, match="`lod` must have at least one"):
        x.reset_lod(LoDTensor([1.0], ()))


def test_append_lod():
    x = LoDTensor.from_lengths(ROWS[:6], [[2, 3, 1]])
    assert lists(x.append_lod([0, 1, 2, 2, 4, 5, 6]).lengths()) == [
        [2, 3, 1],
        [1, 1, 0, 2, 1, 1],
    ]
    assert lists(LoDTensor(ROWS, ()).append_lod([0, 13]).lod) == [[0, 13]]
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`lod\[0\]` ends at 6, but there are 2 units in `lod\[1\]`",
    ):
        x.append_lod([0, 3, 6])


def test_gradient_flows_through_parts():
    values = tf.constant([1.0, 2.0, 3.0, 4.0], tf.float64)

    def parts(values):
        x = LoDTensor.from_lengths(values, [[1, 1], [2, 2]])
        a, b = x.split(2)
        y = LoDTensor.concat([b, b, a]).reset_lod([[0, 6]])
        return y.values * y.slice(0, 0, 1).values

    theory, numeric = tf.test.compute_gradient(parts, [values])
    np.testing.assert_allclose(theory, numeric, rtol=1e-6, atol=1e-8)


NESTED = [[[1, 2], []], [], [[3], [4, 5, 6]]]


def test_units_of_every_level_are_those_of_lists():
    x = LoDTensor.from_nested_lists(NESTED, tf.int64, 2)
    assert len(x) == 3
    assert [unit.to_list() for unit in x] == NESTED
    for i in range(-3, 3):
        assert x[i].to_list() == NESTED[i]
        assert x[tf.constant(i)].to_list() == NESTED[i]
        assert x[np.int64(i)].to_list() == NESTED[i]
    inner = x.level(1)
    sequences = [sequence for unit in NESTED for sequence in unit]
    assert len(inner) == 4
    assert [unit.numpy().tolist() for unit in inner] == sequences
    assert inner[3].numpy().tolist() == [4, 5, 6]
    assert isinstance(inner[3], tf.Tensor)
    rows = LoDTensor(x.values, ())
    assert (len(rows), rows[-1], [*rows][1]) == (6, 6, 2)
    assert rows[1:3].values.numpy().tolist() == [2, 3]
    with pytest.raises(
        ValueError, match="`level` must be in \\[0, 1\\], got 2"
    ):
        x.level(2)


bounds = [None, *range(-5, 6)]


def test_slices_are_those_of_lists():
    x = LoDTensor.from_nested_lists(NESTED, tf.int64, 2)
    spec = LoDTensor.Spec([None], tf.int64, 2)

    @tf.function(input_signature=[spec, *[tf.TensorSpec([], tf.int64)] * 2])
    def cut(x, begin, end):
        return x[begin:end], x[:end], x[begin:]

    for begin in bounds:
        for end in bounds:
            assert x[begin:end].to_list() == NESTED[begin:end]
            if begin is not None and end is not None:
                got = cut(x, begin, end)
                assert [y.to_list() for y in got] == [
                    NESTED[begin:end],
                    NESTED[:end],
                    NESTED[begin:],
                ]


def test_units_in_a_graph_that_does_not_know_how_many():
    spec = LoDTensor.Spec([None], tf.int64, 2)
    count = [tf.TensorSpec([], tf.int64)]

    @tf.function(input_signature=[spec, *count])
    def unit(x, i):
        return x[i]

    @tf.function(input_signature=[spec])
    def last(x):
        return x[-1]

    x = LoDTensor.from_nested_lists(NESTED, tf.int64, 2)
    for i in range(-3, 3):
        assert unit(x, i).to_list() == NESTED[i]
    assert last(x).to_list() == NESTED[-1]
    for i in (-4, 3):
        with pytest.raises(tf.errors.InvalidArgumentError):
            unit(x, i)

    @tf.function(input_signature=[spec])
    def counted(x):
        return len(x)

    @tf.function(input_signature=[spec])
    def walked(x):
        return [y.values for y in x]

    for function in (counted, walked):
        with pytest.raises(TypeError, match="graph does not know the `len`"):
            function(x)

    @tf.function
    def known(x):
        return [tf.reduce_sum(y.values) for y in x], len(x)

    sums, units = known(x)
    assert ([int(s) for s in sums], units) == ([3, 0, 18], 3)


def test_the_gradient_of_a_unit(rng):
    def second(rows):
        return LoDTensor.from_lengths(rows, [[1, 3, 1]])[1] ** 2

    theory, numeric = tf.test.compute_gradient(
        second, [tf.constant(rng.normal(size=(5, 2)))]
    )
    np.testing.assert_allclose(theory, numeric, rtol=1e-6, atol=1e-8)


def test_invalid_units():
    x = LoDTensor.from_nested_lists(NESTED, tf.int64, 2)
    for i in (3, -4, tf.constant(3)):
        with pytest.raises(IndexError, match="no unit -?[34], only 3"):
            x[i]
    for key in ("a", None, 1.0, True, (0, 1), ...):
        with pytest.raises(
            TypeError, match="must be an integer or a slice, got"
        ):
            x[key]
    with pytest.raises(TypeError, match="`key` has dtype float32"):
        x[tf.constant(1.0)]
    with pytest.raises(TypeError, match="`begin` has dtype float32"):
        x[0.5:]
    with pytest.raises(ValueError, match="must be 1, got 2"):
        x[::2]
    empty = LoDTensor.from_lengths(tf.zeros([0, 2]), [np.zeros(0, np.int64)])
    assert (len(empty), [*empty], len(empty[:3])) == (0, [], 0)
    with pytest.raises(IndexError, match="no unit 0, only 0"):
        empty[0]
    with pytest.raises(TypeError, match="no truth value"):
        bool(x)
