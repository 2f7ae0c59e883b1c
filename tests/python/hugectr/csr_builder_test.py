"""lodestar.hugectr.CsrBuilder."""

import numpy as np
import pytest

from lodestar.hugectr import CsrBuilder, from_csr


def test_rows_by_value():
    builder = CsrBuilder(num_rows=4, max_values=5)
    for row in ([4, 5], [], [6, 7, 8], []):
        builder.new_row()
        for value in row:
            builder.push_back(value)
    offsets, values = builder.build()
    assert offsets.tolist() == [0, 2, 2, 5, 5]
    assert values.tolist() == [4, 5, 6, 7, 8]
    assert offsets.dtype == values.dtype == np.int64
    assert (builder.num_rows, builder.num_values) == (4, 5)
    x, y = from_csr(offsets, values, num_slots=2)
    assert (x.to_list(), y.to_list()) == ([[4, 5], [6, 7, 8]], [[], []])


def test_nothing_begun():
    offsets, values = CsrBuilder(0, 0, np.uint32).build()
    assert (offsets.tolist(), values.tolist()) == ([0], [])
    assert values.dtype == np.uint32


def test_rolling_back_and_starting_over():
    builder = CsrBuilder(max_values=3)
    builder.new_row()
    builder.push_back(1)
    builder.set_check_point()
    builder.push_back(2)
    builder.new_row()
    builder.push_back(3)
    builder.new_row()
    for _ in range(2):
        builder.roll_back()
        assert [x.tolist() for x in builder.build()] == [[0, 1], [1]]
    builder.push_back(3)  # of the row before the check point
    assert [x.tolist() for x in builder.build()] == [[0, 2], [1, 3]]
    builder.reset()
    assert [x.tolist() for x in builder.build()] == [[0], []]
    # It has no check point any more.
    builder.new_row()
    builder.push_back(4)
    builder.roll_back()
    assert [x.tolist() for x in builder.build()] == [[0], []]


@pytest.mark.parametrize("seed", range(3))
def test_samples_of_several_slots_are_rolled_back_as_a_whole(seed):
    rng = np.random.default_rng(seed)
    builder, wanted = CsrBuilder(), []
    for _ in range(50):
        builder.set_check_point()
        rows = [rng.integers(0, 9, rng.integers(3)).tolist() for _ in range(4)]
        cut = int(rng.integers(5))
        for row in rows[:cut]:
            builder.new_row()
            for value in row:
                builder.push_back(value)
        if cut < 4:
            builder.roll_back()
        else:
            wanted += rows
    offsets, values = builder.build()
    np.testing.assert_array_equal(np.diff(offsets), [len(r) for r in wanted])
    assert values.tolist() == sum(wanted, [])


def test_built_arrays_do_not_change():
    builder = CsrBuilder()
    builder.new_row()
    built = builder.build()
    builder.push_back(1)
    assert [x.tolist() for x in built] == [[0, 0], []]


def test_out_of_bound():
    builder = CsrBuilder(num_rows=1, max_values=2, dtype=np.int32)
    with pytest.raises(IndexError, match="Value 7 has no row"):
        builder.push_back(7)
    builder.new_row()
    builder.push_back(7)
    builder.push_back(8)
    with pytest.raises(
        IndexError,
        match="Value 9 of row 0 exceeds `max_values`=2",
    ):
        builder.push_back(9)
    # A refused call changes nothing.
    assert [x.tolist() for x in builder.build()] == [[0, 2], [7, 8]]


def test_the_last_call_of_hugectrs_loop_closes_the_last_row():
    builder = CsrBuilder(num_rows=4, max_values=9)
    for row in ([4], [], [6, 7], [8]):
        builder.new_row()
        for value in row:
            builder.push_back(value)
        if row == [6, 7]:
            builder.set_check_point()
    open_ = [x.tolist() for x in builder.build()]
    builder.new_row()
    assert builder.num_rows == 4
    assert [x.tolist() for x in builder.build()] == open_
    assert open_ == [[0, 1, 1, 3, 4], [4, 6, 7, 8]]
    with pytest.raises(
        IndexError, match="`num_rows` is 4, .*: row 4 cannot be started"
    ):
        builder.new_row()
    with pytest.raises(
        IndexError, match="Value 9 has no row: `num_rows` is 4, and the last"
    ):
        builder.push_back(9)
    assert [x.tolist() for x in builder.build()] == open_
    builder.roll_back()  # also reopens the last row
    assert [x.tolist() for x in builder.build()] == [[0, 1, 1, 3], [4, 6, 7]]
    builder.new_row()
    builder.new_row()
    builder.reset()
    builder.new_row()
    assert builder.num_rows == 1


def test_a_closing_call_of_no_rows():
    builder = CsrBuilder(num_rows=0)
    builder.new_row()
    with pytest.raises(IndexError, match="Value 1 has no row. Call"):
        builder.push_back(1)
    assert [x.tolist() for x in builder.build()] == [[0], []]


def test_values_that_the_dtype_does_not_hold():
    builder = CsrBuilder(dtype=np.int32)
    builder.new_row()
    with pytest.raises(
        OverflowError, match="Value 2147483648 at index 0 exceeds int32"
    ):
        builder.push_back(2**31)
    with pytest.raises(
        ValueError, match="Value 1.5 at index 0 is not of int32"
    ):
        builder.push_back(1.5)
    builder.push_back(-(2**31))
    assert builder.build()[1].tolist() == [-(2**31)]
    floats = CsrBuilder(dtype=np.float32)
    floats.new_row()
    floats.push_back(1.5)
    assert floats.build()[1].tolist() == [1.5]


def test_bounds_below_zero():
    with pytest.raises(ValueError, match="`num_rows` must be .* got -1"):
        CsrBuilder(num_rows=-1)
    with pytest.raises(ValueError, match="`max_values` must be .* got -2"):
        CsrBuilder(max_values=-2)
