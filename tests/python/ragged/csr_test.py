"""lodestar.hugectr.from_csr and to_csr, of one feature slot and of several."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar.hugectr import from_csr, to_csr
from lodestar.ragged import LoDTensor


def csr_of(rows):
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return offsets.astype(np.int64), np.concatenate([[], *rows]).astype(
        np.int64
    )


def random_slots(rng, num_slots, batch):
    """Returns ids as slots[s][b]."""
    return [
        [rng.integers(100, size=rng.integers(4)).tolist() for _ in range(batch)]
        for _ in range(num_slots)
    ]


def in_order(slots, batch, order):
    if order == "slot_major":
        return [row for slot in slots for row in slot]
    return [slot[b] for b in range(batch) for slot in slots]


def test_hugectr_example():
    # The rows 4 5 1 2 | 3 5 1 | 3 2 of HugeCTR's csr.hpp.
    (x,) = from_csr([0, 4, 7, 9], [4, 5, 1, 2, 3, 5, 1, 3, 2])
    assert x.to_list() == [[4, 5, 1, 2], [3, 5, 1], [3, 2]]
    offsets, values = to_csr([x])
    assert offsets.numpy().tolist() == [0, 4, 7, 9]
    assert values.numpy().tolist() == [4, 5, 1, 2, 3, 5, 1, 3, 2]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("order", ["sample_major", "slot_major"])
@pytest.mark.parametrize("num_slots", [1, 2, 5])
@pytest.mark.parametrize("batch", [0, 1, 4])
def test_slots_and_back(num_slots, batch, order, dtype, rng):
    slots = random_slots(rng, num_slots, batch)
    offsets, values = csr_of(in_order(slots, batch, order))
    xs = from_csr(offsets.astype(dtype), values, num_slots, order)
    assert [x.to_list() for x in xs] == slots
    back_offsets, back_values = to_csr(xs, order)
    assert back_offsets.dtype == tf.int64
    assert back_offsets.numpy().tolist() == offsets.tolist()
    assert back_values.numpy().tolist() == values.tolist()


@pytest.mark.parametrize("order", ["sample_major", "slot_major"])
def test_slots_in_a_function_with_unknown_sizes(order, rng):
    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([None, 2], tf.float32),
        ]
    )
    def through(offsets, values):
        xs = from_csr(offsets, values, 3, order)
        assert xs[0].values.shape.as_list() == [None, 2]
        return [x.to_ragged() for x in xs], to_csr(xs, order)

    slots = random_slots(rng, 3, 2)
    offsets, values = csr_of(in_order(slots, 2, order))
    rows = np.stack([values, -values], 1).astype(np.float32)
    xs, (back_offsets, back_rows) = through(offsets.astype(np.int32), rows)
    for x, slot in zip(xs, slots, strict=True):
        assert x[..., 0].to_list() == slot
    assert back_offsets.numpy().tolist() == offsets.tolist()
    assert back_rows.numpy().tolist() == rows.tolist()
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="a multiple of 3 rows"
    ):
        through([0, 1], rows[:1])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="ends at 9, but there are 1 rows"
    ):
        through([0, 1, 1, 9], rows[:1])


@pytest.mark.parametrize("order", ["sample_major", "slot_major"])
def test_gradient(order, rng):
    offsets = tf.constant([0, 2, 2, 3, 7], tf.int64)

    def through(values):
        a, b = from_csr(offsets, values, 2, order)
        doubled = LoDTensor(b.values * b.values, b.lod)
        return to_csr([a, doubled], order)[1]

    theory, numeric = tf.test.compute_gradient(
        through, [tf.constant(rng.normal(size=(7, 2)))]
    )
    np.testing.assert_allclose(theory, numeric, rtol=1e-6, atol=1e-8)


def test_errors():
    with pytest.raises(
        ValueError, match="`order` must be .* got 'batch_major'"
    ):
        from_csr([0, 1], [1], 1, "batch_major")
    with pytest.raises(
        ValueError, match="`num_slots` must be .* at least 1, got 0"
    ):
        from_csr([0, 1], [1], 0)
    with pytest.raises(
        ValueError, match="must have a multiple of 2 rows, got 3"
    ):
        from_csr([0, 1, 1, 1], [1], 2)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`lod\[0\]\[1\]`=3 is greater than `lod\[0\]\[2\]`=2",
    ):
        from_csr([0, 3, 2], [1, 2])
    with pytest.raises(ValueError, match="`row_offsets` must have rank 1"):
        from_csr([[0, 1]], [1])
    with pytest.raises(TypeError, match="`row_offsets` has dtype float32"):
        from_csr([0.0, 1.0], [1])
    (x,) = from_csr([0, 1], [1])
    two = LoDTensor.from_lengths([1], [[1], [1]])
    with pytest.raises(
        ValueError, match=r"`slots\[1\]` must have one level, got 2"
    ):
        to_csr([x, two])
    with pytest.raises(
        ValueError, match=r"`slots\[0\]` must have one level, got 2"
    ):
        to_csr([two])
    with pytest.raises(TypeError, match=r"`slots\[1\]` must be a LoDTensor"):
        to_csr([x, x.to_ragged()])
    with pytest.raises(ValueError, match="`slots` must have at least one"):
        to_csr([])
    with pytest.raises(ValueError, match="`order` must be .* got 'x'"):
        to_csr([x], "x")
    with pytest.raises(TypeError, match=r"`slots\[1\]` has dtype float32, but"):
        to_csr([x, *from_csr([0, 1], [1.0])])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`slots\[1\]` and `slots\[0\]` have different numbers of units",
    ):
        to_csr([x, *from_csr([0, 1, 1], [1])])
